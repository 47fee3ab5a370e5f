"""Shapes of draft trees: ordered rooted trees of positions, without tokens.

Vertex 0 is the root, the context itself; vertices 1..n are drafted. A chain, a batch, several
sequences, a prefix tree and an optimal tree are all shapes, so decoders, bounds and cost models
take a shape and nothing else. The children of a vertex are ordered by their numbers: that is the
order in which they are drafted and verified, and a child's place in it is its *rank*, 0 first.

A shape is one array of parents, so a tree of a million vertices costs eight megabytes and its
levels and ranks a few sorts.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from otm.errors import InvalidDistribution, InvalidParameter, TooLarge
from otm.pmf import check_count, check_instance, plain_reals

MAX_NODES = 50_000_000
"""Largest number of drafted vertices of a shape."""

MAX_PATHS = 100_000
"""Largest number of vertices whose paths are spelled out."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class TreeShape:
    """An ordered rooted tree of n drafted vertices, immutable, hashable, compared by parents.

    Args:
        parents: integers `(n,)`; `parents[i − 1]` is the parent of vertex i and smaller than i, 0
            being the root. n = 0 is the empty tree: nothing is drafted.

    Raises:
        InvalidParameter: if a parent is not an integer in [0, i).
        TooLarge: beyond fifty million vertices.

    Cost: O(n) to build; levels O(n log depth), ranks and children O(n log n), each once.
    Reference: ordered trees as drafting strategies, ERSD [Kobus & Gündüz 2025], section 2.

    >>> import otm
    >>> shape = otm.trees.TreeShape([0, 0, 1])
    >>> shape.num_nodes, shape.depth, shape.children(0), shape.paths()
    (3, 2, (1, 2), ((), (0,), (1,), (0, 0)))
    """

    parents: NDArray[np.int64]

    def __init__(self, parents: ArrayLike) -> None:
        object.__setattr__(self, "parents", _checked(parents))

    @classmethod
    def from_paths(cls, paths: Iterable[Sequence[int]]) -> TreeShape:
        """Return the shape with given rank paths of the vertices, numbered level by level.

        Args:
            paths: tuples of ranks, one for each drafted vertex, in any order; the root's () may be
                among them.

        Raises:
            InvalidParameter: if a path occurs twice, or its parent or an elder sibling is missing.

        Cost: O(total length of the paths).

        >>> import otm
        >>> otm.trees.TreeShape.from_paths([(0,), (1,), (0, 0)]).parents.tolist()
        [0, 0, 1]
        """
        listed = [
            tuple(check_count(rank, name="rank", minimum=0) for rank in path) for path in paths
        ]
        ordered = sorted((path for path in listed if path), key=lambda path: (len(path), path))
        number = {(): 0} | {path: i for i, path in enumerate(ordered, start=1)}
        if len(set(listed)) < len(listed):
            raise InvalidParameter(
                "Every path may occur once; one occurs twice. Pass a set of tuples."
            )
        for path in ordered:
            needed = [path[:-1]] + ([(*path[:-1], path[-1] - 1)] if path[-1] else [])
            for other in needed:
                if other not in number:
                    raise InvalidParameter(
                        f"A vertex needs its parent and its elder siblings; {path} is there and "
                        f"{other} is not. Add it."
                    )
        return cls([number[path[:-1]] for path in ordered])

    @classmethod
    def chain(cls, length: int) -> TreeShape:
        """Return one sequence of `length` ≥ 1 drafts (SpecTr, Algorithm 4; ERSD "sequence").

        >>> import otm
        >>> otm.trees.TreeShape.chain(3).parents.tolist()
        [0, 1, 2]
        """
        return cls(np.arange(affordable(check_count(length, name="length"))))

    @classmethod
    def batch(cls, num_drafts: int) -> TreeShape:
        """Return `num_drafts` ≥ 1 alternatives for one token (ERSD "batch").

        >>> import otm
        >>> otm.trees.TreeShape.batch(3).parents.tolist()
        [0, 0, 0]
        """
        return cls(np.zeros(affordable(check_count(num_drafts, name="num_drafts")), dtype=np.int64))

    @classmethod
    def sequences(cls, num_drafts: int, length: int) -> TreeShape:
        """Return `num_drafts` chains of `length` tokens that share the root only.

        Numbered level by level. Reference: SpecTr, (7).

        >>> import otm
        >>> otm.trees.TreeShape.sequences(2, 2).parents.tolist()
        [0, 0, 1, 2]
        """
        return cls.delayed(0, num_drafts, length)

    @classmethod
    def prefix_tree(cls, factors: Sequence[int]) -> TreeShape:
        """Return the tree with `factors[i]` ≥ 1 children at every vertex of level i.

        Numbered level by level. Reference: SpecTr, Algorithm 5.

        >>> import otm
        >>> otm.trees.TreeShape.prefix_tree([2, 1]).parents.tolist()
        [0, 0, 1, 2]
        """
        counts = [check_count(factor, name="a factor") for factor in factors]
        sizes = [1, *itertools.accumulate(counts, lambda size, factor: size * factor)]
        affordable(sum(sizes) - 1)
        first = np.cumsum([0, *sizes])
        levels = [
            np.repeat(np.arange(first[i], first[i + 1]), counts[i]) for i in range(len(counts))
        ]
        return cls(np.concatenate([np.empty(0, dtype=np.int64), *levels]))

    @classmethod
    def delayed(cls, stem: int, num_branches: int, length: int) -> TreeShape:
        """Return `stem` ≥ 0 drafts in a row and then `num_branches` chains of `length` tokens.

        Numbered level by level; "delayed expansion". Reference: Thomas et al. 2026 (2602.16994).

        >>> import otm
        >>> otm.trees.TreeShape.delayed(1, 2, 2).parents.tolist()
        [0, 1, 1, 2, 3]
        """
        head = check_count(stem, name="stem", minimum=0)
        width = check_count(num_branches, name="num_branches")
        depth = check_count(length, name="length")
        affordable(head + width * depth)
        branches = np.arange(head + 1, head + 1 + width * (depth - 1))
        return cls(np.concatenate([np.arange(head), np.full(width, head), branches]))

    @classmethod
    def specinfer(cls, length: int) -> TreeShape:
        """Return three sequences of `length` tokens with the first two tokens in common.

        A chain if `length` ≤ 2. Reference: Miao et al. 2024; the shape as compared in ERSD, section
        5.

        >>> import otm
        >>> otm.trees.TreeShape.specinfer(4).parents.tolist()
        [0, 1, 2, 2, 2, 3, 4, 5]
        """
        depth = affordable(check_count(length, name="length"))
        return cls.prefix_tree([1, 1, 3, *(1,) * (depth - 3)][:depth])

    @property
    def num_nodes(self) -> int:
        """Number n of drafted vertices, the root not counted."""
        return len(self.parents)

    @property
    def depth(self) -> int:
        """Largest number of drafts on a path from the root; 0 for the empty tree."""
        return int(self.levels.max())

    @property
    def width(self) -> int:
        """Largest number of children of one vertex; 0 for the empty tree."""
        return int(self.num_children.max())

    @functools.cached_property
    def levels(self) -> NDArray[np.int64]:
        """Number of drafts on the path to each vertex, `(n + 1,)`, 0 at the root."""
        ancestor = np.concatenate([[0], self.parents])
        levels = (np.arange(len(ancestor)) > 0).astype(np.int64)
        # Jump from ancestor to ancestor, twice as far every round: levels[v] counts the vertices on
        # [v, ancestor[v]).
        while ancestor.any():
            levels += levels[ancestor]
            ancestor = ancestor[ancestor]
        return _frozen(levels)

    @functools.cached_property
    def num_children(self) -> NDArray[np.int64]:
        """Number of children of each vertex, `(n + 1,)`."""
        return _frozen(np.bincount(self.parents, minlength=self.num_nodes + 1).astype(np.int64))

    @functools.cached_property
    def ranks(self) -> NDArray[np.int64]:
        """Place of each vertex among the siblings, `(n + 1,)`, 0 first; 0 at the root."""
        ranks = np.zeros(self.num_nodes + 1, dtype=np.int64)
        ranks[self._by_parent] = (
            np.arange(self.num_nodes) - self._first_child[self.parents[self._by_parent - 1]]
        )
        return _frozen(ranks)

    def children(self, vertex: int) -> tuple[int, ...]:
        """Return the children of a vertex in drafting order.

        Raises:
            InvalidParameter: if there is no such vertex.
        """
        here = check_count(vertex, name="vertex", minimum=0)
        if here > self.num_nodes:
            raise InvalidParameter(
                f"vertex must be at most {self.num_nodes}, the last of the tree; got {here}. Check "
                "the tree."
            )
        found = self._by_parent[self._first_child[here] : self._first_child[here + 1]]
        return tuple(found.tolist())

    def paths(self) -> tuple[tuple[int, ...], ...]:
        """Return the ranks on the way to each vertex, the root's () first.

        Raises:
            TooLarge: beyond 100,000 entries.

        Cost: O(n · depth).
        """
        if int(self.levels.sum()) > MAX_PATHS:
            raise TooLarge(
                f"Paths are spelled out up to {MAX_PATHS:,} ranks in total; this tree has "
                f"{int(self.levels.sum()):,}. Use parents and ranks."
            )
        ranks = self.ranks.tolist()
        paths: list[tuple[int, ...]] = [()]
        for vertex, parent in enumerate(self.parents.tolist(), start=1):
            paths.append((*paths[parent], ranks[vertex]))
        return tuple(paths)

    @functools.cached_property
    def _by_parent(self) -> NDArray[np.int64]:
        """The drafted vertices sorted by parent, siblings in order, `(n,)`."""
        return np.argsort(self.parents, kind="stable") + 1

    @functools.cached_property
    def _first_child(self) -> NDArray[np.int64]:
        """Start of each vertex's children in `_by_parent`, `(n + 2,)`."""
        return np.concatenate([[0], np.cumsum(self.num_children)])

    @functools.cached_property
    def _hash(self) -> int:
        return hash((type(self).__name__, self.parents.tobytes()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TreeShape) and np.array_equal(self.parents, other.parents)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        if self.num_nodes <= 16:
            return f"TreeShape({self.parents.tolist()})"
        return f"<TreeShape: {self.num_nodes} nodes, depth {self.depth}, width {self.width}>"


def level_order(shape: TreeShape) -> TreeShape:
    """Renumber the vertices level by level, siblings staying in order.

    Args:
        shape: any tree.

    Returns:
        TreeShape: the same ordered tree, equal for any two numberings of it.

    Raises:
        InvalidParameter: if `shape` is no `TreeShape`.

    Cost: O(n log n).

    >>> import otm
    >>> level_order(otm.trees.TreeShape([0, 1, 0])).parents.tolist()
    [0, 0, 1]
    """
    check_instance(shape, TreeShape, name="shape")
    children, first = shape._by_parent.tolist(), shape._first_child.tolist()
    order = [0]
    for vertex in order:  # grows while it is read: a breadth-first search
        order.extend(children[first[vertex] : first[vertex + 1]])
    number = np.empty(shape.num_nodes + 1, dtype=np.int64)
    number[order] = np.arange(shape.num_nodes + 1)
    return TreeShape(number[shape.parents[np.asarray(order[1:], dtype=np.int64) - 1]])


def _checked(parents: ArrayLike) -> NDArray[np.int64]:
    """Return parents as read-only integers, or raise unless the parents form a tree."""
    try:
        array = plain_reals(parents, "parents")
    except InvalidDistribution:
        array = np.empty(())  # no integers: fails the check below
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InvalidParameter(
            f"parents must be integers (n,), one for each drafted vertex; got {array.dtype} of "
            f"shape {array.shape}. Pass [0, 1] for a chain of two."
        )
    affordable(array.size)
    array = np.array(array, dtype=np.int64)
    wrong = np.flatnonzero((array < 0) | (array > np.arange(array.size)))
    if wrong.size:
        vertex = int(wrong[0]) + 1
        raise InvalidParameter(
            f"The parent of vertex {vertex} must be a vertex before it, in [0, {vertex}), 0 being "
            f"the root; got {int(array[vertex - 1])}. Number the vertices so that parents come "
            "first."
        )
    return _frozen(array)


def _frozen(array: NDArray[np.int64]) -> NDArray[np.int64]:
    array.setflags(write=False)
    return array


def affordable(num_nodes: int) -> int:
    """Return the number of vertices, or raise `TooLarge` beyond `MAX_NODES`."""
    if num_nodes > MAX_NODES:
        raise TooLarge(
            f"A tree may have {MAX_NODES:,} drafted vertices; this one would have {num_nodes:,}. "
            "Draft fewer."
        )
    return num_nodes
