"""Greedy drafts against rational enumeration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

import otm
from otm.drafts.base import PAD
from tests import exact, strategies
from tests.tolerance import rounding


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
        assert otm.optimal_acceptance(problem) == pytest.approx(value, abs=rounding(len(draft), k))

    def test_ties_go_to_the_lowest_index(self) -> None:
        table = otm.Greedy(3).enumerate(np.full(4, 0.25))
        assert table.tokens.tolist() == [[0, 1, 2], [0, 1, 3]]
        assert table.mass.tolist() == [0.5, 0.5]

    def test_tokens_without_mass_are_never_drafted(self) -> None:
        p = np.array([0.0, 1.0, 0.0])
        for k in (2, 3):
            drafts = [[1] + [PAD] * (k - 1)]
            assert otm.Greedy(k).enumerate(p).tokens.tolist() == drafts
            assert otm.Greedy(k).draw(p, np.zeros((2, 1))).tolist() == 2 * drafts
            problem = otm.Problem(draft=p, target=[0.3, 0.3, 0.4], law=otm.Greedy(k))
            assert otm.optimal_acceptance(problem) == pytest.approx(0.3, abs=1e-16)

    def test_the_rest_is_summed_not_subtracted(self) -> None:
        # 1 − p(0) is 0 in floating point.
        problem = otm.Problem(draft=[1.0, 3e-20, 1e-20], target=[0.1, 0.8, 0.1], law=otm.Greedy(2))
        assert otm.optimal_acceptance(problem) == pytest.approx(0.1 + 0.75 + 0.1, abs=1e-15)
        assert problem.law.containment(
            problem.draft, np.array([True, True, False])
        ) == pytest.approx(0.75, abs=1e-15)
