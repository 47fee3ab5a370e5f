"""Leviathan's chain formulas against sums and scans."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import otm
from otm.engines.chain import chain_expected_tokens, chain_speedup, optimal_chain_length
from otm.trees.optimal import tree_acceptance
from otm.trees.shape import TreeShape
from tests.tolerance import UNIT_ROUNDOFF


class TestChain:
    @given(
        st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0, 1 - 2.0**-53, 1 - 1e-9, 1e-300])),
        st.integers(0, 40),
    )
    def test_expected_tokens_are_a_geometric_sum(self, acceptance: float, length: int) -> None:
        wanted = (
            sum(Fraction(acceptance) ** i for i in range(length + 1))
            if acceptance > 1e-9
            else 1 + acceptance * (length > 0)
        )
        # log, product, expm1, quotient: (γ + 1)·|log a| ≥ the relative condition, so 4 + 2
        # roundings.
        assert chain_expected_tokens(acceptance, length=length) == pytest.approx(
            float(wanted), rel=16 * UNIT_ROUNDOFF
        )

    def test_it_is_the_chain_as_a_tree(self) -> None:
        tree = tree_acceptance([0.7], shape=TreeShape.chain(6))
        assert chain_expected_tokens(0.7, length=6) == pytest.approx(
            tree.expected_tokens, rel=1e-14
        )
        assert chain_speedup(0.7, length=6, cost_ratio=0.1) == pytest.approx(
            tree.expected_tokens / 1.6, rel=1e-14
        )

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


class TestArraysOfAcceptances:
    EDGES = (0.0, 1e-300, 0.3, 0.7, 1 - 1e-9, 1 - 2.0**-53, 1.0)

    @pytest.mark.parametrize("length", [0, 1, 2, 7, 40, 2**40])
    def test_they_are_the_numbers_in_turn(self, length: int) -> None:
        for array in (
            np.array([self.EDGES] * 2),
            torch.tensor([self.EDGES] * 2, dtype=torch.float64),
        ):
            found = chain_expected_tokens(array, length=length)
            assert type(found) is type(array)
            wanted = [chain_expected_tokens(value, length=length) for value in self.EDGES]
            np.testing.assert_allclose(np.asarray(found), [wanted] * 2, rtol=1e-15)
        assert isinstance(chain_expected_tokens(np.array(0.5), length=length), float)

    @pytest.mark.parametrize("length", [0, 1, 2, 7, 40])
    def test_the_derivative_is_a_sum_without_differences(self, length: int) -> None:
        given = torch.tensor(self.EDGES, dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(chain_expected_tokens(given, length=length).sum(), given)
        wanted = [
            float(sum(i * Fraction(a) ** (i - 1) for i in range(1, length + 1))) for a in self.EDGES
        ]
        # Some 2 log₂(γ + 1) products and sums of non-negative numbers, each relative to a u: powers
        # double what is below them.
        np.testing.assert_allclose(slope.numpy(), wanted, rtol=8 * (length + 1) * UNIT_ROUNDOFF)

    def test_the_derivative_of_endless_chains(self) -> None:
        given = torch.tensor([0.5, 0.75], dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(chain_expected_tokens(given, length=2**53 - 1).sum(), given)
        np.testing.assert_allclose(slope.numpy(), [4.0, 16.0], rtol=1e-12)  # 1/(1 − a)²

    @pytest.mark.parametrize(
        "bad",
        [
            np.array([0.5, 1.5]),
            np.array([0.5, np.nan]),
            np.array([True]),
            np.ma.array([0.5], mask=[1]),
        ],
    )
    def test_what_is_no_probability_is_refused(self, bad: np.ndarray) -> None:
        with pytest.raises(otm.errors.InvalidParameter):
            chain_expected_tokens(bad, length=2)
