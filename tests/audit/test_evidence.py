"""Evidence: level by simulation with the same code, power against known laws, plans, intervals,
pooling.
"""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom, dirichlet_multinomial, multinomial

import otm
from otm.audit.evidence import (
    cleared,
    detectable,
    distance,
    distance_threshold,
    log_evidence,
    log_excess_evidence,
    noise_limit,
    pool,
    samples_needed,
    samples_to_clear,
    spread,
    tokens_to_mismatch,
    variation_at_least,
    variation_interval,
)

SUITE_FALSE_ALARM = 1e-9


@pytest.mark.parametrize("level", [0.2, 1e-2, 1e-3])
def test_the_level_is_what_it_says(level):
    """Each test fires on samples of the target itself at most as often as stated, the evidence on
    any of eight looks, by a bound that a correct test breaks with probability 1e-9; Ville's bound
    is nearly attained by a martingale with small steps, so that the simulation sees false alarms.
    """
    mass, runs = np.array([0.6, 0.3, 0.08, 0.02]), 4_000
    counts = np.random.default_rng(1).multinomial(100, mass, size=(runs, 8)).cumsum(axis=1)
    fired = (log_evidence(counts, mass) >= math.log(1 / level)).any(axis=1).sum()
    threshold = distance_threshold(mass, 800, false_alarm=level)
    far = sum(distance(seen, mass) >= threshold for seen in counts[:, -1])
    assert max(far, fired) <= binom.isf(SUITE_FALSE_ALARM, runs, level)
    assert fired > 0 or level < 0.2


def test_the_evidence_has_mean_one_exactly():
    """E[E] = 1 summed over every count vector of 12 samples; and at most 1 for the excess, at the
    optimum itself.
    """
    mass, n = np.array([0.7, 0.2, 0.1]), 12
    counts = [(a, b, n - a - b) for a in range(n + 1) for b in range(n + 1 - a)]
    chances = multinomial.pmf(counts, n, mass)
    assert math.isclose(chances @ np.exp(log_evidence(np.array(counts), mass)), 1.0, abs_tol=1e-10)
    for truth, bound in ((0.6, 1.0), (0.5, 1.0), (0.7, math.inf)):
        mean = sum(
            binom.pmf(hits, n, truth) * math.exp(log_excess_evidence(hits, n, 0.6))
            for hits in range(n + 1)
        )
        assert mean <= bound + 1e-7  # the optimum is taken 1e-9 higher than it is, n times
        assert (mean > 1.2) == (truth == 0.7)


@pytest.mark.parametrize("detect", [0.05, 0.1, 0.3])
def test_an_early_end_clears_the_target_mostly_and_no_law_beyond(detect):
    """Of two tokens the probabilities of all counts are known: a law at exactly the promised total
    variation is cleared less often than it may be missed, the target itself in most cases, and
    after fewer samples than a verdict needs.
    """
    mass, missed = np.array([0.6, 0.4]), 1e-2
    m = samples_to_clear(mass, detect=detect, missed=missed)
    assert m < 0.6 * samples_needed(mass, detect=detect, false_alarm=1e-9, missed=missed)
    clear = [
        cleared(np.array([n, m - n]), mass, detect=detect, missed=missed) for n in range(m + 1)
    ]
    chances = {law: binom.pmf(np.arange(m + 1), m, law) @ clear for law in (0.6, 0.6 - detect)}
    assert chances[0.6] > 0.9
    assert 0.0 < chances[0.6 - detect] <= missed


def test_an_early_end_of_many_cells():
    """256 cells of equal mass: the target is cleared in most of a thousand simulations, a law at
    the promised total variation in none.
    """
    mass = np.full(256, 1 / 256)
    law = mass * np.repeat([1.2, 0.8], 128)  # at a total variation of .1
    m = samples_to_clear(mass, detect=0.1, missed=1e-3)
    needed = samples_needed(mass, detect=0.1, false_alarm=1e-10, missed=1e-3)
    assert 0.35 < m / needed < 0.45
    rng = np.random.default_rng(5)
    fair, far = (
        sum(cleared(n, mass, detect=0.1, missed=1e-3) for n in rng.multinomial(m, pi, size=1_000))
        for pi in (mass, law)
    )
    assert fair > 700
    assert far <= binom.isf(SUITE_FALSE_ALARM, 1_000, 1e-3)


def test_the_plan_has_the_power_that_it_promises():
    """Laws at exactly the promised total variation, near and far from the target, are missed less
    often than 1e-2.
    """
    mass, detect = np.array([0.4, 0.3, 0.2, 0.1]), 0.1
    n = samples_needed(mass, detect=detect, false_alarm=1e-3, missed=1e-2)
    assert math.isclose(detectable(mass, n, false_alarm=1e-3, missed=1e-2), detect, rel_tol=1e-3)
    rng = np.random.default_rng(3)
    for shift in ([1, -1, 0, 0], [0.5, 0.5, -0.5, -0.5], [0, 0, 1, -1]):
        law = mass + detect * np.array(shift)
        missed = sum(
            distance(counts, mass) < distance_threshold(mass, n, false_alarm=1e-3)
            for counts in rng.multinomial(n, law, size=1_000)
        )
        assert missed <= binom.isf(SUITE_FALSE_ALARM, 1_000, 1e-2)


def test_intervals_cover():
    """Also where many cells make samples of the target itself look far from it."""
    rng = np.random.default_rng(4)
    mass, law = np.full(60, 1 / 60), np.repeat([1.04 / 60, 0.96 / 60], 30)
    runs = rng.multinomial(2_000, law, size=1_000)
    found = [variation_interval(counts, mass, uncertainty=0.05) for counts in runs]
    outside = sum(not one.low <= 0.02 <= one.high for one in found)
    assert outside <= binom.isf(SUITE_FALSE_ALARM, 1_000, 0.05)
    assert np.mean([one.high - one.low for one in found]) < 0.2


@pytest.mark.parametrize(("hits", "optimum"), [(0, 1.0), (60, 0.5)])
def test_the_bound_of_the_evidence_by_a_grid(hits, optimum):
    """The likeliest law within t of q, found among all laws with masses of n/200; the evidence is
    that of two priors, and with drafts half of it that of the excess.
    """
    mass, counts, steps = np.array([0.5, 0.3, 0.2]), np.array([25, 30, 45]), 200
    pairs = [(a, b, steps - a - b) for a in range(steps + 1) for b in range(steps + 1 - a)]
    laws = np.array(pairs) / steps
    with np.errstate(divide="ignore", invalid="ignore"):
        likelihood = np.nan_to_num(np.log(laws) @ counts, nan=-np.inf)
    away = 0.5 * np.abs(laws - mass).sum(axis=1)
    flat = dirichlet_multinomial(np.full(3, 0.5), 100).logpmf(counts)
    flat -= multinomial(100, mass).logpmf(counts) - counts @ np.log(mass)
    known = np.logaddexp(flat, log_evidence(counts, mass) + counts @ np.log(mass)) - math.log(2)

    def evidence(level):
        within = known - likelihood[away <= level + 1e-9].max()
        beyond = log_excess_evidence(hits, 100, min(1.0, optimum + level))
        return float(np.logaddexp(within, beyond)) - math.log(2)

    found = variation_at_least(counts, mass, uncertainty=0.05, hits=hits, optimum=optimum)
    assert evidence(found - 0.01) > math.log(20) > evidence(found + 0.01)
    assert 0.02 < found < 0.25


def test_cells_hold_everything_once():
    rng = np.random.default_rng(8)
    draft, target = rng.dirichlet(np.full(1_000, 0.1)), rng.dirichlet(np.full(1_000, 0.1))
    target[:300] = 0.0
    target /= target.sum()
    cells = pool(draft, target, 64)
    assert cells.shape == (1_000,)
    assert len(np.unique(cells)) == cells.max() + 1 <= 64
    assert np.array_equal(cells == 0, target == 0)
    ratios = [(target / draft)[cells == cell] for cell in range(1, cells.max() + 1)]
    assert all(low.max() <= high.min() for low, high in itertools.pairwise(ratios))
    assert np.array_equal(pool(draft[:5], target[:5], 64), np.arange(5))


PLAN = {"mass": [0.5, 0.5], "detect": 0.1, "false_alarm": 1e-3, "missed": 1e-2}
SEEDED = {"target": [0.5, 0.5], "served": [0.5, 0.5]}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (PLAN | {"mass": [0.5, 0.6]}, "mass must sum to 1"),
        (PLAN | {"mass": [[0.5, 0.5]]}, r"one distribution \(V,\); mass has shape \(1, 2\)"),
        (PLAN | {"detect": 0.0}, r"detect must lie in \(0, 1\]"),
        (PLAN | {"false_alarm": 0.0}, r"false_alarm must lie in \(0, 1\]"),
        (PLAN | {"missed": 2.0}, r"missed must lie in \(0, 1\]"),
        (SEEDED | {"served": [0.5, 0.6]}, "served must sum to 1"),
        (SEEDED | {"served": [[0.5, 0.5]]}, r"contexts; their shapes are \(2,\) and \(1, 2\)"),
        (SEEDED | {"missed": 0.0}, r"missed must lie in \(0, 1\]"),
        (SEEDED | {"tolerance": -0.1}, r"tolerance must lie in \[0, 700\]"),
    ],
)
def test_plans_that_cannot_be_made(arguments, said):
    with pytest.raises(otm.errors.OtmError, match=said):
        (tokens_to_mismatch if "served" in arguments else samples_needed)(**arguments)


def test_the_spread_sees_what_is_left_beside_a_mass_of_one():
    """1 − 1 is 0, but √1e-17 = 3.2e-9 is not, twice."""
    assert spread(np.array([1e-17, 1.0])) == pytest.approx(math.sqrt(1e-17), rel=1e-12)


def test_a_limit_of_noise_by_hand_and_on_a_grid():
    """Of four values the second largest, 4, and 2/(5 · .05) − 1 = 7 times the excess, 3, of the
    largest over it; on a grid of step 1 more, and half a step more of excess.
    """
    assert noise_limit(np.array([1.0, 2.0, 4.0, 7.0]), level=0.05, resolution=0.0) == 25.0
    grid = np.repeat([1.0, 2.0, 3.0], [9, 4, 3])  # k = 4: U = 2, excesses 1, 1, 1, 0
    factor = (5 / (17 * 1e-9)) ** 0.25 - 1
    assert noise_limit(grid, level=1e-9, resolution=0.0) == pytest.approx(3 + factor * 5)
    assert noise_limit(grid, level=1e-9, resolution=2.0) is None


@pytest.mark.parametrize("noise", ["exponential", "normal", "uniform"])
def test_a_limit_of_noise_is_exceeded_as_rarely_as_it_says(noise):
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


def mismatches(q, served, noise, tolerance):
    """Whether the sampler's token is behind the auditor's by more than a tolerance, by noise."""
    own, drawn = np.log(q) + noise, np.log(served) + noise
    winner = drawn.argmax(axis=1)[:, None]
    return own.max(axis=1) - np.take_along_axis(own, winner, axis=1)[:, 0] > tolerance


@pytest.mark.parametrize("tolerance", [0.0, 0.1, 0.4])
def test_mismatches_on_shared_noise_come_as_often_as_stated(tolerance):
    rng, runs = np.random.default_rng(9), 200_000
    q, served = rng.dirichlet(np.ones(6)), rng.dirichlet(np.ones(6))
    # Rounding n up hides 1/n of the probability, here a thousandth or less.
    n = tokens_to_mismatch(target=q, served=served, missed=1e-300, tolerance=tolerance)
    off = -math.expm1(math.log(1e-300) / n)
    found = int(mismatches(q, served, rng.gumbel(size=(runs, 6)), tolerance).sum())
    assert binom.cdf(found, runs, off * (1 - 1 / n)) > SUITE_FALSE_ALARM
    assert binom.sf(found - 1, runs, off * (1 + 2 / n)) > SUITE_FALSE_ALARM


def test_tokens_to_a_mismatch_by_hand():
    """A token without mass settles it, and a draft raised by a margin mismatches as often as the
    law is off.
    """
    certain, other = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    assert tokens_to_mismatch(target=certain, served=other, tolerance=700.0) == 1.0
    tiny = np.array([1.0, 1e-20])  # 1 − h = 2e-20, and 4e-40 < 1e-30 < 2e-20
    assert tokens_to_mismatch(target=tiny, served=tiny[::-1], missed=1e-30) == 2.0
    half, ten = np.array([0.5, 0.5]), math.ceil(math.log2(1000))
    assert tokens_to_mismatch(target=certain, served=half) == ten
    contexts = np.stack([certain, certain]), np.stack([certain, other])  # one of two is off
    assert tokens_to_mismatch(target=contexts[0], served=contexts[1]) == ten
    q, margin = np.array([0.2, 0.5, 0.3]), 0.18
    raised = otm.from_logits(np.log(q) + np.array([margin, 0.0, 0.0]))
    n = tokens_to_mismatch(target=q, served=raised)
    assert n == math.ceil(math.log(1e-3) / math.log(1 - 0.5 * np.abs(raised - q).sum()))
    assert tokens_to_mismatch(target=q, served=raised, tolerance=margin) == math.inf


def test_a_bound_where_what_never_came_out_is_a_half_but_for_rounding():
    """The cells without counts have less than 1/2 in one order of addition, and more in another."""
    mass = np.asarray([3, 1, 4, 3, 2, 2, 2, 2, 1]) / 20
    seen = np.asarray([0, 6, 36, 10, 0, 18, 0, 0, 0])
    assert mass[seen == 0].sum() < 0.5 < np.where(seen == 0, mass, 0.0).sum()
    bound = variation_at_least(seen, mass, uncertainty=0.05)
    apart = mass + 1e-9 * np.asarray([-1, 1, 0, 0, 0, 0, 0, 0, 0])
    assert bound == pytest.approx(variation_at_least(seen, apart, uncertainty=0.05), abs=1e-5)
    assert 0.2 < bound < 0.5 * np.abs(seen / seen.sum() - mass).sum()
