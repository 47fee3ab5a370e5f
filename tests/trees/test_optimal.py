"""The greedy tree against the dynamic program, and both against every ordered tree of at most eight
vertices.
"""

from __future__ import annotations

import math
import time
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import otm
from otm.trees.optimal import OptimalTree, optimal_tree, tree_acceptance, tree_expected_tokens
from otm.trees.program import tree_program
from otm.trees.shape import TreeShape
from tests.tolerance import UNIT_ROUNDOFF
from tests.trees.instances import by_vector, trees_within, value, vectors

# A path's acceptance is a product of at most 30 factors, the expectation a sum of at most 600 of
# them, itself at most 60.
ROUNDING = 60 * (30 + 600) * UNIT_ROUNDOFF


LIMIT = st.sampled_from([None, 1, 2, 3, 5])


def within(tree: OptimalTree, size: int, depth: int | None, width: int | None) -> bool:
    return (
        tree.num_nodes <= size
        and tree.shape.depth <= (depth or size)
        and tree.shape.width <= (width or size)
    )


@settings(max_examples=40)
@given(vectors(is_sorted=True), st.integers(0, 8), LIMIT, LIMIT)
def test_greedy_is_best_of_all_trees(
    acceptance: np.ndarray, size: int, depth: int | None, width: int | None
) -> None:
    tree = optimal_tree(acceptance, num_nodes=size, max_depth=depth, max_width=width)
    best = max(
        value(forest, by_vector(acceptance)) for forest in trees_within(min(size, 7), depth, width)
    )
    if size <= 7:
        assert abs(tree.expected_tokens - 1 - best) <= ROUNDING
    assert tree.expected_tokens - 1 >= best - ROUNDING
    assert within(tree, size, depth, width)


@settings(max_examples=40)
@given(vectors(is_sorted=False), st.integers(0, 6), LIMIT, LIMIT)
def test_the_program_is_best_of_all_trees_for_any_order(
    acceptance: np.ndarray, size: int, depth: int | None, width: int | None
) -> None:
    tree = tree_program(acceptance, num_nodes=size, max_depth=depth, max_width=width)
    best = max(value(forest, by_vector(acceptance)) for forest in trees_within(size, depth, width))
    assert abs(tree.expected_tokens - 1 - best) <= ROUNDING
    assert within(tree, size, depth, width)


@settings(max_examples=80)
@given(vectors(is_sorted=True), st.integers(0, 40), LIMIT, LIMIT)
def test_greedy_and_program_agree_under_all_limits(
    acceptance: np.ndarray, size: int, depth: int | None, width: int | None
) -> None:
    greedy = optimal_tree(acceptance, num_nodes=size, max_depth=depth, max_width=width)
    program = tree_program(acceptance, num_nodes=size, max_depth=depth, max_width=width)
    assert abs(greedy.expected_tokens - program.expected_tokens) <= ROUNDING
    assert within(greedy, size, depth, width)
    assert within(program, size, depth, width)
    # Vertices leave the queue in descending order, so every prefix is optimal for its own budget.
    assert np.all(np.diff(greedy.acceptance) <= 0)
    for n in (min(1, size), size // 2):
        shorter = optimal_tree(acceptance, num_nodes=n, max_depth=depth, max_width=width)
        assert greedy.first(n).shape == shorter.shape
        assert greedy.curve[min(n, greedy.num_nodes)] == pytest.approx(
            shorter.expected_tokens, abs=ROUNDING
        )


@settings(max_examples=60)
@given(vectors(is_sorted=True), st.integers(0, 60), LIMIT, LIMIT, st.sampled_from([None, 0, 1, 2]))
def test_a_vector_as_a_function(
    acceptance: np.ndarray, size: int, depth: int | None, width: int | None, order: int | None
) -> None:
    padded = [*acceptance.tolist(), 0.0]
    function = lambda path: padded[min(path[-1], len(padded) - 1)]  # noqa: E731
    tree = optimal_tree(function, num_nodes=size, max_depth=depth, max_width=width, order=order)
    plain = optimal_tree(acceptance, num_nodes=size, max_depth=depth, max_width=width)
    np.testing.assert_allclose(tree.acceptance, plain.acceptance, rtol=60 * UNIT_ROUNDOFF)
    np.testing.assert_allclose(
        tree_acceptance(function, shape=tree.shape).acceptance, tree.acceptance, rtol=1e-14
    )
    np.testing.assert_allclose(
        tree_acceptance(acceptance, shape=tree.shape).acceptance, tree.acceptance, rtol=1e-14
    )


class TestMarkovAcceptance:
    """Order 1: after rank 0 acceptance is high, after any other rank low."""

    after: ClassVar = {
        (): [0.5, 0.3, 0.1],
        (0,): [0.8, 0.1, 0.05],
        (1,): [0.4, 0.3, 0.2],
        (2,): [0.3, 0.3, 0.2],
    }
    never: ClassVar = [0.0] * 8

    def step(self, path: tuple[int, ...]) -> float:
        return [*self.after.get(path[-2:-1], []), *self.never][path[-1]]

    @pytest.mark.parametrize("order", [1, 2, None])
    def test_is_best_of_all_trees(self, order: int | None) -> None:
        for depth, width in ((None, None), (3, None), (None, 2)):
            tree = optimal_tree(
                self.step, num_nodes=7, max_depth=depth, max_width=width, order=order
            )
            best = max(value(forest, self.step) for forest in trees_within(7, depth, width))
            assert abs(tree.expected_tokens - 1 - best) <= ROUNDING

    def test_the_order_shares_queues_but_not_results(self) -> None:
        whole, shared = (
            optimal_tree(self.step, num_nodes=3000, order=order) for order in (None, 1)
        )
        np.testing.assert_allclose(whole.acceptance, shared.acceptance, rtol=1e-13)
        asked: list[tuple[int, ...]] = []
        optimal_tree(lambda path: asked.append(path) or self.step(path), num_nodes=3000, order=1)
        assert len(asked) == len(set(asked)) <= 4 + 4 * 4  # a path of one or two ranks each
        # Too small an order is another model, and another tree.
        zeroth = optimal_tree(self.step, num_nodes=300, order=0)
        assert zeroth.expected_tokens < whole.first(300).expected_tokens - 0.1

    def test_depth_may_matter_to_a_function(self) -> None:
        tree = optimal_tree(lambda path: 0.9 / len(path) if path[-1] == 0 else 0.0, num_nodes=4)
        np.testing.assert_allclose(tree.acceptance, [1, 0.9, 0.405, 0.1215, 0.0273375], rtol=1e-15)


class TestUnsorted:
    acceptance: ClassVar = [0.1, 0.7, 0.05]

    def test_is_refused(self) -> None:
        with pytest.raises(
            otm.errors.InvalidDistribution, match=r"rank 1 has 0\.7 after 0\.1.*tree_program"
        ):
            optimal_tree(self.acceptance, num_nodes=3)
        for order in (None, 0):
            with pytest.raises(
                otm.errors.InvalidDistribution, match=r"must not increase from one sibling"
            ):
                optimal_tree(lambda path: self.acceptance[path[-1]], num_nodes=3, order=order)
            with pytest.raises(otm.errors.InvalidDistribution, match=r"\(2,\) has 0\.3 .*1\.2 tog"):
                optimal_tree(lambda path: [0.5, 0.4, 0.3, 0][path[-1]], num_nodes=3, order=order)


def test_the_program_drafts_an_unlikely_elder_sibling_first() -> None:
    four = tree_program([0.3, 0.02, 0.6], num_nodes=4)
    assert four.shape == TreeShape.from_paths([(0,), (1,), (2,), (2, 0)])
    assert four.expected_tokens == pytest.approx(1 + 0.3 + 0.02 + 0.6 + 0.18)


def test_vertices_that_cannot_be_accepted_are_left_out() -> None:
    assert optimal_tree([0.5, 0.0], num_nodes=10, max_depth=2).shape == TreeShape.chain(2)
    assert optimal_tree([0.0], num_nodes=10).shape == TreeShape([])
    assert tree_program([0.0, 0.5], num_nodes=3).expected_tokens == 1.5
    # Paths whose probability underflows: 1e-100, 1e-200, 1e-300, 0.
    assert optimal_tree([1e-100], num_nodes=10).num_nodes == 3
    assert optimal_tree([1.0], num_nodes=10).expected_tokens == 11


def test_any_given_shape() -> None:
    # SpecInfer: 1 + a + a² + (a² Σ) Σ a^j, Σ = .85 over the children that exist.
    tree = tree_acceptance([0.6, 0.25], shape=TreeShape.specinfer(4))
    assert tree.expected_tokens == pytest.approx(1 + 0.6 + 0.36 + 0.36 * 0.85 * (1 + 0.6))
    assert tree_acceptance([0.6, 0.25], shape=TreeShape([])).expected_tokens == 1


@pytest.mark.parametrize(
    "acceptance",
    [
        [],
        0.5,
        [0.6, 0.5],
        [0.5, -0.1],
        [math.nan],
        [[0.5, 0.1], [0.9, 0.2]],
        lambda path: math.nan,
        lambda path: 1.5,
        lambda path: 0.4,  # three siblings sum to 1.2
    ],
)
def test_bad_acceptance_is_refused(acceptance: object) -> None:
    with pytest.raises(otm.errors.InvalidDistribution):
        optimal_tree(acceptance, num_nodes=5)
    with pytest.raises(otm.errors.InvalidDistribution):
        tree_expected_tokens(acceptance, shape=TreeShape.chain(2))


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_expected_tokens_of_many_vectors_are_those_of_each(kind: str) -> None:
    import torch

    rng = np.random.default_rng(0)
    vectors = 0.9 * rng.dirichlet(np.ones(3), size=(2, 4))
    shapes = [
        TreeShape([]),
        TreeShape.chain(5),
        TreeShape.batch(6),
        TreeShape(rng.integers(0, np.arange(1, 40))),
    ]
    for shape in shapes:  # with more children than there are ranks
        found = tree_expected_tokens(
            vectors if kind == "numpy" else torch.from_numpy(vectors), shape=shape
        )
        wanted = [
            [tree_acceptance(row, shape=shape).expected_tokens for row in rows] for rows in vectors
        ]
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=0, atol=ROUNDING)
        assert isinstance(tree_expected_tokens(vectors[0, 0], shape=shape), float)


def test_bad_limits_are_refused() -> None:
    for name in ("max_depth", "max_width"):
        for function in (optimal_tree, tree_program):
            with pytest.raises(otm.errors.InvalidParameter, match=name):
                function([0.5], num_nodes=3, **{name: 0})
    with pytest.raises(otm.errors.InvalidParameter, match="order"):
        optimal_tree([0.5], num_nodes=3, order=1)
    with pytest.raises(otm.errors.TooLarge):
        optimal_tree([0.5], num_nodes=10**9)
    with pytest.raises(otm.errors.TooLarge, match="optimal_tree has none"):
        tree_program([0.5, 0.2], num_nodes=10**6)


@pytest.mark.long
def test_a_million_vertices_in_under_five_seconds() -> None:
    start = time.process_time()
    tree = optimal_tree([0.6, 0.25, 0.1, 0.05], num_nodes=1_000_000)
    assert time.process_time() - start < 5
    assert tree.num_nodes == 1_000_000
    assert tree.expected_tokens == pytest.approx(14.161023680658996, abs=1e-9)
