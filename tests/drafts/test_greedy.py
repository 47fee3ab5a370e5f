"""Greedy drafts against rational enumeration."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st

import otm
from otm.drafts.base import PAD
from tests import exact, strategies
from tests.drafts.rational import F, ranked
from tests.tolerance import rounding


def greedy_optimum(p: exact.Masses, q: exact.Masses, k: int) -> Fraction:
    """Q(top) + Σ_{i ∉ top} min(q_i, p_i/(1 − P(top))), over tokens that can be drafted."""
    top = [x for x in ranked(p)[: k - 1] if p[x] > 0]
    left = 1 - sum((p[x] for x in top), F(0))
    value = sum((q[x] for x in top), F(0))
    if left > 0:
        value += sum((min(q[x], p[x] / left) for x in range(len(p)) if x not in top), F(0))
    return value


class TestGreedy:
    @given(pair=strategies.pairs(max_tokens=6), k=st.integers(1, 4))
    def test_closed_form_and_cut_over_the_enumeration(
        self, pair: tuple[np.ndarray, np.ndarray], k: int
    ) -> None:
        draft, target = pair
        k = min(k, len(draft))
        law = otm.Greedy(k)
        problem = otm.Problem(draft=draft, target=target, law=law)
        p, q = exact.exact(problem.draft), exact.exact(problem.target)
        table = law.enumerate(np.asarray(p, dtype=object))
        value = float(exact.optimum_from_table(table.tokens.tolist(), list(table.mass), q))
        assert value == float(greedy_optimum(p, q, k))
        assert otm.optimal_acceptance(problem) == pytest.approx(value, abs=rounding(len(draft), k))

    def test_by_hand(self) -> None:
        problem = otm.Problem(draft=[0.2, 0.5, 0.3], target=[0.6, 0.2, 0.2], law=otm.Greedy(2))
        assert otm.optimal_acceptance(problem) == pytest.approx(0.2 + 0.4 + 0.2, abs=rounding(3, 2))
        assert otm.optimal_cut(problem).tolist() == [False, True, True]
        assert otm.optimal_acceptance_curve(problem, k=[1, 3]) == pytest.approx(
            [0.6, 1.0], abs=rounding(3, 3)
        )

    def test_one_greedy_draft_is_a_single_draft(self) -> None:
        rng = np.random.default_rng(0)
        p, q = (
            otm.examples.dirichlet(50, rng=rng, rows=20),
            otm.examples.dirichlet(50, rng=rng, rows=20),
        )
        greedy = otm.optimal_acceptance(otm.Problem(draft=p, target=q, law=otm.Greedy(1)))
        single = otm.optimal_acceptance(otm.Problem(draft=p, target=q, law=otm.IID(1)))
        np.testing.assert_allclose(greedy, single, atol=rounding(50, 1))

    def test_ties_go_to_the_lowest_index(self) -> None:
        table = otm.Greedy(3).enumerate(np.full(4, 0.25))
        assert table.tokens.tolist() == [[0, 1, 2], [0, 1, 3]]
        assert table.mass.tolist() == [0.5, 0.5]

    def test_tokens_without_mass_are_never_drafted(self) -> None:
        p = np.array([0.0, 1.0, 0.0])
        for k in (2, 3):
            assert otm.Greedy(k).enumerate(p).tokens.tolist() == [[1] + [PAD] * (k - 1)]
            problem = otm.Problem(draft=p, target=[0.3, 0.3, 0.4], law=otm.Greedy(k))
            assert otm.optimal_acceptance(problem) == pytest.approx(0.3, abs=1e-16)

    def test_the_rest_is_summed_not_subtracted(self) -> None:
        # 1 − p(0) is 0 in floating point.
        problem = otm.Problem(draft=[1.0, 3e-20, 1e-20], target=[0.1, 0.8, 0.1], law=otm.Greedy(2))
        assert otm.optimal_acceptance(problem) == pytest.approx(0.1 + 0.75 + 0.1, abs=1e-15)
        assert problem.law.containment(
            problem.draft, np.array([True, True, False])
        ) == pytest.approx(0.75, abs=1e-15)
