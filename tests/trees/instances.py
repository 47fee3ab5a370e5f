"""Ordered trees, every one of a size, and acceptance by rank, for the tests of trees."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from otm.trees.shape import TreeShape

Tree = tuple[Any, ...]  # a vertex is the tuple of its children


@functools.cache
def forests(size: int) -> tuple[Tree, ...]:
    """Every ordered forest of `size` vertices: the children of a root; Catalan many."""
    if size == 0:
        return ((),)
    return tuple(
        (first, *rest)
        for inner in range(size)
        for first in forests(inner)
        for rest in forests(size - 1 - inner)
    )


def height(forest: Tree) -> int:
    return max((1 + height(child) for child in forest), default=0)


def breadth(forest: Tree) -> int:
    return max(len(forest), max((breadth(child) for child in forest), default=0))


def value(
    forest: Tree, step: Callable[[tuple[int, ...]], float], path: tuple[int, ...] = ()
) -> float:
    """Expected number of accepted vertices below a path, by the definition."""
    return sum(
        step((*path, i)) * (1 + value(child, step, (*path, i))) for i, child in enumerate(forest)
    )


@functools.cache
def trees_within(size: int, depth: int | None, width: int | None) -> tuple[Tree, ...]:
    """Every tree of at most `size` vertices within limits."""
    return tuple(
        forest
        for n in range(size + 1)
        for forest in forests(n)
        if height(forest) <= (depth or n) and breadth(forest) <= (width or n)
    )


def by_vector(acceptance: np.ndarray) -> Callable[[tuple[int, ...]], float]:
    padded = [*acceptance.tolist(), *(0.0,) * 8]
    return lambda path: padded[path[-1]]


weights = st.one_of(st.floats(0.01, 1.0), st.sampled_from([0.0, 0.25, 0.5, 1e-300]))


@st.composite
def vectors(draw: st.DrawFn, *, is_sorted: bool) -> np.ndarray:
    """A sub-distribution: zeros, ties and tiny entries included, with and without rejected mass."""
    raw = np.asarray(draw(st.lists(weights, min_size=1, max_size=5)))
    rejected = draw(st.sampled_from([0.0, 0.1, 1.0]))
    total = raw.sum() + rejected
    if total == 0:
        return np.zeros(len(raw))
    return np.sort(raw / total)[::-1].copy() if is_sorted else raw / total


@st.composite
def shapes(draw: st.DrawFn, max_nodes: int = 12) -> TreeShape:
    """Any ordered tree in any numbering in which parents come first."""
    size = draw(st.integers(0, max_nodes))
    return TreeShape([draw(st.integers(0, i)) for i in range(size)])
