"""Hypothesis strategies: distributions with zeros, ties, point masses and tiny masses; pairs that
are equal or disjoint.

A strategy is checked by Hypothesis when it is first drawn from, which takes longer than a draw: so
strategies within others are made once.
"""

from __future__ import annotations

import functools

import numpy as np
from hypothesis import strategies as st

import otm

TINY = (1e-300, 1e-30, 1e-17)
RELATIONS = ("unrelated",) * 4 + ("equal", "nearly equal", "disjoint")


def _normalised(weights: list[float]) -> np.ndarray:
    array = np.asarray(weights, dtype=np.float64)
    return array / array.sum()


@functools.cache
def smooth(num_tokens: int) -> st.SearchStrategy[np.ndarray]:
    """Positive masses without structure."""
    weight = st.floats(min_value=1e-3, max_value=1.0, allow_nan=False)
    return st.lists(weight, min_size=num_tokens, max_size=num_tokens).map(_normalised)


@functools.cache
def with_zeros_and_ties(num_tokens: int) -> st.SearchStrategy[np.ndarray]:
    """Small integer weights: ties are the rule, zeros are common."""
    weights = st.lists(st.integers(0, 4), min_size=num_tokens, max_size=num_tokens)
    return weights.filter(any).map(lambda w: _normalised([float(x) for x in w]))


@functools.cache
def point_masses(num_tokens: int) -> st.SearchStrategy[np.ndarray]:
    """All mass on one token."""
    return st.integers(0, num_tokens - 1).map(lambda i: np.eye(num_tokens)[i])


@functools.cache
@st.composite
def with_tiny_masses(draw: st.DrawFn, num_tokens: int) -> np.ndarray:
    """Some masses of 1e-300, 1e-30 or 1e-17 beside usual masses."""
    mass = draw(with_zeros_and_ties(num_tokens)).copy()
    for i in range(num_tokens):
        if mass[i] == 0.0 and draw(st.booleans()):
            mass[i] = draw(st.sampled_from(TINY))
    return mass / mass.sum()


@functools.cache
def distributions(num_tokens: int) -> st.SearchStrategy[np.ndarray]:
    """Any distribution on V tokens."""
    return st.one_of(
        smooth(num_tokens),
        with_zeros_and_ties(num_tokens),
        point_masses(num_tokens),
        with_tiny_masses(num_tokens),
    )


@functools.cache
@st.composite
def pairs(
    draw: st.DrawFn, *, min_tokens: int = 1, max_tokens: int = 5
) -> tuple[np.ndarray, np.ndarray]:
    """(draft, target) on one vocabulary: unrelated, equal, nearly equal, or with
    disjoint supports.
    """
    num_tokens = draw(st.integers(min_tokens, max_tokens))
    draft = draw(distributions(num_tokens))
    relation = draw(st.sampled_from(RELATIONS))
    if relation == "equal":
        return draft, draft.copy()
    target = draw(distributions(num_tokens))
    if relation == "nearly equal":
        size = draw(st.sampled_from((1e-15, 1e-9, 1e-4)))
        return draft, _normalised(list((1 - size) * draft + size * target))
    if relation == "disjoint" and num_tokens > 1:
        cut = draw(st.integers(1, num_tokens - 1))
        left, right = draw(distributions(cut)), draw(distributions(num_tokens - cut))
        return np.concatenate([left, np.zeros(num_tokens - cut)]), np.concatenate(
            [np.zeros(cut), right]
        )
    return draft, target


@st.composite
def iid_problems(draw: st.DrawFn, *, max_tokens: int = 5, max_k: int = 3) -> otm.Problem:
    """A small problem with i.i.d. drafts."""
    draft, target = draw(pairs(max_tokens=max_tokens))
    return otm.Problem(draft=draft, target=target, law=otm.IID(draw(st.integers(1, max_k))))
