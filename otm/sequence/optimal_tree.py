"""The optimal drafting tree: spend a budget of N drafted tokens where they are most likely to be accepted.

A vertex is accepted with the product of A along its path, so the expected number of tokens per target call is 1 + Σ over drafted
vertices. A vertex is never more likely than its parent, nor, if A does not increase, than its elder sibling; so the N most likely
vertices form a tree without gaps, and no tree of N vertices has a larger sum. That is Tunstall's construction: expand the most
likely leaf. Limits on depth and width keep the argument, because the tree of all admissible vertices is closed under taking parents
and elder siblings.

*One queue per rank.* Vertices leave the priority queue in descending order of acceptance. If A is a vector, the candidates of rank i
are the vertices popped so far, times A(i): they too come in descending order, a first-in first-out queue for each rank. The heap
holds one entry per rank, the head of its queue, and a million vertices cost a million replacements in a heap of a few entries.

Since the vertices are numbered in the order in which they leave the queue, the first n of them are the optimal tree of n vertices:
one construction serves every budget.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from otm.errors import InvalidDistribution
from otm.pmf import check_count
from otm.sequence.acceptance_vector import PathAcceptance, check_acceptance
from otm.sequence.shape import TreeShape

_SUM_TOLERANCE = 1e-9


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class OptimalTree:
    """A tree and how likely each of its vertices is to be accepted.

    Attributes:
        shape: the tree; if it came from `optimal_tree`, its first n vertices are the optimal tree of n vertices.
        acceptance: `(n + 1,)`, the probability that each vertex is accepted; 1 at the root.
    """

    shape: TreeShape
    acceptance: NDArray[np.float64]

    @property
    def num_nodes(self) -> int:
        """Number of drafted vertices."""
        return self.shape.num_nodes

    @functools.cached_property
    def expected_tokens(self) -> float:
        """Expected tokens per target call, 1 + Σ acceptance of the drafted vertices."""
        return math.fsum(self.acceptance)

    @property
    def curve(self) -> NDArray[np.float64]:
        """Expected tokens per target call of the first 0, 1, …, n vertices, `(n + 1,)`."""
        return np.cumsum(self.acceptance)

    def first(self, num_nodes: int) -> OptimalTree:
        """Return the tree of the first `num_nodes` vertices, or all of them if there are fewer."""
        count = check_count(num_nodes, name="num_nodes", minimum=0)
        return OptimalTree(TreeShape(self.shape.parents[:count]), self.acceptance[: count + 1])

    def __repr__(self) -> str:
        return f"OptimalTree({self.shape!r}, expected_tokens={self.expected_tokens:.6g})"


def optimal_tree(
    acceptance: ArrayLike | PathAcceptance, *, num_nodes: int, max_depth: int | None = None, max_width: int | None = None
) -> OptimalTree:
    """Build the tree of at most `num_nodes` drafted vertices with the most expected tokens per target call.

    E[tokens] = 1 + Σ_v Π A along the path to v, maximised over all ordered trees within the limits.

    Args:
        acceptance: A, probabilities `(k,)` of accepting the child of each rank, non-increasing; or a function of a rank path (root's
            first child: (0,)) that gives the probability of accepting that vertex given that its parent is accepted, in [0, 1],
            non-increasing from one sibling to the next, Σ ≤ 1 over siblings: acceptance of any Markov order.
        num_nodes: N ≥ 0, the budget of drafted tokens.
        max_depth: the largest number of drafts on a path; no limit if None.
        max_width: the largest number of children of a vertex; the length of a vector if None.

    Returns:
        OptimalTree, its vertices in descending order of acceptance (ties: lower rank first). Vertices that cannot be accepted are
        left out, so it may have fewer than N.

    Raises:
        InvalidDistribution: if A is no sub-distribution, or increases from one rank to the next: the greedy choice would then leave
            out siblings that must be drafted first. `tree_program` solves that case.
        InvalidParameter: on limits that are not integers ≥ 1.

    Cost: O(N log k) for a vector, about a second for a million vertices; O(N (log N + depth)) for a function, called at most twice
    per vertex. Accuracy: a product of at most depth factors, a sum of positive terms.
    Reference: ERSD [Kobus & Gündüz 2025], Algorithm 3; Tunstall 1968; docs/theory.md, "Sequences and trees".

    >>> tree = optimal_tree([0.6, 0.25, 0.1, 0.05], num_nodes=10)
    >>> tree.shape.parents.tolist(), round(tree.expected_tokens, 6)
    ([0, 1, 0, 2, 1, 3, 4, 2, 5, 3], 3.1356)
    """
    budget = check_count(num_nodes, name="num_nodes", minimum=0)
    depth = budget if max_depth is None else min(budget, check_count(max_depth, name="max_depth"))
    width = budget if max_width is None else min(budget, check_count(max_width, name="max_width"))
    if callable(acceptance):
        weights, parents = _grow_by_path(acceptance, budget, depth, width)
    else:
        vector = check_acceptance(acceptance)
        require_sorted(vector)
        weights, parents = _grow(vector[:width].tolist(), budget, depth)
    mass = np.asarray(weights, dtype=np.float64)
    mass.setflags(write=False)
    return OptimalTree(TreeShape(np.asarray(parents, dtype=np.int64)), mass)


def tree_acceptance(acceptance: ArrayLike | PathAcceptance, *, shape: TreeShape) -> OptimalTree:
    """Return how likely each vertex of a given tree is to be accepted, whatever the tree.

    Args:
        acceptance: a vector `(k,)`, in any order, or a function of a rank path, as for `optimal_tree`; ranks beyond the vector have
            acceptance 0.
        shape: the tree.

    Returns:
        OptimalTree with this shape, whose `expected_tokens` is 1 + Σ acceptance; optimal only if the shape is.

    Raises:
        InvalidDistribution: if A is no sub-distribution.
        TooLarge: for a function, if the tree's paths are too many to spell out.

    Cost: O(n log depth) for a vector, n calls of a function.

    >>> tree_acceptance([0.5, 0.25], shape=TreeShape.chain(2)).acceptance.tolist()
    [1.0, 0.5, 0.25]
    """
    if callable(acceptance):
        weights = np.ones(shape.num_nodes + 1)
        for vertex, path in enumerate(shape.paths()[1:], start=1):
            weights[vertex] = weights[shape.parents[vertex - 1]] * _checked_step(acceptance, path)
    else:
        vector = np.append(check_acceptance(acceptance), 0.0)
        weights = vector[np.minimum(shape.ranks, len(vector) - 1)]
        weights[0] = 1.0
        ancestor = np.concatenate([[0], shape.parents])
        while ancestor.any():  # twice as far up every round
            weights *= weights[ancestor]
            ancestor = ancestor[ancestor]
    weights.setflags(write=False)
    return OptimalTree(shape, weights)


def require_sorted(acceptance: NDArray[np.float64]) -> None:
    """Raise `InvalidDistribution` if an acceptance vector increases from one rank to the next."""
    rises = np.flatnonzero(np.diff(acceptance) > 0)
    if rises.size:
        i = int(rises[0])
        raise InvalidDistribution(
            f"The greedy tree needs a non-increasing acceptance vector; rank {i + 1} has {acceptance[i + 1]:.6g} after "
            f"{acceptance[i]:.6g}. Use otm.sequence.tree_program, which allows any order."
        )


def _grow(acceptance: list[float], num_nodes: int, max_depth: int) -> tuple[list[float], list[int]]:
    """Return the acceptance (root first) and the parents of the vertices in the order in which they leave the queues.

    `inner` lists the vertices that may have children, in that order; queue r has its head at `inner[cursor[r]]`. The heads move in
    step: cursor[r + 1] ≤ cursor[r], because A does not increase and ties go to the lower rank. Hence an elder sibling always leaves
    first, and rank r + 1 need not be opened before rank r has been popped once.
    """
    weights, parents, levels, inner = [1.0], list[int](), [0], [0]
    cursor = [0]
    heap = [(-acceptance[0], 0)] if num_nodes else []
    waiting: list[int] = []  # ranks whose queue is empty until another inner vertex appears
    while heap and len(parents) < num_nodes:
        key, rank = heap[0]
        if not key:
            break  # whatever is left is never accepted
        position = cursor[rank]
        parent = inner[position]
        parents.append(parent)
        weights.append(-key)
        level = levels[parent] + 1
        levels.append(level)
        if level < max_depth:
            inner.append(len(parents))
            while waiting:
                other = waiting.pop()
                heapq.heappush(heap, (key * acceptance[other], other))
        position += 1
        cursor[rank] = position
        if position < len(inner):
            heapq.heapreplace(heap, (-weights[inner[position]] * acceptance[rank], rank))
        else:
            heapq.heappop(heap)
            waiting.append(rank)
        if rank + 1 == len(cursor) < len(acceptance):
            cursor.append(0)
            heapq.heappush(heap, (-acceptance[rank + 1], rank + 1))
    return weights, parents


def _grow_by_path(acceptance: PathAcceptance, num_nodes: int, max_depth: int, max_width: int) -> tuple[list[float], list[int]]:
    """Do the same for acceptance that depends on the path: a heap of candidates, first child and next sibling pushed when popped."""
    weights, parents = [1.0], list[int]()
    # (−acceptance, order of pushing, parent, path, its step, the sum of steps over elder siblings)
    heap: list[tuple[float, int, int, tuple[int, ...], float, float]] = []
    pushed = 0

    def push(parent: int, path: tuple[int, ...], elder: float, elders: float) -> None:
        nonlocal pushed
        step = _checked_step(acceptance, path)
        if step > elder or elders + step > 1 + _SUM_TOLERANCE:
            raise InvalidDistribution(
                f"Acceptance must not increase from one sibling to the next, nor sum to more than 1; path {path} has {step:.6g} after "
                f"{elder:.6g}, {elders + step:.6g} together. Order the drafts by acceptance."
            )
        if weight := weights[parent] * step:
            heapq.heappush(heap, (-weight, pushed, parent, path, step, elders + step))
            pushed += 1

    if num_nodes:
        push(0, (0,), 1.0, 0.0)
    while heap and len(parents) < num_nodes:
        key, _, parent, path, step, elders = heapq.heappop(heap)
        parents.append(parent)
        weights.append(-key)
        if len(path) < max_depth:
            push(len(parents), (*path, 0), 1.0, 0.0)
        if path[-1] + 1 < max_width:
            push(parent, (*path[:-1], path[-1] + 1), step, elders)
    return weights, parents


def _checked_step(acceptance: PathAcceptance, path: tuple[int, ...]) -> float:
    step = float(acceptance(path))
    if not 0 <= step <= 1:
        raise InvalidDistribution(f"Acceptance must lie in [0, 1] at every path; it is {step} at {path}. Return a probability.")
    return step
