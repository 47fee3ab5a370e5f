"""Tree shapes against loops written from the definitions."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import numpy as np
import pytest
from hypothesis import given, strategies as st

import otm
from otm.trees.shape import TreeShape, level_order
from tests.trees.instances import shapes


@given(shapes())
def test_levels_ranks_children_and_paths(shape: TreeShape) -> None:
    parents = [None, *shape.parents.tolist()]
    levels, ranks, children = [0], [0], {0: []}
    for vertex in range(1, shape.num_nodes + 1):
        levels.append(levels[parents[vertex]] + 1)
        ranks.append(len(children[parents[vertex]]))
        children[parents[vertex]].append(vertex)
        children[vertex] = []
    assert shape.levels.tolist() == levels
    assert shape.ranks.tolist() == ranks
    assert shape.num_children.tolist() == [len(children[v]) for v in range(shape.num_nodes + 1)]
    assert all(shape.children(v) == tuple(children[v]) for v in children)
    assert (shape.depth, shape.width) == (max(levels), max(map(len, children.values())))
    paths = shape.paths()
    assert paths[0] == ()
    assert all(paths[v] == (*paths[parents[v]], ranks[v]) for v in range(1, shape.num_nodes + 1))


@given(shapes(), st.randoms(use_true_random=False))
def test_paths_determine_the_tree_whatever_its_numbering(shape: TreeShape, shuffle: object) -> None:
    paths = list(shape.paths())
    shuffle.shuffle(paths)
    rebuilt = TreeShape.from_paths(paths)
    assert rebuilt == level_order(shape) == level_order(rebuilt)
    assert set(rebuilt.paths()) == set(paths)
    assert np.all(np.diff(rebuilt.levels) >= 0)


def test_parents_are_no_shape() -> None:
    with pytest.raises(
        otm.errors.InvalidParameter,
        match=r"shape must be of the class TreeShape; got \[0, 1\]",
    ):
        level_order([0, 1])  # type: ignore[arg-type]


@given(shapes(), shapes())
def test_equal_shapes_and_only_those_have_equal_parents(left: TreeShape, right: TreeShape) -> None:
    same = left.parents.tolist() == right.parents.tolist()
    assert (left == right) == same
    assert len({left, right, TreeShape(left.parents)}) == (1 if same else 2)


def test_constructors() -> None:
    assert set(TreeShape.sequences(2, 3).paths()) == {
        (),
        (0,),
        (1,),
        (0, 0),
        (1, 0),
        (0, 0, 0),
        (1, 0, 0),
    }
    assert set(TreeShape.prefix_tree([2, 3]).paths()) == {
        (),
        *((i,) for i in range(2)),
        *((i, j) for i in range(2) for j in range(3)),
    }
    assert TreeShape.prefix_tree([]) == TreeShape([])
    assert TreeShape([0, 0]) != TreeShape([0, 1]) != [0, 1]
    assert (
        TreeShape.prefix_tree([1] * 4)
        == TreeShape.chain(4)
        == TreeShape.sequences(1, 4)
        == TreeShape(range(4))
    )
    # Three sequences that share two tokens: 2 + 3 (L − 2) drafts.
    tree = TreeShape.specinfer(5)
    assert (tree.num_nodes, tree.depth, np.bincount(tree.levels).tolist()) == (
        11,
        5,
        [1, 1, 1, 3, 3, 3],
    )
    assert TreeShape.specinfer(2) == TreeShape.chain(2)
    assert TreeShape.specinfer(1) == TreeShape.chain(1)


def test_the_empty_tree() -> None:
    empty = TreeShape([])
    assert (empty.num_nodes, empty.depth, empty.width, empty.children(0), empty.paths()) == (
        0,
        0,
        0,
        (),
        ((),),
    )
    assert repr(empty) == "TreeShape([])"


def test_shapes_are_immutable_and_copy() -> None:
    mine = np.array([0, 1])
    shape = TreeShape(mine)
    mine[1] = 0  # the shape holds its own array
    assert shape.parents.tolist() == [0, 1]
    for array in (shape.parents, shape.levels, shape.ranks, shape.num_children):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5
    with pytest.raises(dataclasses.FrozenInstanceError):
        shape.parents = mine
    assert copy.deepcopy(shape) == pickle.loads(pickle.dumps(shape)) == shape


@pytest.mark.parametrize(
    "parents",
    [[1], [0, 2], [-1], [0, 1, 3], [0.0], [True], [[0]], "01", [[0], [0, 1]], [0, None]],
    ids=repr,
)
def test_what_is_no_tree_is_refused(parents: object) -> None:
    with pytest.raises(
        otm.errors.InvalidParameter, match=r"parents must be|parent of vertex \d+ must be"
    ):
        TreeShape(parents)


@pytest.mark.parametrize(
    "paths",
    [[(1,)], [(0, 0)], [(0,), (0, 0, 0)], [(0,), (0,)], [(0,), (0, 1)], [(-1,)], [(0.0,)]],
    ids=repr,
)
def test_paths_with_gaps_are_refused(paths: list[tuple[int, ...]]) -> None:
    with pytest.raises(otm.errors.InvalidParameter):
        TreeShape.from_paths(paths)


def test_arguments_are_checked_before_memory_is_taken() -> None:
    for call in (TreeShape.chain, TreeShape.batch, lambda n: TreeShape.sequences(n, n)):
        with pytest.raises(otm.errors.InvalidParameter):
            call(0)
        with pytest.raises(otm.errors.TooLarge):
            call(10**9)
    with pytest.raises(otm.errors.TooLarge):
        TreeShape.prefix_tree([10] * 12)
    with pytest.raises(otm.errors.InvalidParameter, match="at most 2"):
        TreeShape.chain(2).children(3)
    with pytest.raises(otm.errors.TooLarge, match="Use parents and ranks"):
        TreeShape.chain(1000).paths()


def test_a_large_tree_is_handled_by_arrays() -> None:
    rng = np.random.default_rng(0)
    parents = (rng.random(200_000) * np.arange(1, 200_001)).astype(np.int64)
    shape = TreeShape(parents)
    levels = np.zeros(len(parents) + 1, dtype=np.int64)
    for vertex, parent in enumerate(parents.tolist(), start=1):
        levels[vertex] = levels[parent] + 1
    np.testing.assert_array_equal(shape.levels, levels)
    assert TreeShape.chain(200_000).depth == 200_000
