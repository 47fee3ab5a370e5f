"""Tree shapes against loops written from the definitions."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, strategies as st

import otm
from otm.trees.shape import TreeShape, level_order
from tests.trees.instances import shapes

MAKE = TreeShape.chain, TreeShape.batch, lambda n: TreeShape.sequences(n, n)


def check_against_loops(shape):
    """Assert levels, ranks and children; return the parents."""
    parents = [0, *shape.parents.tolist()]
    levels, ranks = [0], [0]
    children = [[] for _ in parents]
    for vertex, parent in enumerate(parents[1:], start=1):
        levels.append(levels[parent] + 1)
        ranks.append(len(children[parent]))
        children[parent].append(vertex)
    assert (shape.levels.tolist(), shape.ranks.tolist()) == (levels, ranks)
    assert shape.num_children.tolist() == list(map(len, children))
    assert (shape.depth, shape.width) == (max(levels), max(map(len, children)))
    for vertex in range(min(len(parents), 50)):
        assert shape.children(vertex) == tuple(children[vertex])
    return parents


@given(shapes(), st.randoms(use_true_random=False))
def test_the_definitions_and_paths_whatever_the_numbering(shape, shuffle):
    parents, paths = check_against_loops(shape), shape.paths()
    assert paths[0] == ()
    for v in range(1, shape.num_nodes + 1):
        assert paths[v] == (*paths[parents[v]], shape.ranks[v])
    shuffled = list(paths)
    shuffle.shuffle(shuffled)
    rebuilt = TreeShape.from_paths(shuffled)
    assert rebuilt == level_order(shape) == level_order(rebuilt)
    assert set(rebuilt.paths()) == set(paths)
    assert np.all(np.diff(rebuilt.levels) >= 0)


def test_a_large_tree_is_handled_by_arrays():
    rng = np.random.default_rng(0)
    check_against_loops(TreeShape((rng.random(50_000) * np.arange(1, 50_001)).astype(np.int64)))
    assert TreeShape.chain(200_000).depth == 200_000


@given(shapes(), shapes())
def test_equal_shapes_and_only_those_have_equal_parents(left, right):
    same = left.parents.tolist() == right.parents.tolist()
    assert (left == right) == same
    assert len({left, right, TreeShape(left.parents)}) == (1 if same else 2)


def test_constructors():
    pairs = [(i, j) for i in range(2) for j in range(3)]
    assert set(TreeShape.prefix_tree([2, 3]).paths()) == {(), (0,), (1,), *pairs}
    stems = [(0,), (1,), (0, 0), (1, 0), (0, 0, 0), (1, 0, 0)]
    assert set(TreeShape.sequences(2, 3).paths()) == {(), *stems}
    assert TreeShape.prefix_tree([]) == TreeShape([])
    assert TreeShape([0, 0]) != TreeShape([0, 1]) != [0, 1]
    chain = TreeShape(range(4))
    assert (
        chain == TreeShape.chain(4) == TreeShape.sequences(1, 4) == TreeShape.prefix_tree([1] * 4)
    )
    # Three sequences that share two tokens.
    assert np.bincount(TreeShape.specinfer(5).levels).tolist() == [1, 1, 1, 3, 3, 3]
    assert TreeShape.specinfer(5).depth == 5
    for length in (1, 2):
        assert TreeShape.specinfer(length) == TreeShape.chain(length)


def test_shapes_are_immutable_and_copy():
    mine = np.array([0, 1])
    shape = TreeShape(mine)
    mine[1] = 0  # the shape holds its own array
    assert repr(shape) == "TreeShape([0, 1])"
    for array in (shape.parents, shape.levels, shape.ranks, shape.num_children):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5
    assert copy.deepcopy(shape) == pickle.loads(pickle.dumps(shape)) == shape


@pytest.mark.parametrize(
    "parents",
    [[1], [-1], [0, 1, 3], [0.0], [True], [[0]], "01", [[0], [0, 1]], [0, None]],
    ids=repr,
)
def test_what_is_no_tree_is_refused(parents):
    with pytest.raises(
        otm.errors.InvalidParameter, match=r"parents must be|parent of vertex \d+ must be"
    ):
        TreeShape(parents)


@pytest.mark.parametrize(
    "paths",
    [[(1,)], [(0, 0)], [(0,), (0, 0, 0)], [(0,), (0,)], [(0,), (0, 1)], [(-1,)], [(0.0,)]],
    ids=repr,
)
def test_paths_with_gaps_are_refused(paths):
    with pytest.raises(otm.errors.InvalidParameter):
        TreeShape.from_paths(paths)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        *((lambda make=make: make(0), "at least 1|≥ 1") for make in MAKE),
        *((lambda make=make: make(10**9), "50,000,000 drafted vertices") for make in MAKE),
        (lambda: TreeShape.prefix_tree([10] * 12), "50,000,000 drafted vertices"),
        (lambda: TreeShape.chain(2).children(3), "at most 2"),
        (lambda: TreeShape.chain(1000).paths(), "Use parents and ranks"),
        (lambda: level_order([0, 1]), "must be of the class TreeShape"),
    ],
)
def test_what_is_no_tree_or_too_much_for_one(call, said):
    with pytest.raises((otm.errors.InvalidParameter, otm.errors.TooLarge), match=said):
        call()
