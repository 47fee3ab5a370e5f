"""What every lossy verifier keeps: its law, its acceptances, the limit of its gain, its sampler,
batches.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.stats import binom

import otm
from otm import IID, Fuzzy, Lenience, Mentored, TypicalAcceptance
from otm.verifiers.base import enumerated_acceptance
from tests import strategies
from tests.verifiers.lossy_instances import ROUNDING, one_draft

FALSE_ALARM = 1e-9
LOSSY = [
    Mentored(0.0),
    Mentored(0.2),
    Mentored(5.0),
    Mentored(float("inf")),
    Lenience(1.0),
    Lenience(0.4),
    Lenience(0.4, residual="scaled"),
    TypicalAcceptance(),
    TypicalAcceptance(eps=0.3, delta=0.9),
    Fuzzy(0.2),
    Fuzzy(0.3, divergence="tv", fallback="speculative"),
    Fuzzy(0.4, divergence="kl"),
]


@pytest.mark.parametrize("verifier", LOSSY, ids=repr)
class TestEveryLossyVerifier:
    @settings(max_examples=40)
    @given(pair=strategies.pairs(max_tokens=5))
    def test_output_law_and_acceptances_are_those_of_the_rule(
        self, verifier: otm.Verifier, pair: tuple[np.ndarray, np.ndarray]
    ) -> None:
        problem = one_draft(pair)
        law, plan = otm.lossy.output_law(verifier, problem), otm.coupling(verifier, problem)
        assert (law >= 0).all()
        assert law.sum() == pytest.approx(1, abs=ROUNDING)
        np.testing.assert_allclose(law, plan.output_marginal, rtol=0, atol=ROUNDING)
        assert otm.acceptance(verifier, problem) == pytest.approx(plan.acceptance, abs=ROUNDING)
        rule = otm.prepare(verifier, problem)
        assert otm.acceptance(verifier, problem, by="rule") == pytest.approx(
            enumerated_acceptance(rule, "rule"), abs=ROUNDING
        )
        assert (
            otm.acceptance(verifier, problem, by="rule")
            <= otm.acceptance(verifier, problem) + ROUNDING
        )

    @settings(max_examples=40)
    @given(pair=strategies.pairs(max_tokens=5))
    def test_the_gain_is_at_most_the_total_variation(
        self, verifier: otm.Verifier, pair: tuple[np.ndarray, np.ndarray]
    ) -> None:
        problem = one_draft(pair)
        spent = otm.lossy.distortion(verifier, problem)
        law = otm.lossy.output_law(verifier, problem)
        assert spent.total_variation == pytest.approx(0.5 * np.abs(law - pair[1]).sum(), abs=1e-15)
        ceiling = otm.lossy.tv_frontier(problem, tv=min(1.0, spent.total_variation))
        assert otm.acceptance(verifier, problem) <= ceiling + ROUNDING
        # Pinsker: TV ≤ √(KL/2).
        assert spent.total_variation <= np.sqrt(0.5 * spent.kl) + 1e-7

    def test_the_sampler_draws_from_the_law(self, verifier: otm.Verifier) -> None:
        p, q = np.array([0.45, 0.3, 0.15, 0.1]), np.array([0.05, 0.35, 0.35, 0.25])
        problem, n = one_draft((p, q)), 100_000
        draws = otm.sample(verifier, problem, size=n, rng=np.random.default_rng(1))
        law = otm.lossy.output_law(verifier, problem)
        tail = FALSE_ALARM / (2 * (len(p) + 1))
        counts = [*np.bincount(draws.output, minlength=4), np.count_nonzero(draws.accepted)]
        for count, mass in zip(
            counts, [*law, otm.acceptance(verifier, problem, by="rule")], strict=True
        ):
            mass = min(1.0, mass)
            assert binom.ppf(tail, n, mass) <= count <= binom.isf(tail, n, mass)

    def test_batches_and_torch(self, verifier: otm.Verifier) -> None:
        import torch

        rng = np.random.default_rng(2)
        p, q = (
            otm.examples.dirichlet(5, rng=rng, rows=6).reshape(2, 3, 5),
            otm.examples.dirichlet(5, rng=rng, rows=6).reshape(2, 3, 5),
        )
        for by in ("membership", "rule"):
            rows = [
                [otm.acceptance(verifier, one_draft((p[i, j], q[i, j])), by=by) for j in range(3)]
                for i in range(2)
            ]
            np.testing.assert_allclose(
                otm.acceptance(verifier, one_draft((p, q)), by=by), rows, rtol=0, atol=1e-14
            )
            batch = otm.acceptance(verifier, one_draft((torch.tensor(p), torch.tensor(q))), by=by)
            assert isinstance(batch, torch.Tensor)
            np.testing.assert_allclose(batch.numpy(), rows, rtol=0, atol=1e-14)

    def test_it_says_that_it_is_lossy_and_verifies_one_draft(self, verifier: otm.Verifier) -> None:
        assert not verifier.lossless
        assert verifier.supports(IID(1))
        assert not verifier.supports(IID(2))
