"""Mentored decoding against an independent cone program, its optimality conditions and its ends."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import otm
from otm import Mentored
from tests import strategies
from tests.verifiers.lossy_instances import ROUNDING, one_draft


def mentored_program(p: np.ndarray, q: np.ndarray, budget: float) -> float:
    """Max Σ min(p, π) subject to Σ q log(q/π) ≤ D: no structure used."""
    law, matched = cp.Variable(len(p), nonneg=True), cp.Variable(len(p))
    live = np.flatnonzero(q > 0)
    spent = float(q[live] @ np.log(q[live])) - q[live] @ cp.log(law[live])
    constraints = [matched <= p, matched <= law, cp.sum(law) == 1, spent <= budget]
    precise = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
    return float(
        cp.Problem(cp.Maximize(cp.sum(matched)), constraints).solve(solver="CLARABEL", **precise)
    )


class TestMentored:
    def test_the_worked_instance_where_the_plain_clip_gives_one_half(self) -> None:
        problem = one_draft((np.array([0.5, 0.3, 0.2]), np.array([0.0, 0.5, 0.5])))
        assert otm.acceptance(Mentored(0.3), problem) == pytest.approx(0.759182, abs=5e-7)
        # By hand: mass m on token 0, the rest q/β on both others (both below p·β): Σ q log(q/π) =
        # −log(1 − m) + ... = D.
        law = otm.lossy.output_law(Mentored(0.3), problem)
        assert law[0] == pytest.approx(otm.acceptance(Mentored(0.3), problem) - 0.5, abs=1e-12)
        assert otm.lossy.distortion(Mentored(0.3), problem).kl == pytest.approx(0.3, abs=1e-12)

    def test_against_the_cone_program(self) -> None:
        rng = np.random.default_rng(3)
        for trial in range(40):
            V = int(rng.integers(2, 12))
            p, q = rng.dirichlet(np.ones(V)), rng.dirichlet(np.ones(V))
            if trial % 2:
                q[rng.integers(V)] = 0.0
                q /= q.sum()
            budget = float(rng.choice([0.01, 0.1, 0.5, 1.5]) * (0.5 + rng.random()))
            value = otm.acceptance(Mentored(budget), one_draft((p, q)))
            # 1e-8: the interior-point solver's accuracy; over these instances it is 1e-10 to 1e-9.
            assert value == pytest.approx(mentored_program(p, q, budget), abs=1e-8), (
                trial,
                p,
                q,
                budget,
            )

    @settings(max_examples=150)
    @given(
        pair=strategies.pairs(max_tokens=6),
        budget=st.one_of(st.floats(1e-9, 4.0), st.sampled_from([1e-14, 1e-12, 0.01, 0.3, 1.0])),
    )
    def test_optimality_conditions(
        self, pair: tuple[np.ndarray, np.ndarray], budget: float
    ) -> None:
        """π/p is q/α where low, 1 between, q/β where high; and the budget is spent unless every
        draft is accepted.
        """
        problem = one_draft(pair)
        p, q = problem.draft, problem.target
        law, spent = (
            otm.lossy.output_law(Mentored(budget), problem),
            otm.lossy.distortion(Mentored(budget), problem),
        )
        value = otm.acceptance(Mentored(budget), problem)
        # An acceptance probability within 2^-53 of 1 rounds to 1: the rule then never rejects, and
        # a token that only rejections reach, of target mass below that, drops out. KL is infinite
        # there by the letter, and says so.
        if not ((law == 0) & (q > 0) & (q < 2.0**-53)).any():
            assert spent.kl <= budget * (1 + 1e-9) + 1e-15
        assert value == pytest.approx(np.minimum(p, law).sum(), abs=ROUNDING)
        if otm.divergences.kl_divergence(draft=p, target=q) <= budget:
            assert value == pytest.approx(1, abs=ROUNDING)
            return
        # Rejections below 1e-300 cannot be represented, nor what only they reach; then the budget
        # need not be spent.
        if law[q > 0].min() > 1e-250:
            assert spent.kl == pytest.approx(budget, rel=1e-6)
        live = (q > 1e-12) & (p > 1e-12)
        ratio = law[live] / q[live]
        low, high = law[live] < p[live] * (1 - 1e-7), law[live] > p[live] * (1 + 1e-7)
        for side in (low, high):  # constant multiples of q
            assert not side.any() or np.ptp(ratio[side]) <= 1e-6 * ratio[side].max()
        if low.any() and high.any():
            assert ratio[low].min() >= ratio[high].max()
        zeros = (q == 0) & (p > 0)
        if zeros.any() and low.any():
            assert law[zeros].sum() <= 1e-12  # tokens without target mass come last

    @settings(max_examples=60)
    @given(pair=strategies.pairs(max_tokens=6))
    def test_the_ends(self, pair: tuple[np.ndarray, np.ndarray]) -> None:
        problem = one_draft(pair)
        nothing, everything = Mentored(0.0), Mentored(float("inf"))
        assert otm.acceptance(nothing, problem) == pytest.approx(
            otm.acceptance(otm.Maximal(), problem), abs=ROUNDING
        )
        np.testing.assert_allclose(
            otm.lossy.output_law(nothing, problem), problem.target, rtol=0, atol=ROUNDING
        )
        assert otm.acceptance(everything, problem) == pytest.approx(1, abs=ROUNDING)
        np.testing.assert_allclose(
            otm.lossy.output_law(everything, problem), problem.draft, rtol=0, atol=ROUNDING
        )

    def test_budgets_that_leave_almost_nothing_to_a_token_the_drafter_cannot_draft(self) -> None:
        # KL(q‖p) = ∞, yet a budget of 1.5 nats leaves the last token e^{−…}: far below the spacing
        # of floats near 1.
        p, q = np.array([0.5, 0.4, 0.1, 0.0]), np.array([0.4, 0.4, 0.19, 0.01])
        for budget in (0.1, 0.5, 1.5, 4.0):
            spent = otm.lossy.distortion(Mentored(budget), one_draft((p, q)))
            assert spent.kl == pytest.approx(budget, rel=1e-9)

    def test_full_vocabulary(self) -> None:
        rng = np.random.default_rng(4)
        logits = 3 * rng.normal(size=128_256)
        p = otm.from_logits(logits)
        q = otm.from_logits(logits + rng.normal(size=128_256), top_k=50)
        problem = one_draft((p, q))
        values = [otm.acceptance(Mentored(budget), problem) for budget in (0.0, 0.05, 0.2, 0.8)]
        assert values[0] == pytest.approx(otm.acceptance(otm.Maximal(), problem), abs=1e-11)
        assert (np.diff(values) > 1e-3).all()
        assert otm.lossy.distortion(Mentored(0.2), problem).kl == pytest.approx(0.2, rel=1e-9)

    @pytest.mark.parametrize("bad", [-0.1, float("nan"), "much", True], ids=repr)
    def test_parameters(self, bad: object) -> None:
        with pytest.raises(otm.errors.InvalidParameter, match="kl must"):
            Mentored(bad)  # type: ignore[arg-type]
