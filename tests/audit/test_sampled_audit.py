"""Sampled audits: mutants are found and controls are not, what settles it early, and what is
refused.
"""

import math

import numpy as np
import pytest

import otm
from evidence.corpus.one_token import draw
from otm import audit
from otm.audit.budget import DetectionBudget
from otm.audit.sampled_audit import audit_of_draws, jointly
from otm.audit.standard_problems import heavy_tailed
from tests import mutants

PAIR = {"draft": [0.5, 0.3, 0.15, 0.05], "target": [0.2, 0.35, 0.2, 0.25]}


@pytest.mark.parametrize(
    "mutant",
    [
        mutants.NoRenormalisation(),
        mutants.ReusedUniform(),
        mutants.ReusedUniformKSeq(),
        mutants.ClippedKSeq(),
    ],
    ids=lambda m: type(m).__name__,
)
def test_mutants_are_found_and_the_control_is_not(mutant):
    problem = otm.Problem(**PAIR, law=otm.IID(2))
    errors = audit.Errors(detect=otm.lossy.distortion(mutant, problem).total_variation)
    result, control = (
        audit.sampled(verifier, problem, rng=np.random.default_rng(5), errors=errors)
        for verifier in (mutant, mutants.Faithful())
    )
    assert (result.verdict, control.verdict) == ("not lossless", "no difference found")
    assert result.samples <= result.planned == control.samples
    accepted = otm.acceptance(otm.RecursiveRejection(), problem)
    assert control.membership.low <= accepted <= control.membership.high
    assert control.optimum == otm.optimal_acceptance(problem)


def test_two_calls_of_one_row_show_what_is_kept_between_them():
    """Every second call repeats the first one's token: each call is right by itself, and one row
    a call is what is drawn for pairs of calls.
    """
    problem, rng = otm.Problem(**PAIR, law=otm.IID(1)), np.random.default_rng(7)
    kept = {}

    def stale(p, q, drafts, rng):
        fresh = rng.choice(4, p=q, size=len(drafts))
        before = kept.pop(len(drafts), None)
        return kept.setdefault(len(drafts), fresh) if before is None else before

    errors = audit.Errors(detect=0.2)
    called = audit.BatchCandidate(stale).in_batches(1)
    found = audit_of_draws(jointly(called.drawing(problem, rng), 1), name="", errors=errors)
    assert found.verdict == "not lossless"
    assert "two calls of 1 row, jointly" in str(found.coverage)
    assert "state kept over more than two calls" in str(found.coverage)


def test_one_impossible_token_settles_it():
    problem = otm.Problem(draft=[0.5, 0.5, 0.0], target=[0.5, 0.5, 0.0], law=otm.IID(1))

    def leaks(p, q, drafts, rng):
        return np.where(rng.random(len(drafts)) < 0.02, 2, drafts[:, 0])

    result = audit.sampled(audit.BatchCandidate(leaks), problem, rng=np.random.default_rng(6))
    assert (result.verdict, result.found_by, result.samples, result.log_e_value) == (
        "not lossless",
        "evidence",
        500,
        math.inf,
    )
    assert "evidence" in str(result)


def test_samples_beside_an_integration_end_early_and_others_do_not():
    """A lossless verifier is cleared before the end of the plan if it was integrated on other
    instances, and not where errors were asked for; one that is wrong beyond the plan's total
    variation is found either way.
    """
    draft, target = heavy_tailed(2_000)
    problem = otm.Problem(draft=draft, target=target, law=otm.IID(1))
    budget = DetectionBudget((0.06,), math.inf, early=True)
    for early, detect in ((True, budget), (False, 0.06)):
        right, wrong = (
            audit.sampled(
                verifier,
                problem,
                rng=np.random.default_rng(3),
                errors=audit.Errors(detect=detect),
            )
            for verifier in (otm.Maximal(), otm.Lenience(0.5))
        )
        assert (right.verdict, wrong.verdict) == ("no difference found", "not lossless")
        assert (right.samples < 0.5 * right.planned) == early
        assert early or right.samples == right.planned


def test_acceptance_beyond_the_optimum_is_found_where_no_single_token_shows():
    """20,000 tokens, each off by a little: the counts say nothing after 500 samples, the acceptance
    does.
    """
    rng = np.random.default_rng(7)
    draft = otm.examples.zipf(20_000)
    target = 0.5 * draft + 0.5 * rng.permutation(draft)
    problem = otm.Problem(draft=draft, target=target, law=otm.IID(1))
    result = audit.sampled(otm.Lenience(0.7), problem, rng=rng)
    right = audit.sampled(otm.Maximal(), problem, rng=rng, errors=audit.Errors(detect=0.1))
    assert (result.verdict, right.verdict) == ("not lossless", "no difference found")
    assert result.cells <= 256


TARGET = np.array([0.5, 0.25, 0.25])


@pytest.mark.parametrize("bad", [[], [3], [[0]], [0.5], [-1]], ids=str)
def test_what_are_no_outputs_is_refused(bad):
    with pytest.raises(otm.errors.InvalidParameter, match="outputs must be"):
        audit.outputs(np.asarray(bad), target=TARGET)


def test_given_outputs_and_too_few_of_them():
    """The plan of `samples_needed`, at half the level for each of the two tests, is where a verdict
    begins; an alarm needs no plan.
    """
    errors = audit.Errors(detect=0.1)
    needed = audit.samples_needed(TARGET, detect=0.1, false_alarm=5e-10, missed=1e-3)
    fair = np.random.default_rng(14).choice(3, p=TARGET, size=needed)
    enough, short = (audit.outputs(x, target=TARGET, errors=errors) for x in (fair, fair[:-50]))
    assert (enough.verdict, short.verdict) == ("no difference found", "no verdict")
    few = audit.outputs(fair[:4], target=TARGET, errors=errors)  # which find no law below 1
    assert few.detect == 1.0
    for one in (short, few):
        assert abs(one.samples_needed - needed) <= 1  # rounded up twice
    assert f"0.1 needs {short.samples_needed:,} samples" in str(short)
    unfair = np.random.default_rng(9).choice(3, p=[0.4, 0.35, 0.25], size=needed)
    found = audit.outputs(unfair, target=TARGET, errors=errors)
    assert (found.verdict, found.membership) == ("not lossless", None)
    assert 0.0 < found.total_variation.low <= 0.1 <= found.total_variation.high


def test_a_candidate_may_write_into_its_arguments():
    """In-place residuals are common in engines: each call gets copies, or the audit would test
    another problem.
    """

    def verify(p, q, drafts, u):
        x = int(drafts[0])
        if u[0] * p[x] < q[x]:
            return x
        q -= np.minimum(p, q)
        p[:] = drafts[:] = 0
        return draw(q, u[1])

    problem = otm.Problem(draft=[0.6, 0.4], target=[0.3, 0.7], law=otm.IID(1))
    errors = audit.Errors(detect=0.1)
    result = audit.sampled(verify, problem, rng=np.random.default_rng(0), errors=errors)
    assert (result.verdict, audit.exact(verify, problem).verdict) == (
        "no difference found",
        "lossless",
    )
    assert problem.target.tolist() == [0.3, 0.7]


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        *(({name: 5e-324}, "must lie in") for name in ("false_alarm", "missed", "detect")),
        *(({name: 0.0}, "must lie in") for name in ("false_alarm", "missed", "detect")),
        ({"detect": float("nan")}, "must lie in"),
        ({"missed": 0.9}, "must lie in"),
        ({"detect": 1e-8}, "detect=1e-08"),  # a plan of months
    ],
)
def test_what_cannot_be_computed_or_waited_for_is_refused(errors, said):
    problem = otm.Problem(**PAIR, law=otm.IID(1))
    with pytest.raises((otm.errors.InvalidParameter, otm.errors.TooLarge), match=said):
        audit.sampled(
            otm.Maximal(), problem, rng=np.random.default_rng(0), errors=audit.Errors(**errors)
        )
