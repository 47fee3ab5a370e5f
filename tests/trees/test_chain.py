"""Leviathan's chain formulas against sums and scans."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

import otm
from otm.trees.chain import chain_expected_tokens, chain_speedup, optimal_chain_length
from otm.trees.cost import choose_tree
from otm.trees.optimal import tree_acceptance
from otm.trees.shape import TreeShape
from tests.tolerance import UNIT_ROUNDOFF


class TestChain:
    @given(st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0, 1 - 2.0**-53, 1 - 1e-9, 1e-300])), st.integers(0, 40))
    def test_expected_tokens_are_a_geometric_sum(self, acceptance: float, length: int) -> None:
        wanted = (
            sum(Fraction(acceptance) ** i for i in range(length + 1)) if acceptance > 1e-9 else 1 + acceptance * (length > 0)
        )
        # log, product, expm1, quotient: (γ + 1)·|log a| ≥ the relative condition, so 4 + 2 roundings.
        assert chain_expected_tokens(acceptance, length=length) == pytest.approx(float(wanted), rel=16 * UNIT_ROUNDOFF)

    def test_it_is_the_chain_as_a_tree(self) -> None:
        tree = tree_acceptance([0.7], shape=TreeShape.chain(6))
        assert chain_expected_tokens(0.7, length=6) == pytest.approx(tree.expected_tokens, rel=1e-14)
        assert chain_speedup(0.7, length=6, cost_ratio=0.1) == pytest.approx(tree.expected_tokens / 1.6, rel=1e-14)

    @given(st.floats(0, 1), st.floats(0, 1.2))
    def test_the_optimal_length_by_scanning(self, acceptance: float, ratio: float) -> None:
        found = optimal_chain_length(acceptance, cost_ratio=ratio, max_length=60)
        scan = [chain_speedup(acceptance, length=n, cost_ratio=ratio) for n in range(61)]
        assert scan[found] >= max(scan) * (1 - 1e-12)

    def test_known_choices(self) -> None:
        assert optimal_chain_length(0.5, cost_ratio=0.5) == 0  # a ≤ c: no draft pays
        assert optimal_chain_length(0.5, cost_ratio=0.49) == 1
        assert optimal_chain_length(1.0, cost_ratio=0.1, max_length=33) == 33
        assert optimal_chain_length(0.3, cost_ratio=0.0, max_length=5) == 5

    def test_agrees_with_the_tree_chooser(self) -> None:
        choice = choose_tree([0.8], draft_seconds=0.001, target_seconds=lambda n: 0.02, max_nodes=50)
        length = optimal_chain_length(0.8, cost_ratio=0.05)
        assert choice.tree.shape == TreeShape.chain(length)
        assert choice.speedup == pytest.approx(chain_speedup(0.8, length=length, cost_ratio=0.05), rel=1e-13)

    def test_bad_arguments(self) -> None:
        for call in (
            lambda: chain_expected_tokens(1.1, length=1),
            lambda: chain_expected_tokens(0.5, length=-1),
            lambda: chain_speedup(0.5, length=1, cost_ratio=-0.1),
            lambda: chain_speedup(0.5, length=0, cost_ratio=math.inf),
            lambda: optimal_chain_length(math.nan, cost_ratio=0.1),
            lambda: optimal_chain_length(0.5, cost_ratio=0.1, max_length=2.5),
        ):
            with pytest.raises(otm.errors.InvalidParameter):
                call()
