"""SpecHub: its closed form in fractions, and the hub alone."""

import numpy as np
import pytest
from hypothesis import given

import otm
from otm.drafts.base import PAD
from tests import exact, strategies
from tests.tolerance import rounding
from tests.verifiers.rational import problem_of


class TestSpecHub:
    @given(pair=strategies.pairs(min_tokens=2))
    def test_the_closed_form_is_the_optimum(self, pair):
        """q(a) + Σ min(q(i), p(i)/(1 − p(a))), and the steps accept as much."""
        problem = problem_of(pair, otm.Greedy(2))
        p, q = exact.exact(problem.draft), exact.exact(problem.target)
        hub = p.index(max(p))
        accepted = q[hub] + sum(
            min(b, a / (1 - p[hub]))
            for i, (a, b) in enumerate(zip(p, q, strict=True))
            if i != hub and p[hub] < 1
        )
        due = pytest.approx(float(accepted), abs=rounding(len(p), 2))
        plan = otm.coupling(otm.SpecHub(), problem)
        np.testing.assert_allclose(plan.output_marginal, problem.target, atol=rounding(len(p), 2))
        assert plan.acceptance == due
        assert otm.acceptance(otm.SpecHub(), problem) == due
        assert otm.acceptance(otm.GreedyOptimal(), problem) == due

    def test_a_hub_alone(self):
        rule = otm.prepare(otm.SpecHub(), problem_of(([1.0, 0.0], [0.3, 0.7]), otm.Greedy(2)))
        output, accepted = rule.verify(np.array([[0, PAD]]), np.zeros((1, 4)), None)
        assert (output.tolist(), accepted.tolist()) == ([0], [True])
