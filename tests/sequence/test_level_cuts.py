"""Level cuts: above the best step, equal to the one-step optimum on one level, and right as often
as they say.
"""

import numpy as np
import pytest

import otm
from otm.sequence import (
    DraftSelection,
    ZerothOrder,
    best_step,
    level_cut_upper,
    sequence_law,
)
from otm.sequence.level_cuts import conjugate
from tests.sequence.toys import asked, smooth_models


def bound(draft, target, k, length):
    """The sum of the one-step optima of the laws of whole levels, exactly."""
    total = 1.0
    for n in range(1, length + 1):
        p, q = (sequence_law(model, [], n).reshape(-1) for model in (draft, target))
        total += float(otm.optimal_acceptance(otm.Problem(draft=p, target=q, law=otm.IID(k))))
    return total


@pytest.mark.parametrize("seed", range(2))
def test_it_bounds_the_best_step(seed):
    pair, k = smooth_models(3, 2, seed), 2 + seed
    exact = bound(*pair, k, 2)
    assert best_step(DraftSelection(k, 2), **asked(pair)).lower <= exact
    wanted = asked(pair) | {"num_drafts": k, "length": 2, "samples": 150, "confidence": 0.9}
    found = [level_cut_upper(**wanted, rng=trial) for trial in range(10)]
    # Pr(Binomial(10, .9) < 7) = .013, and the bound is wider than it need be
    assert sum(exact <= one.tokens.high for one in found) >= 7
    assert all(one.tokens.value <= one.tokens.high for one in found)
    assert found[0].tokens.samples == 100 and len(found[0].slopes) == 2
    assert found[0].tokens.value == pytest.approx(exact, abs=0.3)


def test_samples_that_agree_leave_the_second_term_of_the_deviation():
    """min(q, λ p) sums to 1/2 on every path, with λ = 1: 7 λ ln(2/δ)/(3 (n − 1)) above 1 + 1/2."""
    models = asked((ZerothOrder([1.0, 0.0]), ZerothOrder([0.5, 0.5])))
    tokens = level_cut_upper(**models, num_drafts=1, length=1, samples=300, rng=0).tokens
    assert tokens.value == 1.5
    assert tokens.high - 1.5 == pytest.approx(7 * np.log(2 / 0.05) / (3 * 199), rel=1e-12)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_conjugate(k):
    slopes = np.linspace(0.0, k, 7)
    x = np.linspace(0.0, 1.0, 20001)
    expected = (1 - (1 - x) ** k - slopes[:, None] * x).max(axis=1)
    np.testing.assert_allclose(conjugate(slopes, k), expected, atol=1e-7)


def test_no_mean_above_what_a_step_can_yield():
    """Eight sequences accept nearly all, and a sample of two paths then says more than all about
    every other time.
    """
    for seed in range(12):
        models = asked(smooth_models(3, 3, seed))
        tokens = level_cut_upper(**models, num_drafts=8, length=3, samples=3, rng=seed).tokens
        assert tokens.value <= tokens.high <= 4.0


def test_on_one_level_it_is_the_optimum_whatever_is_drawn():
    """1 + 15/16 with two drafts; 64 slopes miss the best one by 1/64 at most."""
    pair = ZerothOrder([0.75, 0.25]), ZerothOrder([0.5, 0.5])
    found = level_cut_upper(**asked(pair), num_drafts=2, length=1, samples=3, rng=0)
    assert 0.0 <= found.tokens.value - 1.9375 <= 1e-3
