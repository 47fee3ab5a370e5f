"""Greedy drafts against rational enumeration."""

import numpy as np
import pytest

import otm


class TestGreedy:
    def test_ties_go_to_the_lowest_index(self):
        table = otm.Greedy(3).enumerate(np.full(4, 0.25))
        assert table.tokens.tolist() == [[0, 1, 2], [0, 1, 3]]
        assert table.mass.tolist() == [0.5, 0.5]

    def test_the_rest_is_summed_not_subtracted(self):
        # 1 − p(0) is 0 in floating point.
        problem = otm.Problem(draft=[1.0, 3e-20, 1e-20], target=[0.1, 0.8, 0.1], law=otm.Greedy(2))
        assert otm.optimal_acceptance(problem) == pytest.approx(0.1 + 0.75 + 0.1, abs=1e-15)
        assert problem.law.containment(
            problem.draft, np.array([True, True, False])
        ) == pytest.approx(0.75, abs=1e-15)
