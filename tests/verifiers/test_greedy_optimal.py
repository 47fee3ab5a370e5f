"""The optimal verifier for greedy drafts: it attains the optimum by enumeration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

import otm
from otm.verifiers.base import enumerated_acceptance
from tests import exact, strategies
from tests.tolerance import rounding
from tests.verifiers.rational import problem_of


class TestGreedyOptimal:
    @given(pair=strategies.pairs(), k=st.integers(1, 4))
    def test_it_attains_the_optimum_by_enumeration(
        self, pair: tuple[np.ndarray, np.ndarray], k: int
    ) -> None:
        problem = problem_of(pair, otm.Greedy(min(k, len(pair[0]))))
        plan = otm.coupling(otm.GreedyOptimal(), problem)
        tolerance = rounding(problem.num_tokens, k)
        assert np.abs(plan.output_marginal - problem.target).max() <= tolerance
        table = problem.law.enumerate(np.asarray(exact.exact(problem.draft), dtype=object))
        best = float(
            exact.optimum_from_table(
                table.tokens.tolist(), list(table.mass), exact.exact(problem.target)
            )
        )
        assert plan.acceptance == pytest.approx(best, abs=tolerance)
        assert enumerated_acceptance(
            otm.prepare(otm.GreedyOptimal(), problem), "rule"
        ) == pytest.approx(best, abs=tolerance)
