"""The cost-aware chooser against every tree of at most six vertices."""

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import otm
from otm.engines.chain import optimal_chain_length
from otm.engines.positions import PositionAcceptance
from otm.trees.cost import choose_tree, target_seconds_at
from otm.trees.optimal import tree_acceptance
from otm.trees.shape import TreeShape
from tests.trees.instances import by_vector, forests, height, value, vectors

MEASURED = {0: 0.020, 1: 0.0201, 4: 0.021, 16: 0.024, 64: 0.048}


@settings(max_examples=40)
@given(
    vectors(is_sorted=True),
    st.sampled_from([0.0, 1e-4, 0.002, 0.02]),
    st.sampled_from([0.0, 0.0005, 0.004]),
)
def test_no_tree_is_faster(acceptance, draft_seconds, per_node):
    seconds = [0.02 + per_node * n for n in range(7)]
    best = max(
        (1 + value(forest, by_vector(acceptance))) / (height(forest) * draft_seconds + seconds[n])
        for n in range(7)
        for forest in forests(n)
    )
    choice = choose_tree(
        acceptance, draft_seconds=draft_seconds, target_seconds=lambda n: seconds[n], max_nodes=6
    )
    assert choice.tokens_per_second == pytest.approx(best, rel=1e-12)
    # What it promises is what its tree costs and yields.
    tree = choice.tree.shape
    costs = tree.depth * draft_seconds + seconds[choice.budget]
    assert choice.seconds == pytest.approx(costs, rel=1e-14)
    assert choice.tree.expected_tokens == pytest.approx(
        tree_acceptance(acceptance, shape=tree).expected_tokens, rel=1e-13
    )
    assert choice.budget >= tree.num_nodes
    assert choice.speedup == pytest.approx(choice.tokens_per_second * seconds[0])
    assert choice.speedup >= 1


@pytest.mark.parametrize(("acceptance", "most"), [(0.3, 8), (0.9, 0)])
def test_drafting_that_does_not_pay_is_not_chosen(acceptance, most):
    choice = choose_tree([acceptance], draft_seconds=0.01, target_seconds=MEASURED, max_nodes=most)
    assert (choice.tree.num_nodes, choice.budget, choice.speedup) == (0, 0, 1.0)


def test_limits_and_budgets_are_kept():
    acceptance = [0.6, 0.25, 0.1]
    arguments = {"draft_seconds": 1e-4, "target_seconds": MEASURED, "max_nodes": 64}
    assert choose_tree(acceptance, **arguments, max_depth=2).tree.shape.depth <= 2
    assert choose_tree(acceptance, **arguments, max_width=1).tree.shape.width == 1
    chosen = choose_tree(acceptance, **arguments, budgets=[8, 16, 32, 100])
    every = choose_tree(acceptance, **arguments)
    assert chosen.budget in (8, 16, 32)
    assert every.tokens_per_second >= chosen.tokens_per_second
    function = choose_tree(by_vector(np.array(acceptance)), **arguments, order=0)
    assert function.tokens_per_second == pytest.approx(every.tokens_per_second, rel=1e-12)
    # A chain of one rank is accepted as far as it goes; the engine pads the rest of the budget.
    padded = choose_tree(
        [1.0], draft_seconds=0.0, target_seconds=MEASURED, max_nodes=16, max_depth=3, budgets=[16]
    )
    assert (padded.tree.shape, padded.budget, padded.seconds) == (TreeShape.chain(3), 16, 0.024)


def test_measurements_are_interpolated():
    found = target_seconds_at(MEASURED, num_nodes=[0, 10, 64])
    np.testing.assert_allclose(found, [0.020, 0.0225, 0.048], rtol=1e-15)
    np.testing.assert_allclose(target_seconds_at(lambda n: 1.0 + n, num_nodes=[0, 3]), [1, 4])


@pytest.mark.parametrize(
    "bad",
    [{1: 0.02, 64: 0.03}, {0: 0.02, 8: 0.03}, {}, {0: -1.0, 64: 1.0}, {0: math.nan, 64: 1.0}],
)
def test_measurements_are_never_extrapolated(bad):
    with pytest.raises(otm.errors.InvalidParameter):
        choose_tree([0.5], draft_seconds=0.001, target_seconds=bad, max_nodes=64)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: choose_tree(
                [0.5], draft_seconds=0.1, target_seconds=lambda n: 1.0, max_nodes=10**9
            ),
            "budgets",
        ),
        (lambda: otm.trees.rank_counts([0], [10**12]), "ranks"),
        (
            lambda: otm.sequence.markov_pair(2, order=10**6, rng=np.random.default_rng(0)),
            r"V\^1000001",
        ),
    ],
)
def test_sizes_are_checked_before_memory_is_taken(call, said):
    with pytest.raises(otm.errors.TooLarge, match=said):
        call()


def test_a_chain_that_stops_where_it_was_measured_says_so():
    """Drafts accepted with probability .9 at a fortieth of a call: three measured positions give
    3.2 times, 18 the most.
    """
    chain = PositionAcceptance([0.9, 0.9**2, 0.9**3])
    cost = {"draft_seconds": 0.025, "target_seconds": lambda n: 1.0, "max_nodes": 40}
    measured, longer = (choose_tree(one.by_path(), **cost) for one in (chain, chain.extended(40)))
    assert (measured.tree.num_nodes, measured.reach) == (3, "at the limit")
    assert measured.speedup == pytest.approx((1 + 0.9 + 0.81 + 0.729) / 1.075)
    length = optimal_chain_length(0.9, cost_ratio=0.025)
    assert (longer.tree.num_nodes, longer.reach) == (length, "beyond")
    for acceptance, changed in (
        (chain.by_path(), {"max_nodes": 2}),
        (chain.by_path(), {"draft_seconds": 1.0}),
        ([0.9], {}),  # a vector stands for every depth
    ):
        assert choose_tree(acceptance, **(cost | changed)).reach == "inside"
