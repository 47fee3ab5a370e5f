"""Scores are enough: the best step is attained, without a loss, by sequences that each draw an end
by themselves.
"""

from collections import Counter

import numpy as np
import pytest

import otm
from otm.sequence import (
    DraftSelection,
    best_step,
    completed_law,
    outcomes,
    sequence_law,
)
from otm.sequence.exact_laws import law_of_outcomes
from tests.sequence.best_verification import BestVerification
from tests.sequence.toys import asked, random_models, smooth_models


def law_of(verification):
    found = Counter()
    for one, mass in outcomes(lambda randomness: verification.step((), randomness)):
        found[one.tokens, one.accepted] += mass
    return law_of_outcomes(found)


@pytest.mark.parametrize(
    ("size", "length", "k"), [(2, 2, 2), (3, 2, 2), (2, 3, 2), (2, 2, 3), (3, 1, 3), (3, 2, 1)]
)
@pytest.mark.parametrize("regular", [True, False])
def test_it_attains_the_best_step(size, length, k, regular):
    pair = (
        smooth_models(size, length, k)
        if regular
        else random_models(size, length, np.random.default_rng([size, length, k]))
    )
    found = law_of(BestVerification(k, length, *pair))
    best = best_step(DraftSelection(k, length), **asked(pair))
    assert found.block_efficiency == pytest.approx(best.value, abs=1e-9)
    completed = completed_law(found, target=pair[1], context=[], length=length + 1)
    assert np.abs(completed - sequence_law(pair[1], [], length + 1)).sum() <= 2e-12


def test_laws_of_ends_that_cannot_be_found_are_an_error(monkeypatch):
    monkeypatch.setattr("tests.sequence.best_verification._ROUNDS", 1)
    with pytest.raises(otm.errors.SolverFailure, match="Take a smaller tree"):
        law_of(BestVerification(3, 2, *smooth_models(3, 2, 8)))
