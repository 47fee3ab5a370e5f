"""Level cuts: above the best step, equal to the one-step optimum on one level, and right as often
as they say.
"""

from __future__ import annotations

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


@pytest.mark.parametrize("seed", range(2))
def test_it_bounds_the_best_step(seed: int) -> None:
    draft, target = smooth_models(3, 2, seed)
    models = {"draft": draft, "target": target, "context": []}
    k = 2 + seed
    exact = bound(draft, target, k, 2)
    assert best_step(DraftSelection(k, 2), **models).lower <= exact
    asked = models | {"num_drafts": k, "length": 2, "samples": 150, "confidence": 0.9}
    found = [level_cut_upper(**asked, rng=np.random.default_rng(trial)) for trial in range(10)]
    # Pr(Binomial(10, .9) < 7) = .013, and the bound is wider than it need be
    assert sum(exact <= one.tokens.high for one in found) >= 7
    for one in found:
        assert one.tokens.value <= one.tokens.high
        assert one.tokens.samples == 100 and len(one.slopes) == 2
    assert found[0].tokens.value == pytest.approx(exact, abs=0.3)


def test_samples_that_agree_leave_the_second_term_of_the_deviation() -> None:
    """min(q, λ p) sums to 1/2 on every path, with λ = 1: 7 λ ln(2/δ)/(3 (n − 1)) above 1 + 1/2."""
    models = {"draft": ZerothOrder([1.0, 0.0]), "target": ZerothOrder([0.5, 0.5]), "context": []}
    asked = {"num_drafts": 1, "length": 1, "samples": 300, "rng": np.random.default_rng(0)}
    tokens = level_cut_upper(**models, **asked).tokens
    assert tokens.value == 1.5
    assert tokens.high - 1.5 == pytest.approx(7 * np.log(2 / 0.05) / (3 * 199), rel=1e-12)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_conjugate(k: int) -> None:
    slopes = np.linspace(0.0, k, 7)
    x = np.linspace(0.0, 1.0, 20001)
    expected = (1 - (1 - x) ** k - slopes[:, None] * x).max(axis=1)
    np.testing.assert_allclose(conjugate(slopes, k), expected, atol=1e-7)


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
