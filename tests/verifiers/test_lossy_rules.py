"""Lossy verifiers: their laws as written, their distances, and mentored decoding against an independent cone program."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

import otm
from otm import IID, Fuzzy, Lenience, Mentored, Problem, TypicalAcceptance
from otm.verifiers.base import enumerated_acceptance
from tests import strategies

FALSE_ALARM = 1e-9
ROUNDING = 1e-13  # sums of a handful of masses below 1, see tests/tolerance.py
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


def one_draft(pair: tuple[np.ndarray, np.ndarray]) -> Problem:
    return Problem(draft=pair[0], target=pair[1], law=IID(1))


def mentored_program(p: np.ndarray, q: np.ndarray, budget: float) -> float:
    """Max Σ min(p, π) subject to Σ q log(q/π) ≤ D: no structure used."""
    law, matched = cp.Variable(len(p), nonneg=True), cp.Variable(len(p))
    live = np.flatnonzero(q > 0)
    spent = float(q[live] @ np.log(q[live])) - q[live] @ cp.log(law[live])
    constraints = [matched <= p, matched <= law, cp.sum(law) == 1, spent <= budget]
    precise = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
    return float(cp.Problem(cp.Maximize(cp.sum(matched)), constraints).solve(solver="CLARABEL", **precise))


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
        assert otm.acceptance(verifier, problem, by="rule") == pytest.approx(enumerated_acceptance(rule, "rule"), abs=ROUNDING)
        assert otm.acceptance(verifier, problem, by="rule") <= otm.acceptance(verifier, problem) + ROUNDING

    @settings(max_examples=40)
    @given(pair=strategies.pairs(max_tokens=5))
    def test_the_gain_is_at_most_the_total_variation(self, verifier: otm.Verifier, pair: tuple[np.ndarray, np.ndarray]) -> None:
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
        for count, mass in zip(counts, [*law, otm.acceptance(verifier, problem, by="rule")], strict=True):
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
            rows = [[otm.acceptance(verifier, one_draft((p[i, j], q[i, j])), by=by) for j in range(3)] for i in range(2)]
            np.testing.assert_allclose(otm.acceptance(verifier, one_draft((p, q)), by=by), rows, rtol=0, atol=1e-14)
            batch = otm.acceptance(verifier, one_draft((torch.tensor(p), torch.tensor(q))), by=by)
            assert isinstance(batch, torch.Tensor)
            np.testing.assert_allclose(batch.numpy(), rows, rtol=0, atol=1e-14)

    def test_it_says_that_it_is_lossy_and_verifies_one_draft(self, verifier: otm.Verifier) -> None:
        assert not verifier.lossless
        assert verifier.supports(IID(1))
        assert not verifier.supports(IID(2))


class TestMentored:
    def test_the_worked_instance_where_the_plain_clip_gives_one_half(self) -> None:
        problem = one_draft((np.array([0.5, 0.3, 0.2]), np.array([0.0, 0.5, 0.5])))
        assert otm.acceptance(Mentored(0.3), problem) == pytest.approx(0.759182, abs=5e-7)
        # By hand: mass m on token 0, the rest q/β on both others (both below p·β): Σ q log(q/π) = −log(1 − m) + ... = D.
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
            assert value == pytest.approx(mentored_program(p, q, budget), abs=1e-8), (trial, p, q, budget)

    @settings(max_examples=150)
    @given(
        pair=strategies.pairs(max_tokens=6),
        budget=st.one_of(st.floats(1e-9, 4.0), st.sampled_from([1e-14, 1e-12, 0.01, 0.3, 1.0])),
    )
    def test_optimality_conditions(self, pair: tuple[np.ndarray, np.ndarray], budget: float) -> None:
        """π/p is q/α where low, 1 between, q/β where high; and the budget is spent unless every draft is accepted."""
        problem = one_draft(pair)
        p, q = problem.draft, problem.target
        law, spent = otm.lossy.output_law(Mentored(budget), problem), otm.lossy.distortion(Mentored(budget), problem)
        value = otm.acceptance(Mentored(budget), problem)
        # An acceptance probability within 2^-53 of 1 rounds to 1: the rule then never rejects, and a token that only rejections
        # reach, of target mass below that, drops out. KL is infinite there by the letter, and says so.
        if not ((law == 0) & (q > 0) & (q < 2.0**-53)).any():
            assert spent.kl <= budget * (1 + 1e-9) + 1e-15
        assert value == pytest.approx(np.minimum(p, law).sum(), abs=ROUNDING)
        if otm.divergences.kl_divergence(draft=p, target=q) <= budget:
            assert value == pytest.approx(1, abs=ROUNDING)
            return
        # Rejections below 1e-300 cannot be represented, nor what only they reach; then the budget need not be spent.
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
        assert otm.acceptance(nothing, problem) == pytest.approx(otm.acceptance(otm.Maximal(), problem), abs=ROUNDING)
        np.testing.assert_allclose(otm.lossy.output_law(nothing, problem), problem.target, rtol=0, atol=ROUNDING)
        assert otm.acceptance(everything, problem) == pytest.approx(1, abs=ROUNDING)
        np.testing.assert_allclose(otm.lossy.output_law(everything, problem), problem.draft, rtol=0, atol=ROUNDING)

    def test_budgets_that_leave_almost_nothing_to_a_token_the_drafter_cannot_draft(self) -> None:
        # KL(q‖p) = ∞, yet a budget of 1.5 nats leaves the last token e^{−…}: far below the spacing of floats near 1.
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


class TestLenience:
    @settings(max_examples=100)
    @given(pair=strategies.pairs(max_tokens=6), factor=st.floats(0.05, 1.0))
    def test_laws_as_written(self, pair: tuple[np.ndarray, np.ndarray], factor: float) -> None:
        problem = one_draft(pair)
        p, q = problem.draft, problem.target
        plain, scaled = Lenience(factor), Lenience(factor, residual="scaled")
        kept = np.minimum(p, q / factor)
        laws = [otm.lossy.output_law(v, problem) for v in (plain, scaled)]
        for verifier, law, weight in zip((plain, scaled), laws, (1.0, factor), strict=True):
            assert otm.acceptance(verifier, problem, by="rule") == pytest.approx(kept.sum(), abs=ROUNDING)
            assert otm.acceptance(verifier, problem) == pytest.approx(kept.sum(), abs=ROUNDING)
            residual = np.maximum(q - weight * p, 0)
            # Where the rejection is rounding, so may be the residual, and anything times it is.
            if residual.sum() > 1e-9:
                wanted = kept + (1 - kept.sum()) * residual / residual.sum()
                np.testing.assert_allclose(law, wanted, rtol=0, atol=1e-12)
            assert (law <= q / factor + ROUNDING / factor).all()
        near, far = (otm.lossy.distortion(v, problem).total_variation for v in (plain, scaled))
        assert near <= far + ROUNDING

    def test_one_is_speculative_decoding(self) -> None:
        problem = one_draft((np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])))
        np.testing.assert_allclose(otm.lossy.output_law(Lenience(1.0), problem), problem.target, atol=1e-15)

    def test_the_two_residuals_differ(self) -> None:
        problem = one_draft((np.array([0.6, 0.3, 0.1]), np.array([0.1, 0.25, 0.65])))
        laws = [otm.lossy.output_law(Lenience(0.5, residual=r), problem) for r in ("plain", "scaled")]
        assert np.abs(laws[0] - laws[1]).max() > 0.01

    def test_parameters(self) -> None:
        for bad in (0.0, -1.0, 1.5):
            with pytest.raises(otm.errors.InvalidParameter, match="lenience must lie in"):
                Lenience(bad)
        with pytest.raises(otm.errors.InvalidParameter, match="residual must be 'plain'"):
            Lenience(0.5, residual="other")  # type: ignore[arg-type]


class TestTypicalAcceptance:
    @settings(max_examples=60)
    @given(pair=strategies.pairs(max_tokens=6), eps=st.floats(0, 1), delta=st.floats(0, 2))
    def test_as_written(self, pair: tuple[np.ndarray, np.ndarray], eps: float, delta: float) -> None:
        problem = one_draft(pair)
        p, q = problem.draft, problem.target
        live = q[q > 0]
        threshold = min(eps, delta * float(np.exp(live @ np.log(live))))
        if np.abs(q - threshold).min() < 1e-12:
            return  # a tie decided by rounding
        typical = q > threshold
        verifier = TypicalAcceptance(eps=eps, delta=delta)
        assert otm.acceptance(verifier, problem, by="rule") == pytest.approx(p[typical].sum(), abs=ROUNDING)
        member = p[typical].sum() + (p * q)[~typical].sum()
        assert otm.acceptance(verifier, problem) == pytest.approx(member, abs=ROUNDING)
        wanted = np.where(typical, p, 0) + p[~typical].sum() * q
        np.testing.assert_allclose(otm.lossy.output_law(verifier, problem), wanted, rtol=0, atol=ROUNDING)

    def test_parameters(self) -> None:
        with pytest.raises(otm.errors.InvalidParameter, match="eps must lie in"):
            TypicalAcceptance(eps=1.5)
        with pytest.raises(otm.errors.InvalidParameter, match="delta must lie in"):
            TypicalAcceptance(delta=-0.1)


class TestFuzzy:
    P, Q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])

    def divergences(self) -> dict[str, float]:
        m = 0.5 * (self.P + self.Q)
        kl = lambda a, b: float(a @ np.log(a / b))  # noqa: E731
        return {
            "tv": 0.5 * float(np.abs(self.P - self.Q).sum()),
            "kl": kl(self.Q, self.P),
            "js": 0.5 * (kl(self.P, m) + kl(self.Q, m)),
        }

    @pytest.mark.parametrize("divergence", ["tv", "kl", "js"])
    @pytest.mark.parametrize("fallback", ["target", "speculative"])
    def test_the_gate(self, divergence: str, fallback: str) -> None:
        problem, distance = one_draft((self.P, self.Q)), self.divergences()[divergence]
        is_open = Fuzzy(distance * 1.001, divergence=divergence, fallback=fallback)  # type: ignore[arg-type]
        closed = Fuzzy(distance * 0.999, divergence=divergence, fallback=fallback)  # type: ignore[arg-type]
        assert otm.acceptance(is_open, problem) == 1.0
        np.testing.assert_array_equal(otm.lossy.output_law(is_open, problem), self.P)
        np.testing.assert_allclose(otm.lossy.output_law(closed, problem), self.Q, atol=1e-15)
        rule, member = (otm.acceptance(closed, problem, by=by) for by in ("rule", "membership"))
        if fallback == "target":
            assert (rule, member) == (0.0, pytest.approx(self.P @ self.Q))
        else:
            assert rule == member == pytest.approx(np.minimum(self.P, self.Q).sum())

    def test_the_zero_threshold_opens_for_equal_distributions_only(self) -> None:
        for divergence in ("tv", "kl", "js"):
            verifier = Fuzzy(0.0, divergence=divergence)  # type: ignore[arg-type]
            assert otm.acceptance(verifier, one_draft((self.P, self.P)), by="rule") == 1.0
            assert otm.acceptance(verifier, one_draft((self.P, self.Q)), by="rule") == 0.0

    def test_parameters(self) -> None:
        for bad in ({"threshold": -1.0}, {"divergence": "hellinger"}, {"fallback": "draft"}):
            with pytest.raises(otm.errors.InvalidParameter, match=f"{next(iter(bad))} must"):
                Fuzzy(**bad)  # type: ignore[arg-type]


class TestDistances:
    @pytest.mark.parametrize(
        ("verifier", "law"),
        [
            (otm.Maximal(), IID(1)),
            (otm.KSeq(), IID(2)),
            (otm.ListRace(), IID(2)),
            (otm.Race(), otm.WithoutReplacement(2)),
            (otm.TransportPlan(), IID(2)),
        ],
        ids=repr,
    )
    def test_lossless_verifiers_have_none(self, verifier: otm.Verifier, law: otm.Law) -> None:
        problem = Problem(draft=[0.5, 0.3, 0.2], target=[0.2, 0.2, 0.6], law=law)
        np.testing.assert_allclose(otm.lossy.output_law(verifier, problem), problem.target, atol=1e-11)
        spent = otm.lossy.distortion(verifier, problem)
        assert 0 <= spent.total_variation <= 1e-11
        assert 0 <= spent.kl <= 1e-11

    def test_it_is_computed_not_believed(self) -> None:
        # Enumeration beyond its limit is refused even for a verifier that calls itself lossless.
        problem = Problem(draft=otm.examples.zipf(3000), target=otm.examples.uniform(3000), law=IID(3))
        with pytest.raises(otm.errors.TooLarge):
            otm.lossy.output_law(otm.KSeq(), problem)

    def test_kl_is_infinite_where_a_token_of_the_target_never_comes_out(self) -> None:
        problem = one_draft((np.array([0.9, 0.1, 0.0]), np.array([0.5, 0.25, 0.25])))
        assert otm.lossy.distortion(Fuzzy(1.0), problem).kl == np.inf


class TestInTheTable:
    def test_lossy_rows_show_their_distances_and_their_gap_is_to_the_frontier(self) -> None:
        p, q = [0.5, 0.3, 0.2], [0.2, 0.2, 0.6]
        table = otm.compare(
            draft=p, target=q, verifiers=[otm.Maximal(), Mentored(0.05), Lenience(0.5)], laws=[IID], k=[1], samples=0
        )
        exact_row, *rows = table.rows
        assert exact_row.distortion is None
        assert exact_row.frontier == exact_row.optimum
        for row in rows:
            problem = Problem(draft=p, target=q, law=IID(1))
            assert row.distortion == otm.lossy.distortion(row.verifier, problem)
            assert row.frontier == pytest.approx(otm.lossy.tv_frontier(problem, tv=row.distortion.total_variation), abs=1e-15)
            assert row.gap == pytest.approx(max(0.0, row.frontier - row.exact), abs=1e-15)
            assert row.exact > row.optimum
        text = str(table)
        for row in rows:
            line = next(line for line in text.splitlines() if f" {type(row.verifier).__name__}(" in line and "lossy" in line)
            for number in (row.distortion.total_variation, row.distortion.kl, row.gap):
                assert f"{number:.6f}" in line
        assert text.splitlines()[-1].startswith("TV, KL: distance of a lossy scheme's output")
        record = table.records()[1]
        assert record["total_variation"] == rows[0].distortion.total_variation
        assert record["frontier"] == rows[0].frontier

    def test_without_lossy_rows_there_are_no_such_columns(self) -> None:
        table = otm.compare(draft=[0.5, 0.5], target=[0.4, 0.6], verifiers=[otm.Maximal()], laws=[IID], k=[1], samples=0)
        assert "TV" not in str(table)
        assert "KL" not in str(table)

    def test_more_distinct_drafts_than_tokens_are_left_out_unless_named(self) -> None:
        table = otm.compare(draft=[0.5, 0.5], target=[0.4, 0.6], k=[4], samples=0)
        assert {type(row.law) for row in table.rows} == {IID}
        with pytest.raises(otm.errors.InvalidParameter, match="k ≤ V"):
            otm.compare(draft=[0.5, 0.5], target=[0.4, 0.6], laws=[otm.WithoutReplacement], k=[4], samples=0)
