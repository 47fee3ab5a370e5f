"""Select, then reject: any selection is lossless and accepts what it says, the plan
loses nothing.
"""

import numpy as np
import pytest
from hypothesis import given, strategies as st

import otm
from otm.drafts.base import PAD, enumerate_drafts
from tests import strategies
from tests.tolerance import rounding
from tests.verifiers.rational import problem_of


def weights_from(seed):
    """An arbitrary selection rule: weights that depend on the drafted tokens in no
    particular way.
    """

    def rule(problem, drafts):
        weights = 1.1 + np.sin(
            seed + 3 * drafts + np.cumsum(drafts, axis=1) * np.arange(1, drafts.shape[1] + 1)
        )
        weights = np.where(drafts == PAD, 0.0, weights)
        return weights / weights.sum(axis=1, keepdims=True)

    return rule


class TestSelectThenReject:
    @given(pair=strategies.pairs(min_tokens=3), seed=st.integers(0, 100), which=st.integers(0, 3))
    def test_any_selection_is_lossless_and_accepts_what_it_says(self, pair, seed, which):
        law = (otm.IID(2), otm.WithoutReplacement(3), otm.Greedy(2), otm.TopK(2))[which]
        problem = problem_of(pair, law)
        verifier = otm.SelectThenReject(weights_from(seed))
        plan = otm.coupling(verifier, problem)
        tolerance = rounding(problem.num_tokens, law.size)
        assert np.abs(plan.output_marginal - problem.target).max() <= tolerance
        table = enumerate_drafts(law, problem.draft)
        weights = weights_from(seed)(problem, table.tokens) * table.mass[:, None]
        s = np.bincount((table.tokens % problem.num_tokens).flat, weights.flat, problem.num_tokens)
        by_rule = float(np.minimum(s, problem.target).sum())
        assert otm.acceptance(verifier, problem, by="rule") == pytest.approx(by_rule, abs=tolerance)
        assert otm.acceptance(verifier, problem) == pytest.approx(plan.acceptance, abs=tolerance)

    def test_the_plan_loses_nothing(self):
        draft, target = otm.examples.dirichlet(6, rng=np.random.default_rng(2), rows=2)
        for law in (otm.IID(3), otm.WithoutReplacement(3), otm.Greedy(3), otm.TopK(2)):
            problem = otm.Problem(draft=draft, target=target, law=law)
            found = otm.acceptance(otm.SelectThenReject(), problem, by="rule")
            assert found == pytest.approx(otm.optimal_acceptance(problem), abs=1e-9)
        # what the law never draws is chosen from evenly
        two = problem_of(([0.5, 0.5, 0.0], [0.2, 0.3, 0.5]), otm.TopK(2))
        chosen = otm.prepare(otm.SelectThenReject(), two).selection(two, np.array([[2, 0], [2, 2]]))
        assert chosen.tolist() == [[0.5, 0.5], [1.0, 0.0]]

    def test_a_law_inside_the_core_can_be_had_and_one_outside_is_refused(self):
        problem = otm.Problem(draft=[0.5, 0.3, 0.2], target=[0.2, 0.2, 0.6], law=otm.IID(2))
        # s({0}) ≥ .25, s({1}) ≥ .09, s({2}) ≥ .04, s({0, 1}) ≥ .64, s({0, 2}) ≥ .49, s({1, 2}) ≥
        # .25: a vertex of the core.
        wanted = np.array([0.25, 0.39, 0.36])
        rule = otm.prepare(
            otm.SelectThenReject(otm.verifiers.selection_with_law(problem, law=wanted)), problem
        )
        np.testing.assert_allclose(rule.law, wanted, atol=2e-9)
        with pytest.raises(
            otm.errors.InvalidParameter, match=r"falls short by 0\.01 on B = \[0, 1\]"
        ):
            otm.verifiers.selection_with_law(problem, law=[0.25, 0.38, 0.37])

    @pytest.mark.parametrize(
        ("selection", "message"),
        [
            (
                lambda drafts: np.ones(len(drafts)),
                r"one weight per draft, shape \(2, 3\); got \(2,\)",
            ),
            (lambda drafts: np.ones(drafts.shape), "a row misses 1 by 2"),
            (lambda drafts: np.tile([1.5, -0.5, 0.0], (len(drafts), 1)), "smallest is -0.5"),
            (lambda drafts: np.full(drafts.shape, np.nan), "Normalise them"),
            (lambda drafts: np.full(drafts.shape, 1 / 3), "0 on padding"),
        ],
    )
    def test_bad_weights_are_refused(self, selection, message):
        law = otm.WithoutReplacement(3)
        problem = otm.Problem(draft=[0.5, 0.5, 0.0], target=[0.2, 0.2, 0.6], law=law)
        with pytest.raises(otm.errors.InvalidParameter, match=message):
            otm.prepare(otm.SelectThenReject(lambda _, drafts: selection(drafts)), problem)
