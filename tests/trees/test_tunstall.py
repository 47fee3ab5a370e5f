"""Tunstall's bounds: gold values, the identity, no tree above any bound, and mistakes that some
tree exposes.
"""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import otm
from otm.trees.optimal import optimal_tree, tree_acceptance
from otm.trees.shape import TreeShape
from otm.trees.tunstall import (
    even_spread,
    leaf_entropy,
    tunstall_explored_upper,
    tunstall_minimum_upper,
    tunstall_upper,
)
from otm.trees.vector import entropy_bits, rejected_mass
from tests.trees.instances import shapes, vectors

# Sums of at most 600 terms of relative error 30 u, and one logarithm over an entropy whose error is
# a few u per symbol.
RELATIVE = 1e-12


@settings(max_examples=150)
@given(vectors(is_sorted=False), shapes())
def test_identity_and_bounds_for_any_tree(acceptance, shape):
    symbols = np.append(acceptance, rejected_mass(acceptance))
    # Walk down the tree symbol by symbol: a leaf is a vertex and a symbol that leads nowhere.
    leaves = []
    weights = [1.0] + [0.0] * shape.num_nodes
    for vertex in range(shape.num_nodes + 1):
        children = shape.children(vertex)
        for symbol, mass in enumerate(symbols):
            if symbol < len(children) and symbol < len(acceptance):
                weights[children[symbol]] = weights[vertex] * mass
            else:
                leaves.append(weights[vertex] * mass)
    found = leaf_entropy(acceptance, shape=shape)
    assert found == pytest.approx(entropy_bits(leaves), rel=RELATIVE, abs=1e-12)
    expected = tree_acceptance(acceptance, shape=shape).expected_tokens
    assert found == pytest.approx(expected * entropy_bits(symbols), rel=RELATIVE, abs=1e-12)
    explored = {"num_nodes": shape.num_nodes, "num_explored": max(shape.width, 1)}
    assert expected <= tunstall_upper(acceptance, num_nodes=shape.num_nodes) * (1 + RELATIVE)
    assert expected <= tunstall_minimum_upper(acceptance, **explored).value * (1 + RELATIVE)


@settings(max_examples=70)
@given(
    vectors(is_sorted=True),
    st.sampled_from([0, 1, 2, 3, 10, 100, 600]),
    st.sampled_from([1, 2, 7]),
)
def test_the_best_spread_over_all_m(acceptance, num_nodes, least):
    tree = optimal_tree(acceptance, num_nodes=num_nodes)
    arguments = {"num_nodes": num_nodes, "num_explored": max(tree.shape.width, 1)}
    best = tunstall_minimum_upper(acceptance, **arguments, least_extra=least)
    assert tree.expected_tokens <= best.value * (1 + RELATIVE)
    if best.num_extra == 0:
        assert best.value == tunstall_explored_upper(acceptance, **arguments, num_extra=0)
        return
    scan = [tunstall_explored_upper(acceptance, **arguments, num_extra=m) for m in range(1, 120)]
    assert tree.expected_tokens <= min(scan) * (1 + RELATIVE)
    assert best.num_extra >= least
    assert best.value <= min(scan[least - 1 :]) * (1 + RELATIVE)
    if best.num_extra < 120:
        assert best.value == scan[int(best.num_extra) - 1]
    # Unimodal: once it rises, it does not fall again.
    heights = np.minimum(scan, 1e300)  # some bounds are infinite
    rises = np.diff(heights) > 1e-9 * heights[1:]
    falls = np.diff(heights) < -1e-9 * heights[1:]
    assert not (np.maximum.accumulate(rises) & falls).any()


def test_the_paper_restricts_m_and_less_may_be_better():
    acceptance, arguments = [0.5, 0.02, 0.01], {"num_nodes": 2, "num_explored": 2}
    paper = even_spread(acceptance, num_explored=2)
    assert paper == 24  # (.01 + .47)/.02
    free = tunstall_minimum_upper(acceptance, **arguments)
    restricted = tunstall_minimum_upper(acceptance, **arguments, least_extra=paper)
    assert free.num_extra < paper and free.value < restricted.value - 0.005
    assert even_spread([0.5, 0.5], num_explored=2) == 0
    assert even_spread([0.3] * 3, num_explored=2) == 2  # .3 + .1 over .3
    with pytest.raises(otm.errors.InvalidParameter, match="Explore fewer"):
        even_spread([0.5, 0.0], num_explored=2)


def test_the_paper_s_spread_is_that_of_the_last_rank_explored():
    spreads = [even_spread([0.5, 0.2, 0.1], num_explored=number) for number in (1, 2, 3)]
    assert spreads == [1, 2, 2]  # ⌈.5/.5⌉, ⌈.3/.2⌉, .2/.1
    with pytest.raises(otm.errors.InvalidParameter, match="Rank 3 must have positive"):
        even_spread([0.5, 0.25, 0.0], num_explored=3)


def test_the_limit_of_many_symbols_is_the_plateau():
    # A chain accepted with probability a never yields more than 1/(1 − a) tokens.
    bound = tunstall_minimum_upper([0.6], num_nodes=10**6, num_explored=1)
    assert (bound.num_extra, bound.value) == (math.inf, pytest.approx(2.5, rel=1e-12))


@pytest.mark.parametrize(("rest", "extra"), [([0.05], 0), ([], 1)])
def test_with_everything_explored_the_lemma_is_the_theorem(rest, extra):
    """With nothing left, and with "none" as the rest."""
    vector = [0.6, 0.25, 0.1, *rest]
    found = tunstall_explored_upper(vector, num_nodes=9, num_explored=len(vector), num_extra=extra)
    assert found == pytest.approx(tunstall_upper(vector, num_nodes=9), rel=1e-14)


@pytest.mark.parametrize("num_nodes", [1, 2, 10])
@pytest.mark.parametrize("size", [15, 23, 300])
def test_it_is_rounded_up(size, num_nodes):
    vector = [1 / size] * size
    symbols = [mass for mass in (*vector, rejected_mass(vector)) if mass > 0]
    with mpmath.workdps(40):
        entropy = -sum(mpmath.mpf(mass) * mpmath.log(mass, 2) for mass in symbols)
        bits = mpmath.log(1 + (num_nodes + 1) * (len(symbols) - 1), 2)
        assert tunstall_upper(vector, num_nodes=num_nodes) >= bits / entropy


def test_degenerate_acceptance():
    for lone in ([1.0], [0.0, 1.0], [0.0]):  # one symbol: entropy says nothing
        assert tunstall_upper(lone, num_nodes=5) == math.inf
    assert tunstall_minimum_upper([1.0], num_nodes=5, num_explored=1).value == math.inf
    assert leaf_entropy([1.0], shape=TreeShape.chain(3)) == 0.0
    for extra, vector in ((0, [0.5]), (1, [0.5, 0.5])):
        with pytest.raises(otm.errors.InvalidParameter):
            tunstall_explored_upper(vector, num_nodes=1, num_explored=2, num_extra=extra)
    # The empty tree yields one token: the bound of one bit's worth, rounded up by 8 (1 + H)/H + 8.
    assert 1.0 <= tunstall_upper([0.5, 0.5], num_nodes=0) <= 1.0 + 32 * 2.0**-53
