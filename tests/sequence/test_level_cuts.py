"""Level cuts: above the best step, equal to the one-step optimum on one level, and right as often
as they say.
"""

from __future__ import annotations

import numpy as np
import pytest

import otm
from otm.sequence import DraftSelection, best_step, level_cut_upper, sequence_law
from otm.sequence.level_cuts import conjugate
from tests.sequence.toys import smooth_models


def bound(
    draft: otm.sequence.LanguageModel, target: otm.sequence.LanguageModel, k: int, length: int
) -> float:
    """The sum of the one-step optima of the laws of whole levels, exactly."""
    levels = [
        [sequence_law(model, [], n).reshape(-1) for model in (draft, target)]
        for n in range(1, length + 1)
    ]
    return 1 + sum(
        float(otm.optimal_acceptance(otm.Problem(draft=p, target=q, law=otm.IID(k))))
        for p, q in levels
    )


@pytest.mark.parametrize("seed", range(5))
def test_it_bounds_the_best_step(seed: int) -> None:
    draft, target = smooth_models(3, 2, seed)
    k = 1 + seed % 3
    exact = bound(draft, target, k, 2)
    assert best_step(DraftSelection(k, 2), draft=draft, target=target, context=[]).lower <= exact
    inside = 0
    for trial in range(20):
        rng = np.random.default_rng([seed, trial])
        found = level_cut_upper(
            draft=draft,
            target=target,
            context=[],
            num_drafts=k,
            length=2,
            samples=300,
            rng=rng,
            confidence=0.9,
        )
        inside += exact <= found.tokens.high
        assert (
            found.tokens.value <= found.tokens.high
            and found.tokens.samples == 200
            and len(found.slopes) == 2
        )
    # Pr(Binomial(20, .9) < 17) = .13, and the bound is wider than it need be: 20 of 20 here
    assert inside >= 17
    assert found.tokens.value == pytest.approx(exact, abs=0.3)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_conjugate(k: int) -> None:
    slopes = np.linspace(0.0, k, 7)
    x = np.linspace(0.0, 1.0, 20001)
    expected = (1 - (1 - x) ** k - slopes[:, None] * x).max(axis=1)
    np.testing.assert_allclose(conjugate(slopes, k), expected, atol=1e-7)


def test_wrong_counts_are_refused() -> None:
    draft, target = smooth_models(2, 1, 0)
    for wrong in ({"samples": 2}, {"confidence": 1.0}, {"num_drafts": 0}):
        asked = {"num_drafts": 2, "length": 1, "samples": 9, "confidence": 0.9} | wrong
        with pytest.raises(otm.errors.InvalidParameter):
            level_cut_upper(
                draft=draft, target=target, context=[], rng=np.random.default_rng(0), **asked
            )


def test_no_mean_above_what_a_step_can_yield() -> None:
    """Eight sequences accept nearly all, and a sample of two paths then says more than all about
    every other time.
    """
    for seed in range(12):
        draft, target = smooth_models(3, 3, seed)
        rng = np.random.default_rng(seed)
        found = level_cut_upper(
            draft=draft, target=target, context=[], num_drafts=8, length=3, samples=3, rng=rng
        )
        assert found.tokens.value <= found.tokens.high <= 4.0
