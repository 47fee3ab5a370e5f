"""The optimal drafting tree: the N most likely vertices.

A vertex is accepted with the product of A along its path, so the expected number of tokens per
target call is 1 + Σ over drafted vertices. A vertex is never more likely than its parent, nor, if A
does not increase, than its elder sibling; so the N most likely vertices form a tree without gaps,
and no tree of N vertices has a larger sum. That is Tunstall's construction: expand the most likely
leaf. Limits on depth and width keep the argument, because the tree of all admissible vertices is
closed under taking parents and elder siblings.

Since the vertices are numbered in the order in which they leave the queue, the first n of them are
the optimal tree of n vertices: one construction serves every budget.

*One queue per rank.* Vertices leave the priority queue in descending order of acceptance. If A is a
vector, the candidates of rank i are the vertices popped so far, times A(i): they too come in
descending order, a first-in first-out queue for each rank. The heap holds one entry per rank, the
head of its queue, and a million vertices cost a million replacements in a heap of a few entries.
Acceptance that depends on the last m + 1 ranks (Markov of order m) needs one queue for each state
of m ranks and each rank (`_Growth`); if it depends on the whole path, every vertex is a state of
its own, and the plain heap of the textbook is leaner (`_grow_by_path`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import heapq
import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from otm._machine.arrays import Array, as_scalar_or_array, namespace, total
from otm.errors import InvalidDistribution
from otm.pmf import check_count, check_instance
from otm.trees.shape import TreeShape, affordable
from otm.trees.vector import PathAcceptance, check_acceptance, check_acceptances, refuse_order

_SUM_TOLERANCE = 1e-9


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class OptimalTree:
    """A tree with the acceptance probability of each vertex.

    Attributes:
        shape: the tree; if it came from `optimal_tree`, its first n vertices are the optimal tree
            of n vertices.
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
        """Return the tree of the first `num_nodes` vertices, or the whole tree if smaller."""
        count = check_count(num_nodes, name="num_nodes", minimum=0)
        return OptimalTree(TreeShape(self.shape.parents[:count]), self.acceptance[: count + 1])

    def __repr__(self) -> str:
        return f"OptimalTree({self.shape!r}, expected_tokens={self.expected_tokens:.6g})"


def optimal_tree(
    acceptance: ArrayLike | PathAcceptance,
    *,
    num_nodes: int,
    max_depth: int | None = None,
    max_width: int | None = None,
    order: int | None = None,
) -> OptimalTree:
    """Build the tree of a budget of vertices with the most expected tokens per target call.

    E[tokens] = 1 + Σ_v Π A along the path to v, maximised over all ordered trees within the limits.

    Args:
        acceptance: A, probabilities `(k,)` of accepting the child of each rank, non-increasing; or
            a function of a rank path (the root's first child: (0,)) that gives the probability of
            accepting that vertex given that its parent is accepted, in [0, 1], non-increasing from
            one sibling to the next, Σ ≤ 1 over siblings.
        num_nodes: N ≥ 0, the budget of drafted tokens.
        max_depth: the largest number of drafts on a path; no limit if None.
        max_width: the largest number of children of a vertex; no limit but the vector's length if
            None.
        order: for a function, the Markov order m of acceptance: it is asked once for each path of
            at most m + 1 ranks and stands for all longer paths that end in it. None if it depends
            on the whole path.

    Returns:
        OptimalTree, its vertices in descending order of acceptance (ties: lower rank first).
        Vertices that cannot be accepted are left out, so it may have fewer than N.

    Raises:
        InvalidDistribution: if A is no sub-distribution, or increases from one rank to the next:
            the greedy choice would then leave out siblings that must be drafted first.
            `tree_program` solves that case.
        InvalidParameter: if N or an order is no integer ≥ 0, another limit none ≥ 1, or an order is
            given for a vector, whose is 0.
        TooLarge: beyond fifty million vertices.

    Cost: O(N log k) for a vector, about two seconds for a million vertices; for a function O(N
        log(queues)), one queue per state and rank, two calls and O(depth + log N) per vertex if it
        depends on the whole path. Accuracy: a product of at most depth factors, a sum of positive
        terms.
    Reference: ERSD [Kobus & Gündüz 2025], Algorithm 3; Tunstall 1968; docs/theory.md, "Sequences
        and trees".

    >>> tree = optimal_tree([0.6, 0.25, 0.1, 0.05], num_nodes=10)
    >>> tree.shape.parents.tolist(), round(tree.expected_tokens, 6)
    ([0, 1, 0, 2, 3, 1, 4, 0, 5, 6], 3.1356)
    """
    budget = affordable(check_count(num_nodes, name="num_nodes", minimum=0))
    depth = budget if max_depth is None else min(budget, check_count(max_depth, name="max_depth"))
    width = budget if max_width is None else min(budget, check_count(max_width, name="max_width"))
    if callable(acceptance) and order is None:
        weights, parents = _grow_by_path(acceptance, budget, depth, width)
    else:
        if callable(acceptance):
            growth = _Growth(acceptance, check_count(order, name="order", minimum=0), width)
        else:
            refuse_order(order)
            vector = check_acceptance(acceptance)
            require_sorted(vector)
            steps = vector.tolist()
            growth = _Growth(lambda path: steps[path[-1]], 0, min(width, len(steps)))
        growth.run(budget, depth)
        weights, parents = growth.weights, growth.parents
    mass = np.asarray(weights, dtype=np.float64)
    mass.setflags(write=False)
    return OptimalTree(TreeShape(np.asarray(parents, dtype=np.int64)), mass)


def tree_acceptance(acceptance: ArrayLike | PathAcceptance, *, shape: TreeShape) -> OptimalTree:
    """Return a given tree with the acceptance probability of each vertex.

    Args:
        acceptance: a vector `(k,)`, in any order, or a function of a rank path, as for
            `optimal_tree`; ranks beyond the vector have acceptance 0.
        shape: the tree.

    Returns:
        OptimalTree with this shape, whose `expected_tokens` is 1 + Σ acceptance; optimal only if
        the shape is.

    Raises:
        InvalidDistribution: if A is no sub-distribution.
        TooLarge: for a function, if the tree's paths are too many to spell out.

    Cost: O(n log depth) for a vector, n calls of a function.

    >>> import otm
    >>> tree_acceptance([0.5, 0.25], shape=otm.trees.TreeShape.chain(2)).acceptance.tolist()
    [1.0, 0.5, 0.25]
    """
    check_instance(shape, TreeShape, name="shape")
    if callable(acceptance):
        weights = np.ones(shape.num_nodes + 1)
        for vertex, path in enumerate(shape.paths()[1:], start=1):
            weights[vertex] = weights[shape.parents[vertex - 1]] * checked_step(acceptance, path)
    else:
        weights = _reached(check_acceptance(acceptance), shape)
    weights.setflags(write=False)
    return OptimalTree(shape, weights)


def tree_expected_tokens(acceptance: object, *, shape: TreeShape) -> Array:
    """Return the expected tokens per target call of a given tree, for many acceptance vectors.

    E[tokens] = 1 + Σ_v Π A(rank), the product along the path to vertex v.

    Args:
        acceptance: A, `(..., k)`, of any array kind and in any order; ranks beyond it have
            acceptance 0.
        shape: the tree.

    Returns:
        A float, or `(...)` in float64. A tensor's gradient is passed on: through
        `acceptance_vector` to the drafter.

    Raises:
        InvalidDistribution: if a row is no sub-distribution.

    Cost: O(n log depth) for each row.

    >>> import otm
    >>> shape = otm.trees.TreeShape.from_paths([(0,), (1,), (0, 0)])
    >>> tree_expected_tokens([0.5, 0.25], shape=shape)  # 1 + 1/2 + 1/4 + 1/4
    2.0
    """
    check_instance(shape, TreeShape, name="shape")
    return as_scalar_or_array(total(_reached(check_acceptances(acceptance), shape)))


def _reached(vectors: Array, shape: TreeShape) -> Array:
    """Return Π A along the path to each vertex `(..., n + 1)`, for vectors `(..., k)`."""
    xp, k = namespace(vectors), int(vectors.shape[-1])
    ends = xp.ones_like(vectors[..., :1])
    # A, what lies beyond it, and the root's certainty.
    padded = xp.concat([vectors, 0.0 * ends, ends], axis=-1)

    def picked(array: Array, index: NDArray[np.int64]) -> Array:
        where = index if isinstance(array, np.ndarray) else xp.asarray(index, device=array.device)
        return xp.take(array, where, axis=-1)

    ranks = np.minimum(shape.ranks, k)
    ranks[0] = k + 1
    weights, ancestor = picked(padded, ranks), np.concatenate([[0], shape.parents])
    while ancestor.any():  # twice as far up every round
        weights = weights * picked(weights, ancestor)
        ancestor = ancestor[ancestor]
    return weights


def require_sorted(acceptance: NDArray[np.float64]) -> None:
    """Raise `InvalidDistribution` if an acceptance vector increases from one rank to the next."""
    rises = np.flatnonzero(np.diff(acceptance) > 0)
    if rises.size:
        i = int(rises[0])
        raise InvalidDistribution(
            f"The greedy tree needs a non-increasing acceptance vector; rank {i + 1} has "
            f"{acceptance[i + 1]:.6g} after {acceptance[i]:.6g}. Sort the drafts by "
            "acceptance, or use otm.trees.program.tree_program, which allows any order."
        )


@dataclasses.dataclass(slots=True, eq=False)
class _State:
    """A state, the last ranks of a path, on which the acceptance of children depends."""

    suffix: tuple[int, ...]
    members: list[int]  # the vertices whose paths end in these ranks
    waiting: list[_Queue]  # queues that are out of vertices


@dataclasses.dataclass(slots=True, eq=False)
class _Queue:
    """The candidates of one rank under the vertices of one state, in descending order."""

    state: _State
    rank: int
    number: int
    step: float
    siblings: float  # Σ steps up to this rank
    child: _State
    cursor: int  # the head is under `state.members[cursor]`


@dataclasses.dataclass(eq=False)
class _Growth:
    """A growing tree: a heap of queue heads, and the vertices popped so far.

    Entries of the heap are (−acceptance, number of the queue, queue). Among the queues of one state
    a younger rank's cursor is never ahead of an elder's, because acceptance does not increase and
    ties go to the queue opened first. So an elder sibling always leaves first, and a rank's queue
    need not be opened before its elder has been popped once.
    """

    acceptance: PathAcceptance
    order: int
    max_width: int
    weights: list[float] = dataclasses.field(default_factory=lambda: [1.0])
    parents: list[int] = dataclasses.field(default_factory=list)
    heap: list[tuple[float, int, _Queue]] = dataclasses.field(default_factory=list)
    states: dict[tuple[int, ...], _State] = dataclasses.field(default_factory=dict)
    num_queues: int = 0

    def state(self, path: tuple[int, ...]) -> _State:
        """Return the state at the end of a path."""
        suffix = path[max(0, len(path) - self.order) :]
        if suffix not in self.states:
            self.states[suffix] = _State(suffix, [], [])
        return self.states[suffix]

    def open(self, state: _State, rank: int, elder: float, siblings: float) -> None:
        """Open the queue of a rank under a state, if the rank's acceptance is positive."""
        if rank >= self.max_width:
            return
        path = (*state.suffix, rank)
        step = checked_step(self.acceptance, path, elder, siblings)
        if step:
            queue = _Queue(state, rank, self.num_queues, step, siblings + step, self.state(path), 0)
            self.num_queues += 1
            heapq.heappush(self.heap, (-self.weights[state.members[0]] * step, queue.number, queue))

    def run(self, num_nodes: int, max_depth: int) -> None:
        """Pop vertices, the most likely first."""
        weights, parents, heap, levels = self.weights, self.parents, self.heap, [0]
        root = self.state(())
        root.members.append(0)
        self.open(root, 0, 1.0, 0.0)
        while heap and len(parents) < num_nodes:
            key, number, queue = heap[0]
            if not key:
                break  # underflow: whatever is left is never accepted
            cursor, members, child = queue.cursor, queue.state.members, queue.child
            parent = members[cursor]
            parents.append(parent)
            weights.append(-key)
            level = levels[parent] + 1
            levels.append(level)
            if level < max_depth:
                child.members.append(len(parents))
            queue.cursor = cursor + 1
            if cursor + 1 < len(members):
                heapq.heapreplace(heap, (-weights[members[cursor + 1]] * queue.step, number, queue))
            else:
                heapq.heappop(heap)
                queue.state.waiting.append(queue)
            if not cursor:
                self.open(queue.state, queue.rank + 1, queue.step, queue.siblings)
            if level < max_depth:
                if len(child.members) == 1:
                    self.open(child, 0, 1.0, 0.0)
                while child.waiting:
                    other = child.waiting.pop()
                    heapq.heappush(heap, (key * other.step, other.number, other))


def _grow_by_path(
    acceptance: PathAcceptance, num_nodes: int, max_depth: int, max_width: int
) -> tuple[list[float], list[int]]:
    """Return acceptance (root first) and parents of the vertices in the order of popping.

    The algorithm is the textbook's queue, for any function of the path: a popped vertex pushes its
    next sibling and its first child. Entries are (−acceptance, parent, rank, step, Σ steps of the
    elder siblings).
    """
    weights, parents = [1.0], list[int]()
    paths: list[tuple[int, ...]] = [()]
    heap: list[tuple[float, int, int, float, float]] = []
    if num_nodes and (step := checked_step(acceptance, (0,), 1.0, 0.0)):
        heap.append((-step, 0, 0, step, 0.0))
    while heap and len(parents) < num_nodes:
        key, parent, rank, step, siblings = heap[0]
        parents.append(parent)
        weights.append(-key)
        above = paths[parent]
        path = (*above, rank)
        paths.append(path)
        younger = 0.0
        if rank + 1 < max_width:
            younger = checked_step(acceptance, (*above, rank + 1), step, siblings + step)
        if weight := weights[parent] * younger:
            heapq.heapreplace(heap, (-weight, parent, rank + 1, younger, siblings + step))
        else:
            heapq.heappop(heap)
        if len(path) < max_depth and (
            weight := key * (eldest := checked_step(acceptance, (*path, 0), 1.0, 0.0))
        ):
            heapq.heappush(heap, (weight, len(parents), 0, eldest, 0.0))
    return weights, parents


def checked_step(
    acceptance: PathAcceptance, path: tuple[int, ...], elder: float = 1.0, siblings: float = 0.0
) -> float:
    """Evaluate the acceptance of a vertex and check the value against elder siblings.

    `elder` is the acceptance of the next elder sibling, `siblings` the sum over all elder ones.
    """
    told: object = acceptance(path)
    step = math.nan
    if not isinstance(told, str | bytes):
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            step = float(told)  # type: ignore[arg-type]
    if not 0.0 <= step <= 1.0:
        raise InvalidDistribution(
            f"Acceptance must lie in [0, 1] at every path; it is {told!r:.40} at {path}. Return a "
            "probability."
        )
    if step > elder or siblings + step > 1.0 + _SUM_TOLERANCE:
        raise InvalidDistribution(
            "Acceptance must not increase from one sibling to the next, nor sum to more than 1 "
            f"over them; path {path} has {step:.6g} after {elder:.6g}, {siblings + step:.6g} "
            "together. Order the drafts by acceptance."
        )
    return step
