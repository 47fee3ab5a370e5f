"""The best tree under limits by dynamic programming, for acceptance vectors in any order.

Where the acceptance vector increases somewhere, the most likely vertices need not form a tree: a
likely child comes with an unlikely elder sibling that must be drafted first. The dynamic program
pays for elder siblings. With G_l(n) the best expected number of accepted vertices of a subtree with
n vertices, its root (accepted) included, and at most l levels below the root,

    H_l(0, 1) = 1,      H_l(b, n) = max_{1≤y<n} H_l(b − 1, n − y) + A(b) G_{l−1}(y),
    G_l(n) = max_b H_l(b, n):

the b-th child receives y of the vertices. This is Sequoia's program with its table of b children
turned into a running maximum, and the oracle of `optimal_tree`, which is linear in N but for a
logarithm where it applies.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from otm._machine.arrays import Floats
from otm.errors import TooLarge
from otm.pmf import check_count
from otm.trees.optimal import OptimalTree, tree_acceptance
from otm.trees.shape import TreeShape
from otm.trees.vector import check_acceptance

MAX_OPERATIONS = 1_000_000_000
"""Largest number of comparisons, levels × widths × N²/2."""

_Choices = NDArray[np.int32]


def tree_program(
    acceptance: ArrayLike,
    *,
    num_nodes: int,
    max_depth: int | None = None,
    max_width: int | None = None,
) -> OptimalTree:
    """Find the tree of a budget with the most expected tokens, for acceptance in any order.

    Args:
        acceptance: A, probabilities `(k,)` of accepting the child of each rank, in any order.
        num_nodes: N ≥ 0, the budget of drafted tokens.
        max_depth: the largest number of drafts on a path; no limit if None.
        max_width: the largest number of children of a vertex; the length of A if None.

    Returns:
        OptimalTree, of the fewest vertices that reach the maximum, numbered level by level.

    Raises:
        InvalidDistribution: if A is no sub-distribution.
        InvalidParameter: on limits that are not integers ≥ 1.
        TooLarge: beyond a billion comparisons.

    Cost: O(levels · widths · N²) comparisons, in O(widths · N) array operations; levels = 1 without
        a limit on depth.
    Reference: Sequoia [Chen et al. 2024], section 3.1; docs/theory.md, "Sequences and trees".

    >>> tree_program([0.1, 0.8], num_nodes=2).shape.parents.tolist()
    [0, 0]
    """
    vector = check_acceptance(acceptance)
    budget = check_count(num_nodes, name="num_nodes", minimum=0)
    width = min(
        len(vector),
        budget if max_width is None else min(budget, check_count(max_width, name="max_width")),
    )
    # Without a limit a subtree of n vertices is the same problem at every level: one row serves
    # all.
    levels = 0 if max_depth is None else min(budget, check_count(max_depth, name="max_depth"))
    operations = (levels + 1) * width * budget * budget // 2
    if operations > MAX_OPERATIONS:
        raise TooLarge(
            f"The program may take {MAX_OPERATIONS:.0e} comparisons; (levels, width, N) = "
            f"({levels}, {width}, {budget}) needs {operations:.1e}. Lower the limits; optimal_tree "
            "has none if A is sorted."
        )
    below = np.maximum(np.arange(levels + 1) - 1, 0) if levels else np.zeros(1, dtype=np.int64)
    value, shares, branches = _solve(vector[:width], budget + 1, below, capped=bool(levels))
    # The first maximum: sums that differ by rounding alone are told apart by the number of
    # vertices.
    best = value[-1]
    size = int(np.argmax(best >= best.max() * (1 - 8 * np.finfo(np.float64).eps)))
    return tree_acceptance(vector, shape=_trace(size, shares, branches, below))


def _solve(
    acceptance: Floats, size: int, below: NDArray[np.int64], *, capped: bool
) -> tuple[Floats, _Choices, _Choices]:
    """Return G `(levels, size + 1)`, the last child's share y for every b, and the best b."""
    # Row l of G draws on row below[l]; row 0 of a capped program has no children. Sizes count the
    # subtree's root.
    rows, width = len(below), len(acceptance)
    value = np.full((rows, size + 1), -math.inf)
    partial = np.full((width + 1, rows, size + 1), -math.inf)
    shares = np.zeros((width + 1, rows, size + 1), dtype=np.int32)
    branches = np.zeros((rows, size + 1), dtype=np.int32)
    value[:, 1] = partial[0, :, 1] = 1.0
    first = 1 if capped else 0
    for n in range(2, size + 1):
        # G of the last child, y = 1..n−1; −∞ where no such subtree exists.
        share = value[below[first:], 1:n]
        for b in range(1, min(width, n - 1) + 1):
            gain = np.where(share > 0, acceptance[b - 1] * np.maximum(share, 0.0), -math.inf)
            candidates = partial[b - 1, first:, n - 1 : 0 : -1] + gain
            picked = candidates.argmax(axis=1)
            partial[b, first:, n] = np.take_along_axis(candidates, picked[:, None], axis=1)[:, 0]
            shares[b, first:, n] = picked + 1
        branches[:, n] = partial[:, :, n].argmax(axis=0)
        value[:, n] = partial[:, :, n].max(axis=0)
    return value, shares, branches


def _trace(size: int, shares: _Choices, branches: _Choices, below: NDArray[np.int64]) -> TreeShape:
    """Follow the choices from the whole tree down, breadth first."""
    parents: list[int] = []
    queue = [(len(below) - 1, size)]
    for vertex, (row, n) in enumerate(queue):  # grows while it is read
        counts = []
        for b in range(int(branches[row, n]), 0, -1):
            counts.append(int(shares[b, row, n]))
            n -= counts[-1]
        queue.extend((int(below[row]), count) for count in reversed(counts))
        parents.extend([vertex] * len(counts))
    return TreeShape(np.asarray(parents, dtype=np.int64))
