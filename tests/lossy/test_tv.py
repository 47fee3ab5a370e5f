"""The total variation frontier against a program without structure."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

import otm
from otm import IID, Problem
from tests.lossy.programs import program, random_problems


class TestTotalVariation:
    def test_against_the_program(self) -> None:
        rng = np.random.default_rng(0)
        for number, problem in enumerate(random_problems(1, 16, max_tokens=4)):
            if number % 5 == 0:
                problem = problem.with_law(otm.Greedy(2))
            distance = float(rng.random() * 0.3)
            within = lambda law, q=problem.target, e=distance: cp.norm1(law - q) <= 2 * e  # noqa: E731
            # 1e-7: the interior-point solver on a degenerate linear program.
            assert otm.lossy.tv_frontier(problem, tv=distance) == pytest.approx(
                program(problem, within), abs=1e-7
            )

    def test_ends_batches_and_parameters(self) -> None:
        rng = np.random.default_rng(2)
        problem = Problem(
            draft=otm.examples.dirichlet(6, rng=rng, rows=3),
            target=otm.examples.dirichlet(6, rng=rng, rows=3),
            law=IID(2),
        )
        np.testing.assert_array_equal(
            otm.lossy.tv_frontier(problem, tv=0.0), otm.optimal_acceptance(problem)
        )
        np.testing.assert_array_equal(otm.lossy.tv_frontier(problem, tv=1.0), np.ones(3))
        for bad in (-0.1, 1.1, float("nan")):
            with pytest.raises(otm.errors.InvalidParameter, match="tv must lie in"):
                otm.lossy.tv_frontier(problem, tv=bad)
