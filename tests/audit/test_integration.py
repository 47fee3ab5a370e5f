"""Exact audits against independent accounts: the verifiers' closed forms, their kernels and their
own samplers; the corpus has mistakes with their distances in fractions.
"""

import dataclasses
import math

import numpy as np
import pytest

import otm
from otm import audit
from otm.audit.standard_problems import problems_under
from tests import instances
from tests.audit.callables import maximal


def test_kl_and_the_worst_token():
    """Infinite where something that the target can write never comes out."""

    def trusting(p, q, drafts, uniforms):
        return int(drafts[0])

    target = [0.25, 0.5, 0.25]
    given = otm.Problem(draft=[0.7, 0.2, 0.1], target=target, law=otm.IID(1))
    result = audit.exact(trusting, given)
    ratios = np.log(given.target / given.draft)
    assert math.isclose(result.kl, given.target @ ratios, abs_tol=1e-14)
    assert (result.worst, result.rule) == ((0,), None)
    assert [result.membership, result.gap] == pytest.approx([1.0, 0.55 - 1.0], rel=0, abs=1e-14)
    never = audit.exact(trusting, dataclasses.replace(given, draft=[0.75, 0.25, 0.0]))
    assert never.kl == math.inf


@pytest.mark.parametrize(
    ("verifier", "law"),
    [
        (otm.RecursiveRejection(), otm.WithoutReplacement(2)),
        (otm.Naive(), otm.Product(2)),
        (otm.Race(), otm.IID(2)),
        (otm.Lenience(0.7), otm.IID(1)),
        (otm.Mentored(kl=0.1), otm.IID(1)),
    ],
    ids=repr,
)
def test_registered_verifiers_get_the_verdict_that_they_claim(verifier, law):
    """By their kernels: a lossless one passes; a lossy one fails somewhere, by the TV of its closed
    form to 1e-10. A race is integrated numerically.
    """
    audits = {name: audit.exact(verifier, problem) for name, problem in problems_under(law)}
    verdicts = {result.verdict for result in audits.values()}
    assert verdicts == {"lossless"} if verifier.lossless else "not lossless" in verdicts
    for result in audits.values():
        predicted = otm.lossy.distortion(verifier, result.problem)
        assert abs(result.total_variation - predicted.total_variation) < 1e-10


def rectangular(verifier, law):
    """Whether the sampler compares its uniforms with numbers only, so that boxes tell all."""
    return not (
        isinstance(verifier, otm.Optimal | otm.TvOptimal)
        and (law.size > 1 or isinstance(law, otm.ThresholdRace))
    ) and type(verifier).__name__ not in {
        "Race",
        "ListRace",
        "MinHash",
    }


def executed(verifier, problem):
    """The steps that a sampler executes on given drafts, on one row, as a candidate for this
    problem.
    """
    rule = otm.prepare(verifier, problem)

    def verify(draft, target, drafts, uniforms):
        output, accepted = rule.verify(drafts[None, :], uniforms[None, :], None)
        return int(output[0]), bool(accepted[0])

    return audit.TokenCandidate(
        verify,
        name=f"the steps of {verifier!r}",
        num_uniforms=lambda k, num_tokens: rule.num_uniforms,
    )


STEPS = [p for p in instances.supported_pairs((1, 2)) if rectangular(*p.values)]


@pytest.mark.parametrize(("verifier", "law"), STEPS)
@pytest.mark.parametrize("name", ["reversed", "zeros"])
def test_the_steps_that_samplers_execute_have_the_law_that_closed_forms_predict(
    verifier, law, name
):
    """`verify` integrated over its uniforms, against output law, distortion and both acceptances,
    which share no code with it.
    """
    problem = instances.named_problem(name, law)
    result = audit.exact(executed(verifier, problem), problem)
    variation = otm.lossy.distortion(verifier, problem).total_variation
    assert (result.method, result.error) == ("traced", 0.0)
    assert (result.verdict == "lossless") == (variation < 1e-13)
    assert abs(result.total_variation - variation) < 1e-10
    accepted = [otm.acceptance(verifier, problem, by=by) for by in ("membership", "rule")]
    assert [result.membership, result.rule] == pytest.approx(accepted, rel=0, abs=1e-12)


@pytest.mark.parametrize(
    ("verifier", "law"),
    [
        (otm.KSeq(), otm.IID(2)),
        (otm.RecursiveRejection(), otm.WithoutReplacement(2)),
        (otm.SpecHub(), otm.Greedy(2)),
        (otm.Naive(), otm.Product(2)),
        (otm.Lenience(0.7), otm.IID(1)),
    ],
    ids=repr,
)
def test_drawing_and_verifying_together(verifier, law):
    """The drafts come from the sampler's own uniforms too: its joint law against the enumerated
    one, entry by entry.
    """
    problem = instances.named_problem("reversed", law)
    result = audit.library_sampler(verifier, problem)
    expected, found = (
        dict(zip(map(tuple, plan.drafts.tolist()), plan.joint.toarray(), strict=True))
        for plan in (otm.coupling(verifier, problem), result.coupling)
    )
    assert result.error == 0.0
    for drafts, law in found.items():
        np.testing.assert_allclose(law, expected[drafts], atol=1e-14)


@pytest.mark.parametrize("verifier", [otm.Race(), otm.ListRace()], ids=repr)
def test_the_race_that_a_sampler_runs_is_exact(verifier):
    """Drafter and verifier share their arrivals: noise that is used twice, known exactly."""
    problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(1))
    result = audit.library_sampler(verifier, problem)
    assert (result.verdict, result.error) == ("lossless", 0.0)
    assert abs(result.membership - otm.acceptance(verifier, problem)) < 2e-12  # of the quadrature


class TestWhatHidesFromTheTrace:
    """Callables whose fault once lay in a box that the trace called decided."""

    @pytest.mark.parametrize(
        "hidden",
        [
            lambda u: np.log(u[0]) - np.log(u[1]) < -3,  # −∞ + ∞ at a corner
            lambda u: np.log(u[1] - 0.4) < -4,  # NaN below 0.4, not above
            lambda u: np.log1p(-u[1] * 1.02) < -5,
            lambda u: 1.0 / (0.0 - u[1]) < -40,  # a zero of the other sign at an end
            lambda u: "77" in str(u[1])[:6],
            lambda u: f"{u[1]}"[2:4] == "77",
        ],
    )
    def test_it_is_not_called_lossless(self, hidden):
        def verify(p, q, drafts, u):
            return 0 if hidden(u) else int(maximal(p, q, drafts, u)[0])

        problem = otm.Problem(draft=[0.6, 0.4], target=[0.3, 0.7], law=otm.IID(1))
        assert audit.exact(verify, problem).verdict != "lossless"
