"""Exact audits against independent accounts: fractions, the verifiers' closed forms, their kernels,
and their own samplers.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import otm
from otm import audit
from otm.audit.standard_problems import problems_under
from tests import instances
from tests.audit.callables import as_floats, maximal


class TestAgainstFractions:
    @pytest.mark.parametrize("verify", [maximal, as_floats(maximal)], ids=["traced", "probed"])
    def test_lenient_acceptance(self, verify: Any) -> None:
        """Accept with min(1, q/(l p)) and an unscaled residual: the law in fractions, by hand."""
        p, q, lenience = (
            [Fraction(3, 8), Fraction(5, 8)],
            [Fraction(5, 8), Fraction(3, 8)],
            Fraction(3, 4),
        )
        keep = [min(Fraction(1), b / (lenience * a)) for a, b in zip(p, q, strict=True)]
        expected = float(
            p[0] * keep[0] + sum(a * (1 - c) for a, c in zip(p, keep, strict=True))
        )  # residual all on token 0

        def lenient(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
            scaled = np.array([uniforms[0] * 0.75, uniforms[1]], dtype=uniforms.dtype)
            return verify(p, q, drafts, scaled)

        result = audit.exact(
            lenient, otm.Problem(draft=[0.375, 0.625], target=[0.625, 0.375], law=otm.IID(1))
        )
        assert result.verdict == "not lossless"
        np.testing.assert_allclose(result.law[0], expected, atol=1e-15)
        assert math.isclose(result.total_variation, abs(expected - 0.625), abs_tol=1e-15)
        assert math.isclose(
            result.rule or 0.0,
            float(sum(a * c for a, c in zip(p, keep, strict=True))),
            abs_tol=1e-15,
        )

    def test_kl_and_the_worst_token(self) -> None:
        result = audit.exact(
            lambda p, q, d, u: int(d[0]),
            otm.Problem(draft=[0.7, 0.2, 0.1], target=[0.25, 0.5, 0.25], law=otm.IID(1)),
        )
        expected = (
            0.25 * math.log(0.25 / 0.7) + 0.5 * math.log(0.5 / 0.2) + 0.25 * math.log(0.25 / 0.1)
        )
        assert math.isclose(result.kl, expected, abs_tol=1e-14)
        assert (result.worst, result.rule) == ((0,), None)
        assert math.isclose(result.membership, 1.0, abs_tol=1e-15)
        assert math.isclose(result.gap, 0.55 - 1.0, abs_tol=1e-14)


REGISTRY = [
    param
    for param in instances.supported_pairs((1, 2))
    for verifier, law in [param.values]
    if law.size == 2 or not verifier.supports(type(law).of_size(2))
]
"""Two drafts, or one where a verifier takes no more."""


@pytest.mark.parametrize(("verifier", "law"), REGISTRY)
def test_registered_verifiers_get_the_verdict_that_they_claim(
    verifier: otm.Verifier, law: otm.Law
) -> None:
    """Kernels: every lossless verifier passes; every lossy one fails somewhere, by the TV of its
    closed form to 1e-10.
    """
    audits = {name: audit.exact(verifier, problem) for name, problem in problems_under(law)}
    if verifier.lossless:
        assert {result.verdict for result in audits.values()} == {"lossless"}
        return
    assert "not lossless" in {result.verdict for result in audits.values()}
    for result in audits.values():
        predicted = otm.lossy.distortion(verifier, result.problem)
        assert abs(result.total_variation - predicted.total_variation) < 1e-10


def rectangular(verifier: otm.Verifier, law: otm.Law) -> bool:
    """Whether the sampler compares its uniforms with numbers only, so that boxes tell all."""
    return not (
        isinstance(verifier, otm.Optimal | otm.TvOptimal)
        and (law.size > 1 or isinstance(law, otm.ThresholdRace))
    ) and type(verifier).__name__ not in {
        "Race",
        "ListRace",
        "MinHash",
    }


def executed(verifier: otm.Verifier, problem: otm.Problem) -> audit.TokenCandidate:
    """The steps that a sampler executes on given drafts, on one row, as a candidate for this
    problem.
    """
    rule = otm.prepare(verifier, problem)

    def verify(draft: Any, target: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
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
    verifier: otm.Verifier, law: otm.Law, name: str
) -> None:
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
def test_drawing_and_verifying_together(verifier: otm.Verifier, law: otm.Law) -> None:
    """The drafts come from the sampler's own uniforms too: its joint law against the enumerated
    one, entry by entry.
    """
    problem = instances.named_problem("reversed", law)
    result = audit.library_sampler(verifier, problem)
    plan = otm.coupling(verifier, problem)
    rows = {tuple(row): i for i, row in enumerate(plan.drafts.tolist())}
    joint = plan.joint.toarray()
    assert result.error == 0.0
    for drafts, row in zip(
        result.coupling.drafts.tolist(), result.coupling.joint.toarray(), strict=True
    ):
        np.testing.assert_allclose(row, joint[rows[tuple(drafts)]], atol=1e-14)


@pytest.mark.parametrize("verifier", [otm.Race(), otm.ListRace()], ids=repr)
def test_the_race_that_a_sampler_runs_is_exact(verifier: otm.Verifier) -> None:
    """Drafter and verifier share their arrivals: noise that is used twice, known exactly."""
    problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(1))
    result = audit.library_sampler(verifier, problem)
    assert (result.verdict, result.error) == ("lossless", 0.0)
    assert abs(result.membership - otm.acceptance(verifier, problem)) < 2e-12  # of the quadrature


class TestWhatHidesFromTheTrace:
    """Callables whose fault once lay in a box that the trace called decided."""

    PROBLEM = otm.Problem(draft=[0.6, 0.4], target=[0.3, 0.7], law=otm.IID(1))

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
    def test_it_is_not_called_lossless(self, hidden: Any) -> None:
        def verify(p: Any, q: Any, drafts: Any, u: Any) -> int:
            return 0 if hidden(u) else int(maximal(p, q, drafts, u)[0])

        assert audit.exact(verify, self.PROBLEM).verdict != "lossless"
