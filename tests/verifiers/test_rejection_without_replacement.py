"""Recursive rejection without replacement: paths in fractions, the look-up against the definition,
real size.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

import otm
from otm.drafts.base import enumerate_drafts
from otm.verifiers import rejection_without_replacement as wor
from otm.verifiers.base import enumerated_acceptance
from tests import exact, strategies
from tests.tolerance import rounding
from tests.verifiers.rational import F, problem_of, recursive_without_replacement


class TestRecursiveRejectionWithoutReplacement:
    @given(pair=strategies.pairs(), k=st.integers(1, 3))
    def test_paths_in_rational_arithmetic(
        self, pair: tuple[np.ndarray, np.ndarray], k: int
    ) -> None:
        problem = problem_of(pair, otm.WithoutReplacement(min(k, len(pair[0]))))
        p, q = exact.exact(problem.draft), exact.exact(problem.target)
        accepted, output = recursive_without_replacement(p, q, k)
        assert output == q
        tolerance = rounding(len(p), k)
        rule = otm.prepare(otm.RecursiveRejection(), problem)
        for by in ("membership", "rule"):
            assert otm.acceptance(otm.RecursiveRejection(), problem, by=by) == pytest.approx(
                float(accepted), abs=tolerance
            )
            assert enumerated_acceptance(rule, by) == pytest.approx(float(accepted), abs=tolerance)
        np.testing.assert_allclose(
            otm.coupling(otm.RecursiveRejection(), problem).output_marginal,
            problem.target,
            atol=tolerance,
        )

    @given(pair=strategies.pairs(min_tokens=2), k=st.integers(1, 4))
    def test_the_look_up_equals_the_definition_on_every_path(
        self, pair: tuple[np.ndarray, np.ndarray], k: int
    ) -> None:
        """Residuals and acceptance probabilities of the sampler (running sums) against `split`
        (whole vectors).
        """
        problem = problem_of(pair, otm.WithoutReplacement(min(k, len(pair[0]))))
        rule = otm.prepare(otm.RecursiveRejection(), problem)
        assert isinstance(rule, wor.RecursiveRejectionWithoutReplacementRule)
        table = enumerate_drafts(problem.law, problem.draft)
        tokens, mass = table.tokens[table.mass > 0], table.mass[table.mass > 0]
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

    def test_gold_row_4(self) -> None:
        target = [F(37, 250), F(21, 500), F(149, 200), F(1, 20), F(3, 200)]
        draft = [F(62, 125), F(17, 125), F(151, 1000), F(1, 125), F(209, 1000)]
        problem = otm.Problem(
            draft=[float(x) for x in draft],
            target=[float(x) for x in target],
            law=otm.WithoutReplacement(3),
        )
        value = otm.acceptance(otm.RecursiveRejection(), problem)
        assert value == pytest.approx(
            float(recursive_without_replacement(draft, target, 3)[0]), abs=rounding(5, 3)
        )
        assert value < float(F(4440878158613, 5062093092000)) - 1e-3  # not optimal here

    @pytest.mark.parametrize(("num_tokens", "k"), [(9, 5), (30, 3), (300, 2)])
    def test_larger_instances_against_the_definition(self, num_tokens: int, k: int) -> None:
        rng = np.random.default_rng(num_tokens)
        p, q = (
            otm.examples.dirichlet(num_tokens, rng=rng, concentration=0.5),
            otm.examples.dirichlet(num_tokens, rng=rng, concentration=0.5),
        )
        problem = otm.Problem(draft=p, target=q, law=otm.WithoutReplacement(k))
        enumerated = enumerated_acceptance(otm.prepare(otm.RecursiveRejection(), problem), "rule")
        assert otm.acceptance(otm.RecursiveRejection(), problem) == pytest.approx(
            enumerated, abs=rounding(num_tokens, k)
        )

    def test_two_drafts_at_full_vocabulary(self) -> None:
        rng = np.random.default_rng(0)
        problem = otm.Problem(
            draft=otm.examples.dirichlet(128_256, rng=rng),
            target=otm.examples.dirichlet(128_256, rng=rng),
            law=otm.WithoutReplacement(2),
        )
        value = otm.acceptance(otm.RecursiveRejection(), problem)
        # With replacement the second draft may repeat a rejected one, at most a matter of max p
        # here.
        iid = otm.acceptance(otm.RecursiveRejection(), problem.with_law(otm.IID(2)))
        assert iid < value < iid + 10 * problem.draft.max()

    def test_too_many_paths_are_refused_with_the_way_out(self) -> None:
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
        assert (
            otm.estimate(
                otm.RecursiveRejection(), problem, samples=100, rng=np.random.default_rng(0)
            ).samples
            == 100
        )

    def test_a_support_smaller_than_k(self) -> None:
        draft, target = [0.6, 0.4, 0.0], [0.3, 0.3, 0.4]
        problem = otm.Problem(draft=draft, target=target, law=otm.WithoutReplacement(3))
        value, output = recursive_without_replacement(exact.exact(draft), exact.exact(target), 3)
        assert otm.acceptance(otm.RecursiveRejection(), problem) == pytest.approx(
            float(value), abs=rounding(3, 3)
        )
        assert output == exact.exact(target)
