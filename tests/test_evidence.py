"""Evidence: level by simulation with the same code, power against known laws, plans, intervals,
pooling.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, multinomial

import otm
from otm.evidence import (
    detectable,
    distance,
    distance_threshold,
    log_evidence,
    log_excess_evidence,
    noise_limit,
    pool,
    samples_needed,
    spread,
    tokens_to_mismatch,
    variation_interval,
)

SUITE_FALSE_ALARM = 1e-9


def alarms(runs: int, level: float, samples: int, rng: np.random.Generator) -> tuple[int, int]:
    """How often each test fires on samples of the target itself; the evidence is looked at eight
    times a run.
    """
    mass = np.array([0.6, 0.3, 0.08, 0.02])
    counts = rng.multinomial(samples // 8, mass, size=(runs, 8)).cumsum(axis=1)
    evidence = log_evidence(counts, mass) >= math.log(1 / level)
    far = [
        distance(seen, mass) >= distance_threshold(mass, samples, false_alarm=level)
        for seen in counts[:, -1]
    ]
    return sum(far), int(evidence.any(axis=1).sum())


@pytest.mark.parametrize("level", [1e-2, 1e-3])
def test_the_level_is_what_it_says(level: float) -> None:
    """At most the level, by a bound that a correct test breaks with probability 1e-9."""
    most = binom.isf(SUITE_FALSE_ALARM, 4_000, level)
    assert max(alarms(4_000, level, 800, np.random.default_rng(1))) <= most
    # and the bound has teeth: a test at ten times the level would be caught with probability 1 −
    # 1e-3
    assert binom.cdf(most, 4_000, 10 * level) < 1e-3


def test_the_evidence_fires_at_its_level_and_not_far_below() -> None:
    """Ville's bound is nearly attained by a martingale with small steps: the simulation can see
    false alarms at all.
    """
    most = binom.isf(SUITE_FALSE_ALARM, 2_000, 0.2)
    by_distance, by_evidence = alarms(2_000, 0.2, 800, np.random.default_rng(2))
    assert 0 < by_evidence < most and by_distance < most


def test_the_evidence_has_mean_one_exactly() -> None:
    """E[E] = 1 summed over every count vector of 12 samples; and at most 1 for the excess, at the
    optimum itself.
    """
    mass, n = np.array([0.7, 0.2, 0.1]), 12
    counts = [(a, b, n - a - b) for a in range(n + 1) for b in range(n + 1 - a)]
    chances = multinomial.pmf(counts, n, mass)
    total = float(chances @ np.exp(log_evidence(np.array(counts), mass)))
    assert math.isclose(total, 1.0, abs_tol=1e-10)
    for truth, bound in ((0.6, 1.0), (0.5, 1.0), (0.7, math.inf)):
        mean = sum(
            binom.pmf(hits, n, truth) * math.exp(log_excess_evidence(hits, n, 0.6))
            for hits in range(n + 1)
        )
        assert mean <= bound + 1e-7  # the optimum is taken 1e-9 higher than it is, n times
        assert (mean > 1.2) == (truth == 0.7)


@pytest.mark.parametrize("detect", [0.05, 0.1])
def test_the_plan_has_the_power_that_it_promises(detect: float) -> None:
    """Laws at exactly the promised total variation, near and far from the target, are missed less
    often than 1e-2.
    """
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
            variation_interval(counts, mass, uncertainty=0.05)
            for counts in rng.multinomial(2_000, law, size=1_000)
        )
    ]
    assert sum(outside) <= binom.isf(SUITE_FALSE_ALARM, 1_000, 0.05)


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


def test_the_spread_sees_what_is_left_beside_a_mass_of_one() -> None:
    """1 − 1 is 0, but √1e-17 = 3.2e-9 is not, twice."""
    assert spread(np.array([1e-17, 1.0])) == pytest.approx(math.sqrt(1e-17), rel=1e-12)


def test_a_limit_of_noise_by_hand_and_on_a_grid() -> None:
    """Of four values the second largest, 4, and 2/(5 · .05) − 1 = 7 times the excess, 3, of the
    largest over it; on a grid of step 1 more, and half a step more of excess.
    """
    assert noise_limit(np.array([1.0, 2.0, 4.0, 7.0]), level=0.05, resolution=0.0) == 25.0
    grid = np.repeat([1.0, 2.0, 3.0], [9, 4, 3])  # k = 4: U = 2, excesses 1, 1, 1, 0
    factor = (5 / (17 * 1e-9)) ** 0.25 - 1
    assert noise_limit(grid, level=1e-9, resolution=0.0) == pytest.approx(3 + factor * 5)
    assert noise_limit(grid, level=1e-9, resolution=2.0) is None


@pytest.mark.parametrize("noise", ["exponential", "normal", "uniform"])
def test_a_limit_of_noise_is_exceeded_as_rarely_as_it_says(noise: str) -> None:
    """Exponential noise exceeds it with the stated probability, what is lighter less often; five
    standard errors of 6,000 trials.
    """
    rng = np.random.default_rng(7)
    values = np.abs(getattr(rng, noise)(size=(6_000, 9)))
    level = 0.05
    beyond = [row[8] > (noise_limit(row[:8], level=level, resolution=0.0) or 0) for row in values]
    error = math.sqrt(level * (1 - level) / len(values))
    assert np.mean(beyond) < level + 5 * error
    assert noise != "exponential" or np.mean(beyond) > level - 5 * error


def mismatches(q: Any, served: Any, noise: Any, tolerance: float) -> Any:
    """Whether the sampler's token is behind the auditor's by more than a tolerance, by noise."""
    own, drawn = np.log(q) + noise, np.log(served) + noise
    winner = drawn.argmax(axis=1)[:, None]
    return own.max(axis=1) - np.take_along_axis(own, winner, axis=1)[:, 0] > tolerance


@pytest.mark.parametrize("tolerance", [0.0, 0.1, 0.4])
def test_mismatches_on_shared_noise_come_as_often_as_stated(tolerance: float) -> None:
    rng, runs = np.random.default_rng(9), 200_000
    q, served = rng.dirichlet(np.ones(6)), rng.dirichlet(np.ones(6))
    # Rounding n up hides 1/n of the probability, here a thousandth or less.
    n = tokens_to_mismatch(target=q, served=served, missed=1e-300, tolerance=tolerance)
    off = -math.expm1(math.log(1e-300) / n)
    found = int(mismatches(q, served, rng.gumbel(size=(runs, 6)), tolerance).sum())
    assert binom.cdf(found, runs, off * (1 - 1 / n)) > SUITE_FALSE_ALARM
    assert binom.sf(found - 1, runs, off * (1 + 2 / n)) > SUITE_FALSE_ALARM
    variation = 0.5 * float(np.abs(q - served).sum())
    assert off * (1 - 1 / n) <= 2 * variation / (1 + variation)
    assert tolerance > 0.0 or variation <= off * (1 + 2 / n)


def test_a_plan_for_seeded_samplers_over_contexts_misses_as_rarely_as_it_promises() -> None:
    """Contexts of several laws in random order; a plan of half as many tokens misses more often."""
    rng, runs, missed = np.random.default_rng(10), 4_000, 0.05
    target, served = rng.dirichlet(np.full(5, 0.4), size=7), rng.dirichlet(np.ones(5), size=7)
    served = 0.9 * target + 0.1 * served
    n = int(tokens_to_mismatch(target=target, served=served, missed=missed))
    contexts = rng.integers(7, size=(runs, n))
    noise = rng.gumbel(size=(runs * n, 5))
    off = mismatches(*(laws[contexts].reshape(-1, 5) for laws in (target, served)), noise, 0.0)
    off = off.reshape(runs, n)
    assert (~off.any(axis=1)).sum() <= binom.isf(SUITE_FALSE_ALARM, runs, missed)
    assert (~off[:, : n // 2].any(axis=1)).sum() > binom.isf(SUITE_FALSE_ALARM, runs, missed)


def test_rounding_within_the_tolerance_never_shows() -> None:
    rng = np.random.default_rng(11)
    q = rng.dirichlet(np.ones(8), size=500)
    served = q * np.exp(rng.uniform(-0.05, 0.05, size=q.shape))
    served /= served.sum(axis=1, keepdims=True)
    noise = rng.gumbel(size=(500, 8))
    assert mismatches(q, served, noise, 0.0).any()
    assert not mismatches(q, served, noise, 0.1).any()
    assert tokens_to_mismatch(target=q, served=served, tolerance=0.1) == math.inf


def test_tokens_to_a_mismatch_by_hand() -> None:
    """A token without mass settles it, and a draft raised by a margin mismatches as often as the
    law is off.
    """
    certain, other = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    assert tokens_to_mismatch(target=certain, served=other, tolerance=700.0) == 1.0
    tiny = np.array([1.0, 1e-20])  # 1 − h = 2e-20, and 4e-40 < 1e-30 < 2e-20
    assert tokens_to_mismatch(target=tiny, served=tiny[::-1], missed=1e-30) == 2.0
    half = np.array([0.5, 0.5])
    assert tokens_to_mismatch(target=certain, served=half) == math.ceil(math.log2(1000))
    q, margin = np.array([0.2, 0.5, 0.3]), 0.18
    raised = q * np.exp([margin, 0.0, 0.0])
    raised /= raised.sum()
    off = 0.5 * float(np.abs(raised - q).sum())
    n = tokens_to_mismatch(target=q, served=raised)
    assert n == math.ceil(math.log(1e-3) / math.log(1 - off))
    assert tokens_to_mismatch(target=q, served=raised, tolerance=margin) == math.inf


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"served": [0.5, 0.6]}, "served must sum to 1"),
        ({"served": [[0.5, 0.5]]}, r"same contexts; their shapes are \(2,\) and \(1, 2\)"),
        ({"missed": 0.0}, r"missed must lie in \(0, 1\]"),
        ({"tolerance": -0.1}, r"tolerance must lie in \[0, 700\]"),
    ],
)
def test_plans_for_seeded_samplers_that_cannot_be_made(bad: dict[str, Any], said: str) -> None:
    with pytest.raises((otm.errors.InvalidParameter, otm.errors.InvalidDistribution), match=said):
        tokens_to_mismatch(**{"target": [0.5, 0.5], "served": [0.5, 0.5]} | bad)
