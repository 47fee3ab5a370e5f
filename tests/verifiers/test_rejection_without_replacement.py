"""Recursive rejection without replacement: paths in fractions, the look-up against the definition,
real size.
"""

import numpy as np
import pytest
from hypothesis import given, strategies as st

import otm
from otm.drafts.base import live_drafts
from otm.verifiers import rejection_without_replacement as wor
from otm.verifiers.base import enumerated_acceptance
from tests import exact, strategies
from tests.tolerance import rounding
from tests.verifiers.rational import problem_of


class TestRecursiveRejectionWithoutReplacement:
    @given(pair=strategies.pairs(), k=st.integers(1, 3))
    def test_paths_in_rational_arithmetic(self, pair, k):
        problem = problem_of(pair, otm.WithoutReplacement(min(k, len(pair[0]))))
        p, q = exact.exact(problem.draft), exact.exact(problem.target)
        accepted = float(exact.recursive_rejection(p, q, k, distinct=True))
        rule = otm.prepare(otm.RecursiveRejection(), problem)
        for by in ("membership", "rule"):
            found = otm.acceptance(otm.RecursiveRejection(), problem, by=by)
            assert found == pytest.approx(accepted, abs=rounding(len(p), k))
            found = enumerated_acceptance(rule, by)
            assert found == pytest.approx(accepted, abs=rounding(len(p), k))

    @given(pair=strategies.pairs(min_tokens=2), k=st.integers(1, 4))
    def test_the_look_up_equals_the_definition_on_every_path(self, pair, k):
        """Residuals and acceptance probabilities of the sampler (running sums) against `split`
        (whole vectors).
        """
        problem = problem_of(pair, otm.WithoutReplacement(min(k, len(pair[0]))))
        rule = otm.prepare(otm.RecursiveRejection(), problem)
        assert isinstance(rule, wor.RecursiveRejectionWithoutReplacementRule)
        table = live_drafts(problem.law, problem.draft)
        tokens, mass = table.tokens, table.mass
        keep, _ = rule.stages(tokens)
        accepted, residual = rule.split(tokens)
        reaching = np.ones(len(tokens))
        for stage in range(keep.shape[1]):
            here = accepted[np.arange(len(tokens)), tokens[:, stage]]
            # Weighted by the probability of the path: relative to it a residual made of rounding
            # may be anything.
            np.testing.assert_allclose(
                mass * here, mass * reaching * keep[:, stage], atol=rounding(5, 4)
            )
            reaching = reaching * (1.0 - keep[:, stage])
        np.testing.assert_allclose(
            mass * residual.sum(axis=1), mass * reaching, atol=rounding(5, 4)
        )

    def test_a_draft_that_is_rejected_has_mass(self):
        """Token 2 alone is left, below the rounding of all sums before it."""
        sums = wor.Residuals.of(np.array([0.5, 0.5, 1e-18, 0.0]), np.array([0.3, 0.7, 0.0, 0.0]))
        start, most = np.zeros(1), np.array([1 - 2.0**-53])
        after = sums.next(start, sums.mass(start), np.ones(1))
        assert sums.draw_rejected(start, after, np.array([[0]]), most).tolist() == [2]

    def test_too_many_paths_are_refused_with_the_way_out(self):
        problem = otm.Problem(
            draft=otm.examples.uniform(300),
            target=otm.examples.zipf(300),
            law=otm.WithoutReplacement(4),
        )
        with pytest.raises(
            otm.errors.TooLarge,
            match=(
                r"10,000,000 paths.*has 26,730,600\. Call otm\.verifiers\.rao_blackwell_acceptance "
                r"or otm\.estimate"
            ),
        ):
            otm.acceptance(otm.RecursiveRejection(), problem)
