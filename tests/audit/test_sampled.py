"""Sampled audits: level by simulation with the same code, power against known laws, plans, intervals, pooling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import otm
from otm.audit import BatchCandidate, CandidateFailure, audit_outputs, audit_sampled, audit_sampled_battery, samples_needed
from otm.audit.evidence import (
    detectable,
    distance,
    distance_threshold,
    log_evidence,
    log_excess_evidence,
    pool,
    proportion_interval,
    variation_interval,
)
from tests import mutants

PAIR = {"draft": [0.5, 0.3, 0.15, 0.05], "target": [0.2, 0.35, 0.2, 0.25]}
SUITE_FALSE_ALARM = 1e-9


def alarms(runs: int, level: float, samples: int, rng: np.random.Generator) -> tuple[int, int]:
    """How often each test fires on samples of the target itself; the evidence is looked at eight times a run."""
    mass = np.array([0.6, 0.3, 0.08, 0.02])
    counts = rng.multinomial(samples // 8, mass, size=(runs, 8)).cumsum(axis=1)
    evidence = log_evidence(counts, mass) >= math.log(1 / level)
    far = [distance(seen, mass) >= distance_threshold(mass, samples, false_alarm=level) for seen in counts[:, -1]]
    return sum(far), int(evidence.any(axis=1).sum())


@pytest.mark.parametrize(("level", "runs"), [(1e-2, 4_000), (1e-3, 4_000)])
def test_the_level_is_what_it_says(level: float, runs: int) -> None:
    """At most the level, by a bound that a correct test breaks with probability 1e-9."""
    most = binom.isf(SUITE_FALSE_ALARM, runs, level)
    by_distance, by_evidence = alarms(runs, level, 800, np.random.default_rng(1))
    assert by_distance <= most
    assert by_evidence <= most
    # and the bound has teeth: a test at ten times the level would be caught with probability 1 − 1e-3
    assert binom.cdf(most, runs, 10 * level) < 1e-3


def test_the_evidence_fires_at_its_level_and_not_far_below() -> None:
    """Ville's bound is nearly attained by a martingale with small steps: the simulation can see false alarms at all."""
    by_distance, by_evidence = alarms(2_000, 0.2, 800, np.random.default_rng(2))
    assert 0 < by_evidence < binom.isf(SUITE_FALSE_ALARM, 2_000, 0.2)
    assert by_distance < binom.isf(SUITE_FALSE_ALARM, 2_000, 0.2)


def test_the_evidence_has_mean_one_exactly() -> None:
    """E[E] = 1 summed over every count vector of 12 samples; and at most 1 for the excess, at the optimum itself."""
    mass, n = np.array([0.7, 0.2, 0.1]), 12
    total = 0.0
    for a in range(n + 1):
        for b in range(n + 1 - a):
            counts = np.array([a, b, n - a - b])
            ways = math.factorial(n) / math.prod(math.factorial(int(c)) for c in counts)
            total += ways * float(np.prod(mass**counts)) * math.exp(log_evidence(counts, mass))
    assert math.isclose(total, 1.0, abs_tol=1e-10)
    for truth, bound in ((0.6, 1.0), (0.5, 1.0), (0.7, math.inf)):
        mean = sum(binom.pmf(hits, n, truth) * math.exp(log_excess_evidence(hits, n, 0.6)) for hits in range(n + 1))
        assert mean <= bound + 1e-7  # the optimum is taken 1e-9 higher than it is, n times
        assert (mean > 1.2) == (truth == 0.7)


@pytest.mark.parametrize("detect", [0.05, 0.1])
def test_the_plan_has_the_power_that_it_promises(detect: float) -> None:
    """Laws at exactly the promised total variation, near and far from the target, are missed less often than 1e-2."""
    mass = np.array([0.4, 0.3, 0.2, 0.1])
    n = samples_needed(mass, detect=detect, false_alarm=1e-3, missed=1e-2)
    assert math.isclose(detectable(mass, n, false_alarm=1e-3, missed=1e-2), detect, rel_tol=1e-3)
    rng = np.random.default_rng(3)
    for shift in ([1, -1, 0, 0], [0.5, 0.5, -0.5, -0.5], [0, 0, 1, -1]):
        law = mass + detect * np.array(shift)
        runs = 1_000
        missed = sum(
            distance(counts, mass) < distance_threshold(mass, n, false_alarm=1e-3)
            for counts in rng.multinomial(n, law, size=runs)
        )
        assert missed <= binom.isf(SUITE_FALSE_ALARM, runs, 1e-2)


def test_intervals_cover() -> None:
    rng = np.random.default_rng(4)
    mass, law = np.array([0.5, 0.3, 0.2]), np.array([0.42, 0.36, 0.22])
    outside = [
        not (interval.low <= 0.08 <= interval.high)
        for interval in (
            variation_interval(counts, mass, uncertainty=0.05) for counts in rng.multinomial(2_000, law, size=1_000)
        )
    ]
    assert sum(outside) <= binom.isf(SUITE_FALSE_ALARM, 1_000, 0.05)
    hits = rng.binomial(300, 0.9, size=1_000)
    missed = [not (i.low <= 0.9 <= i.high) for i in (proportion_interval(int(h), 300, uncertainty=0.05) for h in hits)]
    assert 0 < sum(missed) <= binom.isf(SUITE_FALSE_ALARM, 1_000, 0.05)
    assert (proportion_interval(0, 9, uncertainty=0.1).low, proportion_interval(9, 9, uncertainty=0.1).high) == (0.0, 1.0)


@pytest.mark.parametrize(
    "mutant",
    [mutants.NoRenormalisation(), mutants.ReusedUniform(), mutants.ReusedUniformKSeq(), mutants.ClippedKSeq()],
    ids=lambda m: type(m).__name__,
)
def test_mutants_are_found_and_the_control_is_not(mutant: otm.Verifier) -> None:
    problem = otm.Problem(**PAIR, law=otm.IID(2))
    truth = otm.lossy.distortion(mutant, problem).total_variation
    audit = audit_sampled(mutant, problem, rng=np.random.default_rng(5), detect=truth)
    assert audit.verdict == "not lossless"
    assert audit.samples <= audit.planned
    control = audit_sampled(mutants.Faithful(), problem, rng=np.random.default_rng(5), detect=truth)
    assert control.verdict == "no difference found"
    assert control.membership is not None
    assert control.membership.low <= otm.acceptance(otm.RecursiveRejection(), problem) <= control.membership.high
    assert control.optimum == otm.optimal_acceptance(problem)


def test_one_impossible_token_settles_it() -> None:
    problem = otm.Problem(draft=[0.5, 0.5, 0.0], target=[0.5, 0.5, 0.0], law=otm.IID(1))

    def leaks(p: Any, q: Any, drafts: Any, rng: np.random.Generator) -> Any:
        return np.where(rng.random(len(drafts)) < 0.02, 2, drafts[:, 0])

    audit = audit_sampled(BatchCandidate(leaks), problem, rng=np.random.default_rng(6))
    assert (audit.verdict, audit.found_by, audit.samples, audit.log_e_value) == ("not lossless", "evidence", 500, math.inf)
    assert "evidence" in str(audit)


def test_acceptance_beyond_the_optimum_is_found_where_no_single_token_shows() -> None:
    """20,000 tokens, each off by a little: the counts say nothing after 500 samples, the acceptance does."""
    rng = np.random.default_rng(7)
    draft = otm.examples.zipf(20_000)
    target = 0.5 * draft + 0.5 * rng.permutation(draft)
    problem = otm.Problem(draft=draft, target=target, law=otm.IID(1))
    audit = audit_sampled(otm.Lenience(0.7), problem, rng=rng)
    assert audit.verdict == "not lossless"
    assert audit.cells <= 256
    assert audit_sampled(otm.Maximal(), problem, rng=rng, detect=0.1).verdict == "no difference found"


def test_cells_hold_everything_once() -> None:
    rng = np.random.default_rng(8)
    draft, target = rng.dirichlet(np.full(1_000, 0.1)), rng.dirichlet(np.full(1_000, 0.1))
    target[:300] = 0.0
    target /= target.sum()
    cells = pool(draft, target, 64)
    assert cells.shape == (1_000,)
    assert len(np.unique(cells)) == cells.max() + 1 <= 64
    assert np.array_equal(np.unique(cells[target == 0]), [0])
    assert target[cells == 0].sum() == 0.0
    assert np.array_equal(pool(draft[:5], target[:5], 64), np.arange(5))


def test_given_outputs() -> None:
    rng = np.random.default_rng(9)
    target = np.array([0.5, 0.25, 0.25])
    fair, unfair = rng.choice(3, p=target, size=20_000), rng.choice(3, p=[0.4, 0.35, 0.25], size=20_000)
    assert audit_outputs(fair, target=target).verdict == "no difference found"
    found = audit_outputs(unfair, target=target)
    assert found.verdict == "not lossless"
    assert found.total_variation.low <= 0.1 <= found.total_variation.high
    assert found.membership is None
    for bad in ([], [3], [[0]], [0.5], [-1]):
        with pytest.raises(otm.errors.InvalidParameter, match="outputs must be"):
            audit_outputs(np.asarray(bad), target=target)


class TestCandidates:
    PROBLEM = otm.Problem(**PAIR, law=otm.IID(1))

    def test_randomness_of_its_own(self) -> None:
        own = np.random.default_rng(10)

        def samples_the_target(p: Any, q: Any, drafts: Any, uniforms: Any) -> int:
            return int(own.choice(len(q), p=q))

        audit = audit_sampled(samples_the_target, self.PROBLEM, rng=np.random.default_rng(11), detect=0.1)
        assert audit.verdict == "no difference found"
        assert audit.rule is None

    def test_what_is_no_batch_is_refused(self) -> None:
        for answer in (
            lambda m: np.zeros(m + 1, dtype=int),
            lambda m: np.full(m, 4),
            lambda m: np.full(m, 0.5),
            lambda m: None,
        ):
            with pytest.raises(CandidateFailure, match="must return"):
                audit_sampled(
                    BatchCandidate(lambda p, q, d, rng, answer=answer: answer(len(d))),
                    self.PROBLEM,
                    rng=np.random.default_rng(0),
                )

    def test_an_exception_names_the_drafts(self) -> None:
        with pytest.raises(CandidateFailure, match=r"ZeroDivisionError.*Drafts: \["):
            audit_sampled(lambda p, q, d, u: 1 // 0, self.PROBLEM, rng=np.random.default_rng(0))

    def test_probabilities_are_checked(self) -> None:
        for wrong in ({"detect": 0.0}, {"false_alarm": 0.0}, {"missed": 0.9}):
            with pytest.raises(otm.errors.InvalidParameter):
                audit_sampled(otm.Maximal(), self.PROBLEM, rng=np.random.default_rng(0), **wrong)

    def test_the_battery_shares_its_false_alarms(self) -> None:
        audit = audit_sampled_battery(otm.Maximal(), rng=np.random.default_rng(12), detect=0.2)
        assert audit.verdict == "no difference found"
        assert math.isclose(sum(single.false_alarm for single in audit.audits.values()), 1e-9)
        worse = audit_sampled_battery(otm.Lenience(0.5), rng=np.random.default_rng(13), detect=0.2)
        assert worse.verdict == "not lossless"
        assert "not lossless" in str(worse)


def test_a_candidate_may_write_into_its_arguments() -> None:
    """In-place residuals are common in engines: each call gets copies, or the audit would test another problem."""

    def verify(p: Any, q: Any, drafts: Any, u: Any) -> int:
        x = int(drafts[0])
        if u[0] * p[x] < q[x]:
            return x
        np.maximum(q - p, 0.0, out=q)
        p[:] = drafts[:] = 0
        return int(np.searchsorted(np.cumsum(q) / q.sum(), u[1], side="right"))

    problem = otm.Problem(draft=[0.6, 0.4], target=[0.3, 0.7], law=otm.IID(1))
    audit = audit_sampled(verify, problem, rng=np.random.default_rng(0), detect=0.1)
    assert audit.verdict == "no difference found"
    assert problem.target.tolist() == [0.3, 0.7]


@pytest.mark.parametrize("errors", [{"false_alarm": 5e-324}, {"missed": 5e-324}, {"detect": 5e-324}, {"detect": float("nan")}])
def test_errors_too_small_to_compute_with_are_refused(errors: dict[str, float]) -> None:
    problem = otm.Problem(draft=[0.6, 0.4], target=[0.3, 0.7], law=otm.IID(1))
    with pytest.raises(otm.errors.InvalidParameter, match="must lie in"):
        audit_sampled(otm.Maximal(), problem, rng=np.random.default_rng(0), **errors)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"mass": [0.5, 0.6]}, "mass must sum to 1"),
        ({"mass": [[0.5, 0.5]]}, r"one distribution \(V,\); mass has shape \(1, 2\)"),
        ({"detect": 0.0}, r"detect must lie in \(0, 1\]"),
        ({"false_alarm": 0.0}, r"false_alarm must lie in \(0, 1\]"),
        ({"missed": 2.0}, r"missed must lie in \(0, 1\]"),
    ],
)
def test_plans_that_cannot_be_made(bad: dict[str, Any], said: str) -> None:
    arguments = {"mass": [0.5, 0.5], "detect": 0.1, "false_alarm": 1e-3, "missed": 1e-2} | bad
    with pytest.raises((otm.errors.InvalidParameter, otm.errors.InvalidDistribution), match=said):
        samples_needed(arguments.pop("mass"), **arguments)


def test_a_plan_of_months_is_refused_before_it_begins() -> None:
    problem = otm.Problem(draft=[0.6, 0.4], target=[0.3, 0.7], law=otm.IID(1))
    with pytest.raises(otm.errors.TooLarge, match="detect=1e-08"):
        audit_sampled(otm.Maximal(), problem, rng=np.random.default_rng(0), detect=1e-8)
