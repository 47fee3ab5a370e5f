"""Contexts of a text: which they are, and which third by the entropy of what follows."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.errors import AnalysisError
from analysis.steps.contexts import (
    along_texts,
    check_contexts,
    third_by_entropy,
    windows,
    written_entropy,
)
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


def test_contexts_along_texts_end_with_the_text() -> None:
    """A chain that counts up to 3, which ends the text: after (0,) and 2 tokens it is there."""
    target = MarkovModel(np.eye(4)[[1, 2, 3, 3]])
    found, texts = along_texts(
        target, [(0,), (2, 1)], count=4, apart=1, eos=3, rng=np.random.default_rng(0)
    )
    assert found == [(0,), (0, 1), (0, 1, 2), (2, 1), (2, 1, 2)]
    assert texts == [0, 0, 0, 1, 1]
    endless, _ = along_texts(
        target, [(0,)], count=3, apart=2, eos=None, rng=np.random.default_rng(0)
    )
    assert endless == [(0,), (0, 1, 2), (0, 1, 2, 3, 3)]


def test_contexts_of_too_few_texts_are_refused() -> None:
    assert check_contexts([(0,)] * 6) == list(range(6))
    assert check_contexts([(0,)] * 7, [0, 0, 1, 2, 3, 4, 5])[0] == 0
    with pytest.raises(AnalysisError, match="got 5"):
        check_contexts([(0,)] * 10, [0, 1, 2, 3, 4] * 2)
