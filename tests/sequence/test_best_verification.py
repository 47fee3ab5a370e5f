"""Scores are enough: the best step is attained, without a loss, by sequences that each draw an end
by themselves.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import otm
from otm.sequence import (
    BestVerification,
    DraftSelection,
    StepLaw,
    best_step,
    completed_law,
    outcomes,
    sequence_law,
)
from otm.sequence.exact_laws import law_of_outcomes
from tests.sequence.toys import random_models, smooth_models


def law_of(verification: BestVerification) -> StepLaw:
    found: dict[tuple[tuple[int, ...], int], float] = {}
    for one, mass in outcomes(lambda randomness: verification.step((), randomness)):
        found[one.tokens, one.accepted] = found.get((one.tokens, one.accepted), 0.0) + mass
    return law_of_outcomes(found)


@pytest.mark.parametrize(
    "size, length, k", [(2, 2, 2), (3, 2, 2), (2, 3, 2), (2, 2, 3), (3, 1, 3), (3, 2, 1)]
)
@pytest.mark.parametrize("regular", [True, False])
def test_it_attains_the_best_step(size: int, length: int, k: int, regular: bool) -> None:
    models = (
        smooth_models(size, length, k)
        if regular
        else random_models(size, length, np.random.default_rng([size, length, k]))
    )
    decoder = BestVerification(k, length, *models)
    draft, target = models
    found = law_of(decoder)
    best = best_step(DraftSelection(k, length), draft=draft, target=target, context=[])
    assert found.block_efficiency == pytest.approx(best.value, abs=1e-9)
    completed = completed_law(found, target=target, context=[], length=length + 1)
    assert np.abs(completed - sequence_law(target, [], length + 1)).sum() <= 2e-12


def test_laws_of_ends_that_cannot_be_found_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = sys.modules["otm.sequence.best_verification"]
    monkeypatch.setattr(module, "_ROUNDS", 1)
    draft, target = smooth_models(3, 2, 8)
    with pytest.raises(otm.errors.SolverFailure, match="Take a smaller tree"):
        law_of(BestVerification(3, 2, draft, target))
