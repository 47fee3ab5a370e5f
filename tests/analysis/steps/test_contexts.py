"""Contexts of a text: which they are, and which third by the entropy of what follows."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.errors import AnalysisError
from analysis.steps.contexts import third_by_entropy, windows, written_entropy
from otm.sequence import MarkovModel, SharedNoise


def test_windows_do_not_overlap() -> None:
    found = windows(range(100), 7, 50, np.random.default_rng(0))
    assert len(found) == 14
    assert len({token for window in found for token in window}) == 98


def test_contexts_by_the_entropy_of_what_follows() -> None:
    """A chain that stays in 0, leaves 1 by a coin, and draws from four tokens after 2 and 3."""
    target = MarkovModel(
        [[1.0, 0, 0, 0], [0.5, 0.5, 0, 0], [0.25, 0.25, 0.25, 0.25], [0.25, 0.25, 0.25, 0.25]]
    )
    contexts = [(2,), (0,), (1,), (0,), (3,), (1,)]
    rng = np.random.default_rng(0)
    assert third_by_entropy(target, contexts, "low", 1, rng) == [(0,), (0,)]
    assert third_by_entropy(target, contexts, "high", 1, rng) == [(2,), (3,)]
    with pytest.raises(AnalysisError, match="low, middle, high; got 'hot'"):
        third_by_entropy(target, contexts, "hot", 1, rng)
    noises = [SharedNoise(0), SharedNoise(1)]
    assert written_entropy(target, (1,), noises, 1) == pytest.approx(np.log(2))
