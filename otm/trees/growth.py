"""Popping the most likely vertices of the tree of all admissible ones, in order.

*One queue per rank.* Vertices leave the priority queue in descending order of acceptance. If A is a
vector, the candidates of rank i are the vertices popped so far, times A(i): they too come in
descending order, a first-in first-out queue for each rank. The heap holds one entry per rank, the
head of its queue, and a million vertices cost a million replacements in a heap of a few entries.
Acceptance that depends on the last m + 1 ranks (Markov of order m) needs one queue for each state
of m ranks and each rank (`Growth`); if it depends on the whole path, every vertex is a state of its
own, and the plain heap of the textbook is leaner (`grow_by_path`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import heapq
import math

from otm.errors import InvalidDistribution
from otm.trees.vector import PathAcceptance

_SUM_TOLERANCE = 1e-9


@dataclasses.dataclass(slots=True, eq=False)
class _State:
    """What the acceptance of children depends on: the last ranks of a path."""

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
class Growth:
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
        """Open the queue of a rank under a state, if that rank can be accepted at all."""
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


def grow_by_path(
    acceptance: PathAcceptance, num_nodes: int, max_depth: int, max_width: int
) -> tuple[list[float], list[int]]:
    """Return acceptance (root first) and parents of the vertices in the order of popping.

    This is the textbook's queue, for any function of the path: a popped vertex pushes its next
    sibling and its first child. Entries are (−acceptance, parent, rank, step, Σ steps of the elder
    siblings).
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
    """Ask for the acceptance of a vertex and check it against its elder siblings.

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
