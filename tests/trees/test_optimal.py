"""The greedy tree against the dynamic program, and that against every ordered tree of at most seven
vertices.
"""

import functools
import importlib
import time

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import otm
from otm.trees.optimal import optimal_tree, tree_acceptance, tree_expected_tokens
from otm.trees.program import tree_program
from otm.trees.shape import TreeShape
from tests.optional import needs
from tests.tolerance import UNIT_ROUNDOFF
from tests.trees.instances import by_vector, trees_within, value, vectors

# A path's acceptance is a product of at most 30 factors, the expectation a sum of at most 600 of
# them, itself at most 60.
ROUNDING = 60 * (30 + 600) * UNIT_ROUNDOFF
LIMIT = st.sampled_from([None, 1, 2, 3, 5])


def within(tree, size, depth, width):
    return (
        tree.num_nodes <= size
        and tree.shape.depth <= (depth or size)
        and tree.shape.width <= (width or size)
    )


@settings(max_examples=50)
@given(vectors(is_sorted=False), st.integers(0, 6), LIMIT, LIMIT)
def test_the_program_is_best_of_all_trees_for_any_order(acceptance, size, depth, width):
    tree = tree_program(acceptance, num_nodes=size, max_depth=depth, max_width=width)
    best = max(value(forest, by_vector(acceptance)) for forest in trees_within(size, depth, width))
    assert abs(tree.expected_tokens - 1 - best) <= ROUNDING
    assert within(tree, size, depth, width)


@settings(max_examples=100)
@given(vectors(is_sorted=True), st.integers(0, 40), LIMIT, LIMIT, st.sampled_from([None, 0, 2]))
def test_greedy_and_program_agree_under_all_limits(acceptance, size, depth, width, order):
    limits = {"max_depth": depth, "max_width": width}
    greedy = optimal_tree(acceptance, num_nodes=size, **limits)
    program = tree_program(acceptance, num_nodes=size, **limits)
    assert abs(greedy.expected_tokens - program.expected_tokens) <= ROUNDING
    assert within(greedy, size, depth, width) and within(program, size, depth, width)
    # Vertices leave the queue in descending order, so every prefix is optimal for its own budget.
    assert np.all(np.diff(greedy.acceptance) <= 0)
    shorter = optimal_tree(acceptance, num_nodes=size // 2, **limits)
    assert greedy.first(size // 2).shape == shorter.shape
    assert abs(greedy.curve[shorter.num_nodes] - shorter.expected_tokens) <= ROUNDING
    # A vector may be given as a function of the path.
    tree = optimal_tree(by_vector(acceptance), num_nodes=size, order=order, **limits)
    np.testing.assert_allclose(tree.acceptance, greedy.acceptance, rtol=60 * UNIT_ROUNDOFF)
    for known in (acceptance, by_vector(acceptance)):
        again = tree_acceptance(known, shape=tree.shape)
        np.testing.assert_allclose(again.acceptance, tree.acceptance, rtol=1e-14)


AFTER = {
    (): [0.5, 0.3, 0.1],
    (0,): [0.8, 0.1, 0.05],
    (1,): [0.4, 0.3, 0.2],
    (2,): [0.3, 0.3, 0.2],
}
"""Acceptance of order 1: after rank 0 high, after any other rank low."""


def step(path):
    return [*AFTER.get(path[-2:-1], []), *(0.0,) * 8][path[-1]]


@pytest.mark.parametrize("order", [1, 2, None])
@pytest.mark.parametrize(("depth", "width"), [(None, None), (3, None), (None, 2)])
def test_acceptance_by_path_is_best_of_all_trees(order, depth, width):
    tree = optimal_tree(step, num_nodes=7, max_depth=depth, max_width=width, order=order)
    best = max(value(forest, step) for forest in trees_within(7, depth, width))
    assert abs(tree.expected_tokens - 1 - best) <= ROUNDING


def test_of_vertices_as_likely_the_lower_rank_goes_first():
    # the first child's first child and the second child, with ¼ each
    assert optimal_tree([0.5, 0.25], num_nodes=3).shape.parents.tolist() == [0, 1, 0]


def test_the_order_shares_queues_but_not_results():
    asked = []
    shared = optimal_tree(lambda path: asked.append(path) or step(path), num_nodes=3000, order=1)
    assert len(asked) == len(set(asked)) <= 4 + 4 * 4  # a path of one or two ranks each
    whole = optimal_tree(step, num_nodes=3000)
    np.testing.assert_allclose(whole.acceptance, shared.acceptance, rtol=1e-13)
    # Too small an order is another model, and another tree.
    zeroth = optimal_tree(step, num_nodes=300, order=0)
    assert zeroth.expected_tokens < whole.first(300).expected_tokens - 0.1
    deep = optimal_tree(lambda path: 0.9 / len(path) if path[-1] == 0 else 0.0, num_nodes=4)
    np.testing.assert_allclose(deep.acceptance, [1, 0.9, 0.405, 0.1215, 0.0273375], rtol=1e-15)


@pytest.mark.parametrize("order", [None, 0])
@pytest.mark.parametrize(
    ("siblings", "said"),
    [
        ([0.1, 0.7, 0.05], r"path \(1,\) has 0\.7 after 0\.1, 0\.8 together"),
        ([0.5, 0.4, 0.3, 0], r"\(2,\) has 0\.3 .*1\.2 together"),
        ([float("nan")], r"it is nan at \(0,\)"),
        ([0.75, 1.5], r"it is 1\.5 at \(1,\)"),
    ],
)
def test_a_function_that_is_no_acceptance_is_refused(siblings, said, order):
    with pytest.raises(otm.errors.InvalidDistribution, match=said):
        optimal_tree(lambda path: siblings[path[-1]], num_nodes=3, order=order)


def test_what_the_greedy_tree_cannot_do_the_program_can():
    with pytest.raises(
        otm.errors.InvalidDistribution, match=r"rank 1 has 0\.7 after 0\.1.*program"
    ):
        optimal_tree([0.1, 0.7, 0.05], num_nodes=3)
    four = tree_program([0.3, 0.02, 0.6], num_nodes=4)  # an unlikely elder sibling comes first
    assert four.shape == TreeShape.from_paths([(0,), (1,), (2,), (2, 0)])


def test_vertices_that_cannot_be_accepted_are_left_out():
    assert optimal_tree([0.5, 0.0], num_nodes=10, max_depth=2).shape == TreeShape.chain(2)
    assert optimal_tree([0.0], num_nodes=10).shape == TreeShape([])
    assert tree_program([0.0, 0.5], num_nodes=3).expected_tokens == 1.5
    # Paths whose probability underflows: 1e-100, 1e-200, 1e-300, 0.
    assert optimal_tree([1e-100], num_nodes=10).num_nodes == 3


@pytest.mark.parametrize("library", ["numpy", pytest.param("torch", marks=needs("torch"))])
def test_expected_tokens_of_many_vectors_are_those_of_each(library):
    kind = importlib.import_module(library).asarray
    rng = np.random.default_rng(0)
    vectors = 0.9 * rng.dirichlet(np.ones(3), size=(2, 4))
    for parents in ([], range(5), [0] * 6, rng.integers(0, np.arange(1, 40))):
        shape = TreeShape(parents)  # some with more children than there are ranks
        found = tree_expected_tokens(kind(vectors), shape=shape)
        wanted = [[tree_acceptance(a, shape=shape).expected_tokens for a in row] for row in vectors]
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=0, atol=ROUNDING)
        assert isinstance(tree_expected_tokens(vectors[0, 0], shape=shape), float)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        *(
            (functools.partial(function, [0.5], num_nodes=3, **{name: 0}), name)
            for name in ("max_depth", "max_width")
            for function in (optimal_tree, tree_program)
        ),
        (lambda: optimal_tree([0.5], num_nodes=3, order=1), "order"),
        (lambda: tree_program([0.5, 0.2], num_nodes=10**6), "optimal_tree has none"),
    ],
)
def test_bad_limits_are_refused(call, said):
    with pytest.raises((otm.errors.InvalidParameter, otm.errors.TooLarge), match=said):
        call()


@pytest.mark.long
def test_a_million_vertices_in_under_five_seconds():
    start = time.process_time()
    tree = optimal_tree([0.6, 0.25, 0.1, 0.05], num_nodes=1_000_000)
    assert time.process_time() - start < 5
    assert tree.num_nodes == 1_000_000
    assert tree.expected_tokens == pytest.approx(14.161023680658996, abs=1e-9)
