"""Verifiers that need nothing but the drafts, beyond i.i.d. K-SEQ and RRS: each against rational oracles, and their mutants."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import otm
from otm._arrays import inverse_cdf
from otm.drafts.base import PAD, enumerate_drafts
from otm.verifiers import rejection_without_replacement as wor
from otm.verifiers.base import enumerated_acceptance
from tests import exact, strategies
from tests.contracts.test_calibrated import SAMPLES, alarms, joint_law, power, tabulate
from tests.tolerance import rounding

F = Fraction


# --- rational oracles, written from the definitions -----------------------------------------------------------------------------


def successive(p: exact.Masses, drafts: tuple[int, ...]) -> Fraction:
    """Probability of drawing these tokens in this order without replacement."""
    mass = F(1)
    for i, x in enumerate(drafts):
        mass *= p[x] / sum((p[y] for y in range(len(p)) if y not in drafts[:i]), F(0))
    return mass


def rejection_along(p: exact.Masses, q: exact.Masses, drafts: tuple[int, ...]) -> tuple[list[Fraction], exact.Masses]:
    """Recursive rejection on one path: accept probabilities and the last residual; p renormalised over the tokens left."""
    r, keep = list(q), []
    for i, x in enumerate(drafts):
        left = sum((p[y] for y in range(len(p)) if y not in drafts[:i]), F(0))
        law = [F(0) if y in drafts[:i] else p[y] / left for y in range(len(p))]
        keep.append(min(F(1), r[x] / law[x]))
        excess = [max(a - b, F(0)) for a, b in zip(r, law, strict=True)]
        total = sum(excess)
        r = [e / total for e in excess] if total else r
    return keep, r


def recursive_without_replacement(p: exact.Masses, q: exact.Masses, k: int) -> tuple[Fraction, exact.Masses]:
    """Acceptance and output law, path by path."""
    support = [x for x in range(len(p)) if p[x] > 0]
    accepted, output = F(0), [F(0)] * len(p)
    for drafts in itertools.permutations(support, min(k, len(support))):
        reaching = successive(p, drafts)
        keep, residual = rejection_along(p, q, drafts)
        for x, probability in zip(drafts, keep, strict=True):
            accepted += reaching * probability
            output[x] += reaching * probability
            reaching *= 1 - probability
        output = [o + reaching * r for o, r in zip(output, residual, strict=True)]
    return accepted, output


def problem_of(pair: tuple[np.ndarray, np.ndarray], law: otm.Law) -> otm.Problem:
    return otm.Problem(draft=pair[0], target=pair[1], law=law)


# --- naive ----------------------------------------------------------------------------------------------------------------------


class TestNaive:
    @given(pair=strategies.pairs(), k=st.integers(1, 5))
    def test_iid_closed_form(self, pair: tuple[np.ndarray, np.ndarray], k: int) -> None:
        problem = problem_of(pair, otm.IID(k))
        p, q = exact.exact(problem.draft), exact.exact(problem.target)
        value = float(sum(b * (1 - (1 - a) ** k) for a, b in zip(p, q, strict=True)))
        for by in ("membership", "rule"):
            assert otm.acceptance(otm.Naive(), problem, by=by) == pytest.approx(value, abs=rounding(len(p), k))

    def test_full_vocabulary_without_replacement(self) -> None:
        num_tokens, k = 20_000, 8
        rng = np.random.default_rng(0)
        p, q = otm.examples.dirichlet(num_tokens, rng=rng), otm.examples.dirichlet(num_tokens, rng=rng)
        problem = otm.Problem(draft=p, target=q, law=otm.WithoutReplacement(k))
        value = otm.acceptance(otm.Naive(), problem)
        assert value > otm.acceptance(otm.Naive(), problem.with_law(otm.IID(k)))
        uniform = otm.Problem(draft=otm.examples.uniform(num_tokens), target=q, law=otm.WithoutReplacement(k))
        assert otm.acceptance(otm.Naive(), uniform) == pytest.approx(k / num_tokens, abs=1e-14)

    def test_it_is_optimal_only_for_deterministic_drafts(self) -> None:
        rng = np.random.default_rng(1)
        p, q = otm.examples.dirichlet(6, rng=rng), otm.examples.dirichlet(6, rng=rng)
        for law in (otm.TopK(3), otm.IID(3), otm.WithoutReplacement(3), otm.Greedy(3)):
            problem = otm.Problem(draft=p, target=q, law=law)
            gap = otm.optimal_acceptance(problem) - otm.acceptance(otm.Naive(), problem)
            assert gap == pytest.approx(0, abs=1e-15) if isinstance(law, otm.TopK) else gap > 1e-3


class TestNaiveTree:
    @given(pair=strategies.pairs(), k=st.integers(1, 4))
    def test_closed_form(self, pair: tuple[np.ndarray, np.ndarray], k: int) -> None:
        problem = problem_of(pair, otm.IID(k))
        p, q = exact.exact(problem.draft), exact.exact(problem.target)
        value = sum(min(a, b) + max(b - a, F(0)) * (1 - (1 - a) ** (k - 1)) for a, b in zip(p, q, strict=True))
        for by in ("membership", "rule"):
            assert otm.acceptance(otm.NaiveTree(), problem, by=by) == pytest.approx(float(value), abs=rounding(len(p), k))

    def test_one_draft_is_single_draft_rejection(self) -> None:
        rng = np.random.default_rng(0)
        batch = otm.Problem(
            draft=otm.examples.dirichlet(9, rng=rng, rows=5), target=otm.examples.dirichlet(9, rng=rng, rows=5), law=otm.IID(1)
        )
        np.testing.assert_allclose(
            otm.acceptance(otm.NaiveTree(), batch), otm.acceptance(otm.Maximal(), batch), atol=rounding(9, 1)
        )


# --- greedy drafts --------------------------------------------------------------------------------------------------------------


class TestGreedyOptimal:
    @given(pair=strategies.pairs(), k=st.integers(1, 4))
    def test_it_attains_the_optimum_by_enumeration(self, pair: tuple[np.ndarray, np.ndarray], k: int) -> None:
        problem = problem_of(pair, otm.Greedy(min(k, len(pair[0]))))
        plan = otm.coupling(otm.GreedyOptimal(), problem)
        tolerance = rounding(problem.num_tokens, k)
        assert np.abs(plan.output_marginal - problem.target).max() <= tolerance
        table = problem.law.enumerate(np.asarray(exact.exact(problem.draft), dtype=object))
        best = float(exact.optimum_from_table(table.tokens.tolist(), list(table.mass), exact.exact(problem.target)))
        assert plan.acceptance == pytest.approx(best, abs=tolerance)
        assert enumerated_acceptance(otm.prepare(otm.GreedyOptimal(), problem), "rule") == pytest.approx(best, abs=tolerance)


def spechub_by_hand(p: exact.Masses, q: exact.Masses) -> tuple[Fraction, exact.Masses]:
    """The published steps on the published law of ordered pairs: acceptance and output law, in rational arithmetic."""
    V = len(p)
    a = max(range(V), key=lambda x: (p[x], -x))
    others = [x for x in range(V) if x != a]
    pairs = {(x, a): p[x] for x in others}
    if p[a] < 1:
        pairs |= {(a, x): p[a] * p[x] / (1 - p[a]) for x in others}
    else:
        pairs[(a, PAD)] = F(1)
    moved = dict.fromkeys(pairs, F(0))  # mass of each pair that went to x
    wanted = {x: q[x] for x in others}
    for pair in [(x, a) for x in others] + [(a, x) for x in others]:
        x = pair[0] if pair[1] == a else pair[1]
        if pair in pairs:
            moved[pair] = min(pairs[pair], wanted[x])
            wanted[x] -= moved[pair]
    to_hub, room = F(0), q[a]
    for kind in ([pair for pair in pairs if pair[0] == a], [pair for pair in pairs if pair[1] == a]):
        left = sum((pairs[pair] - moved[pair] for pair in kind), F(0))
        taken = min(left, room)
        room -= taken
        to_hub += taken
    accepted = sum(moved.values(), F(0)) + to_hub
    output = [q[x] - wanted.get(x, room) if x == a else q[x] - wanted[x] for x in range(V)]
    unmet = {**wanted, a: room}
    total = sum(unmet.values(), F(0))
    if total:
        output = [o + (1 - accepted) * unmet[x] / total for x, o in enumerate(output)]
    return accepted, output


class TestSpecHub:
    @given(pair=strategies.pairs(min_tokens=2))
    def test_exact_law_and_acceptance_of_the_published_steps(self, pair: tuple[np.ndarray, np.ndarray]) -> None:
        problem = problem_of(pair, otm.Greedy(2))
        p, q = exact.exact(problem.draft), exact.exact(problem.target)
        accepted, output = spechub_by_hand(p, q)
        assert output == q  # lossless, exactly
        plan = otm.coupling(otm.SpecHub(), problem)
        tolerance = rounding(len(p), 2)
        np.testing.assert_allclose(plan.output_marginal, problem.target, atol=tolerance)
        assert plan.acceptance == pytest.approx(float(accepted), abs=tolerance)
        assert otm.acceptance(otm.SpecHub(), problem) == pytest.approx(float(accepted), abs=tolerance)
        assert otm.acceptance(otm.GreedyOptimal(), problem) == pytest.approx(float(accepted), abs=tolerance)

    def test_its_pairs_are_greedy_drafts_with_an_independent_order(self) -> None:
        p = [F(1, 2), F(1, 5), F(3, 10)]
        for x in (1, 2):
            first, second = p[x], p[0] * p[x] / (1 - p[0])
            assert first + second == p[x] / (1 - p[0])  # Greedy(2)'s law of the other token
            assert second / (first + second) == p[0]  # the order does not depend on x

    def test_against_recursive_rejection_it_goes_either_way(self) -> None:
        """Uniform p on three tokens, hub 0, target a point y: recursive rejection accepts if y is drafted, 2/3."""
        for y, hub in ((0, 1.0), (2, 0.5)):
            problem = otm.Problem(draft=otm.examples.uniform(3), target=np.eye(3)[y], law=otm.Greedy(2))
            assert otm.acceptance(otm.SpecHub(), problem) == pytest.approx(hub, abs=rounding(3, 2))
            recursive = otm.acceptance(otm.RecursiveRejection(), problem.with_law(otm.WithoutReplacement(2)))
            assert recursive == pytest.approx(2 / 3, abs=rounding(3, 2))


# --- recursive rejection without replacement ------------------------------------------------------------------------------------


class TestRecursiveRejectionWithoutReplacement:
    @given(pair=strategies.pairs(), k=st.integers(1, 3))
    def test_paths_in_rational_arithmetic(self, pair: tuple[np.ndarray, np.ndarray], k: int) -> None:
        problem = problem_of(pair, otm.WithoutReplacement(min(k, len(pair[0]))))
        p, q = exact.exact(problem.draft), exact.exact(problem.target)
        accepted, output = recursive_without_replacement(p, q, k)
        assert output == q
        tolerance = rounding(len(p), k)
        rule = otm.prepare(otm.RecursiveRejection(), problem)
        for by in ("membership", "rule"):
            assert otm.acceptance(otm.RecursiveRejection(), problem, by=by) == pytest.approx(float(accepted), abs=tolerance)
            assert enumerated_acceptance(rule, by) == pytest.approx(float(accepted), abs=tolerance)
        np.testing.assert_allclose(
            otm.coupling(otm.RecursiveRejection(), problem).output_marginal, problem.target, atol=tolerance
        )

    @given(pair=strategies.pairs(min_tokens=2), k=st.integers(1, 4))
    def test_the_look_up_equals_the_definition_on_every_path(self, pair: tuple[np.ndarray, np.ndarray], k: int) -> None:
        """Residuals and acceptance probabilities of the sampler (running sums) against `split` (whole vectors)."""
        problem = problem_of(pair, otm.WithoutReplacement(min(k, len(pair[0]))))
        rule = otm.prepare(otm.RecursiveRejection(), problem)
        assert isinstance(rule, wor.RecursiveRejectionWithoutReplacementRule)
        table = enumerate_drafts(problem.law, problem.draft)
        tokens, mass = table.tokens[table.mass > 0], table.mass[table.mass > 0]
        keep, _, last = rule.stages(tokens)
        accepted, residual = rule.split(tokens)
        reaching = np.ones(len(tokens))
        for stage in range(keep.shape[1]):
            here = accepted[np.arange(len(tokens)), tokens[:, stage]]
            # Weighted by the probability of the path: relative to it a residual made of rounding may be anything.
            np.testing.assert_allclose(mass * here, mass * reaching * keep[:, stage], atol=rounding(5, 4))
            reaching = reaching * (1.0 - keep[:, stage])
        np.testing.assert_allclose(mass * residual.sum(axis=1), mass * reaching, atol=rounding(5, 4))
        assert ((last >= 0) & (last <= 1 + 1e-9)).all()

    def test_gold_row_4(self) -> None:
        target = [F(37, 250), F(21, 500), F(149, 200), F(1, 20), F(3, 200)]
        draft = [F(62, 125), F(17, 125), F(151, 1000), F(1, 125), F(209, 1000)]
        problem = otm.Problem(draft=[float(x) for x in draft], target=[float(x) for x in target], law=otm.WithoutReplacement(3))
        value = otm.acceptance(otm.RecursiveRejection(), problem)
        assert value == pytest.approx(float(recursive_without_replacement(draft, target, 3)[0]), abs=rounding(5, 3))
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
        assert otm.acceptance(otm.RecursiveRejection(), problem) == pytest.approx(enumerated, abs=rounding(num_tokens, k))

    def test_two_drafts_at_full_vocabulary(self) -> None:
        rng = np.random.default_rng(0)
        problem = otm.Problem(
            draft=otm.examples.dirichlet(128_256, rng=rng),
            target=otm.examples.dirichlet(128_256, rng=rng),
            law=otm.WithoutReplacement(2),
        )
        value = otm.acceptance(otm.RecursiveRejection(), problem)
        # With replacement the second draft may repeat a rejected one, at most a matter of max p here.
        iid = otm.acceptance(otm.RecursiveRejection(), problem.with_law(otm.IID(2)))
        assert iid < value < iid + 10 * problem.draft.max()

    def test_too_many_paths_are_refused_with_the_way_out(self) -> None:
        problem = otm.Problem(draft=otm.examples.uniform(300), target=otm.examples.zipf(300), law=otm.WithoutReplacement(4))
        with pytest.raises(
            otm.errors.TooLarge,
            match=r"10,000,000 paths.*has 26,730,600\. Call otm\.verifiers\.rao_blackwell_acceptance or otm\.estimate",
        ):
            otm.acceptance(otm.RecursiveRejection(), problem)
        assert otm.estimate(otm.RecursiveRejection(), problem, samples=100, rng=np.random.default_rng(0)).samples == 100

    def test_a_support_smaller_than_k(self) -> None:
        draft, target = [0.6, 0.4, 0.0], [0.3, 0.3, 0.4]
        problem = otm.Problem(draft=draft, target=target, law=otm.WithoutReplacement(3))
        value, output = recursive_without_replacement(exact.exact(draft), exact.exact(target), 3)
        assert otm.acceptance(otm.RecursiveRejection(), problem) == pytest.approx(float(value), abs=rounding(3, 3))
        assert output == exact.exact(target)


class TestRaoBlackwell:
    @pytest.mark.parametrize(("num_tokens", "k"), [(4, 2), (6, 4), (12, 5)])
    def test_the_interval_holds_the_exact_value(self, num_tokens: int, k: int) -> None:
        rng = np.random.default_rng(k)
        problem = otm.Problem(
            draft=otm.examples.dirichlet(num_tokens, rng=rng),
            target=otm.examples.dirichlet(num_tokens, rng=rng),
            law=otm.WithoutReplacement(k),
        )
        value = otm.acceptance(otm.RecursiveRejection(), problem)
        found = otm.verifiers.rao_blackwell_acceptance(
            problem, samples=20_000, rng=rng, confidence=1 - 1e-9
        )  # false alarm 1e-9
        assert found.low <= value <= found.high
        assert found.high - found.low < 0.05
        plain = otm.estimate(otm.RecursiveRejection(), problem, samples=20_000, rng=rng, confidence=1 - 1e-9)
        assert found.high - found.low < plain.high - plain.low

    def test_masses_that_running_sums_cannot_resolve(self) -> None:
        """Behind a token of mass 1 − 1e-20 the second stage must still see the others; sums of p in the order of q/p cannot."""
        problem = otm.Problem(draft=[1.0, 4e-20, 3e-20, 3e-20], target=[0.1, 0.2, 0.5, 0.2], law=otm.WithoutReplacement(3))
        value = float(recursive_without_replacement(exact.exact(problem.draft), exact.exact(problem.target), 3)[0])
        assert otm.acceptance(otm.RecursiveRejection(), problem) == pytest.approx(value, abs=rounding(4, 3))
        found = otm.verifiers.rao_blackwell_acceptance(
            problem, samples=20_000, rng=np.random.default_rng(0), confidence=1 - 1e-9
        )
        assert found.low <= value <= found.high
        assert found.high - found.low < 0.05

    def test_nothing_to_reject(self) -> None:
        """Where q = p to rounding, stages reject nothing, and no token is left to be drawn as rejected."""
        rng = np.random.default_rng(0)
        for _ in range(50):
            p = otm.examples.dirichlet(5, rng=rng)
            problem = otm.Problem(draft=p, target=p, law=otm.WithoutReplacement(3))
            assert otm.verifiers.rao_blackwell_acceptance(problem, samples=20, rng=rng).mean == pytest.approx(
                1.0, abs=rounding(5, 3)
            )

    @pytest.mark.parametrize("apart", [0, 1])
    def test_equal_to_the_last_place(self, apart: int) -> None:
        rng = np.random.default_rng(apart)
        for _ in range(300):
            num_tokens = int(rng.integers(2, 9))
            p = otm.examples.dirichlet(num_tokens, rng=rng)
            q = np.nextafter(p, rng.integers(0, 2, num_tokens)) if apart else p
            law = otm.WithoutReplacement(int(rng.integers(1, min(num_tokens, 5) + 1)))
            found = otm.verifiers.rao_blackwell_acceptance(otm.Problem(draft=p, target=q, law=law), samples=20, rng=rng)
            assert found.mean == pytest.approx(1.0, abs=rounding(8, 5))

    def test_full_vocabulary_beyond_the_exact_sum(self) -> None:
        rng = np.random.default_rng(0)
        problem = otm.Problem(
            draft=otm.examples.dirichlet(20_000, rng=rng),
            target=otm.examples.dirichlet(20_000, rng=rng),
            law=otm.WithoutReplacement(8),
        )
        found = otm.verifiers.rao_blackwell_acceptance(problem, samples=2_000, rng=rng, confidence=1 - 1e-9)
        plain = otm.estimate(otm.RecursiveRejection(), problem, samples=20_000, rng=rng, confidence=1 - 1e-9)
        assert max(found.low, plain.low) <= min(found.high, plain.high)
        assert found.high <= otm.optimal_acceptance(problem)

    def test_refusals(self) -> None:
        problem = otm.Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=otm.IID(2))
        rng = np.random.default_rng(0)
        with pytest.raises(otm.errors.Unsupported, match="without replacement"):
            otm.verifiers.rao_blackwell_acceptance(problem, samples=10, rng=rng)
        good = problem.with_law(otm.WithoutReplacement(2))
        for arguments in ({"samples": 1}, {"samples": 10, "confidence": 1.0}, {"samples": 10, "confidence": 0.0}):
            with pytest.raises(otm.errors.InvalidParameter):
                otm.verifiers.rao_blackwell_acceptance(good, rng=rng, **arguments)
        with pytest.raises(otm.errors.InvalidParameter, match=r"rng must be a numpy\.random\.Generator; got 0"):
            otm.verifiers.rao_blackwell_acceptance(good, samples=10, rng=0)  # type: ignore[arg-type]
        assert otm.verifiers.rao_blackwell_acceptance(good, samples=10, rng=rng).mean == pytest.approx(1.0, abs=1e-15)


# --- select, then reject --------------------------------------------------------------------------------------------------------


def weights_from(seed: int) -> Callable[[otm.Problem, np.ndarray], np.ndarray]:
    """An arbitrary selection rule: weights that depend on the drafted tokens in no particular way."""

    def rule(problem: otm.Problem, drafts: np.ndarray) -> np.ndarray:
        weights = 1.1 + np.sin(seed + 3 * drafts + np.cumsum(drafts, axis=1) * np.arange(1, drafts.shape[1] + 1))
        weights = np.where(drafts == PAD, 0.0, weights)
        return weights / weights.sum(axis=1, keepdims=True)

    return rule


def first_draft(problem: otm.Problem, drafts: np.ndarray) -> np.ndarray:
    return np.eye(drafts.shape[1])[np.zeros(len(drafts), dtype=int)]


class TestSelectThenReject:
    @given(pair=strategies.pairs(min_tokens=3), seed=st.integers(0, 100), which=st.integers(0, 3))
    def test_any_selection_is_lossless_and_accepts_what_it_says(
        self, pair: tuple[np.ndarray, np.ndarray], seed: int, which: int
    ) -> None:
        law = (otm.IID(2), otm.WithoutReplacement(3), otm.Greedy(2), otm.TopK(2))[which]
        problem = problem_of(pair, law)
        verifier = otm.SelectThenReject(weights_from(seed))
        plan = otm.coupling(verifier, problem)
        tolerance = rounding(problem.num_tokens, law.k)
        assert np.abs(plan.output_marginal - problem.target).max() <= tolerance
        table = enumerate_drafts(law, problem.draft)
        s = np.zeros(problem.num_tokens)
        for row, weights, mass in zip(table.tokens, weights_from(seed)(problem, table.tokens), table.mass, strict=True):
            for x, weight in zip(row, weights, strict=True):
                if x != PAD:
                    s[x] += weight * mass
        by_rule = float(np.minimum(s, problem.target).sum())
        assert otm.acceptance(verifier, problem, by="rule") == pytest.approx(by_rule, abs=tolerance)
        assert otm.acceptance(verifier, problem) == pytest.approx(plan.acceptance, abs=tolerance)
        # Its law lies in the core: s(B) ≥ Pr(all drafts in B).
        for B in exact.subsets(problem.num_tokens):
            mask = np.isin(np.arange(problem.num_tokens), B)
            assert s[mask].sum() >= law.containment(problem.draft, mask) - tolerance

    def test_selecting_the_first_draft_is_single_draft_rejection(self) -> None:
        rng = np.random.default_rng(0)
        p, q = otm.examples.dirichlet(5, rng=rng), otm.examples.dirichlet(5, rng=rng)
        single = otm.acceptance(otm.Maximal(), otm.Problem(draft=p, target=q, law=otm.IID(1)))
        for law in (otm.IID(3), otm.WithoutReplacement(3)):
            problem = otm.Problem(draft=p, target=q, law=law)
            found = otm.acceptance(otm.SelectThenReject(first_draft), problem, by="rule")
            assert found == pytest.approx(single, abs=rounding(5, 3))

    @pytest.mark.parametrize("law", [otm.IID(3), otm.WithoutReplacement(3), otm.Greedy(3), otm.TopK(2)])
    def test_the_plan_loses_nothing(self, law: otm.Law) -> None:
        rng = np.random.default_rng(2)
        for _ in range(5):
            problem = otm.Problem(draft=otm.examples.dirichlet(6, rng=rng), target=otm.examples.dirichlet(6, rng=rng), law=law)
            best = otm.optimal_acceptance(problem)
            for by in ("membership", "rule"):
                assert otm.acceptance(otm.SelectThenReject(), problem, by=by) == pytest.approx(best, abs=1e-9)

    def test_a_law_inside_the_core_can_be_had_and_one_outside_is_refused(self) -> None:
        problem = otm.Problem(draft=[0.5, 0.3, 0.2], target=[0.2, 0.2, 0.6], law=otm.IID(2))
        # s({0}) ≥ .25, s({1}) ≥ .09, s({2}) ≥ .04, s({0, 1}) ≥ .64, s({0, 2}) ≥ .49, s({1, 2}) ≥ .25: a vertex of the core.
        wanted = np.array([0.25, 0.39, 0.36])
        rule = otm.prepare(otm.SelectThenReject(otm.verifiers.selection_with_law(problem, law=wanted)), problem)
        np.testing.assert_allclose(rule.law, wanted, atol=2e-9)
        with pytest.raises(otm.errors.InvalidParameter, match=r"falls short by 0\.01 on B = \[0, 1\]"):
            otm.verifiers.selection_with_law(problem, law=[0.25, 0.38, 0.37])

    @pytest.mark.parametrize(
        ("selection", "message"),
        [
            (lambda problem, drafts: np.ones(len(drafts)), r"one weight per draft, shape \(9, 2\); got \(9,\)"),
            (lambda problem, drafts: np.ones(drafts.shape), "a row misses 1 by 1"),
            (lambda problem, drafts: np.tile([1.5, -0.5], (len(drafts), 1)), "smallest is -0.5"),
            (lambda problem, drafts: np.full(drafts.shape, np.nan), "Normalise them"),
        ],
    )
    def test_bad_weights_are_refused(self, selection: Any, message: str) -> None:
        problem = otm.Problem(draft=[0.5, 0.3, 0.2], target=[0.2, 0.2, 0.6], law=otm.IID(2))
        with pytest.raises(otm.errors.InvalidParameter, match=message):
            otm.prepare(otm.SelectThenReject(selection), problem)

    def test_weight_on_padding_is_refused(self) -> None:
        problem = otm.Problem(draft=[1.0, 0.0], target=[0.5, 0.5], law=otm.WithoutReplacement(2))
        with pytest.raises(otm.errors.InvalidParameter, match="0 on padding"):
            otm.prepare(otm.SelectThenReject(lambda problem, drafts: np.full(drafts.shape, 0.5)), problem)


# --- mutants --------------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class PathRule(otm.verifiers.Conditional):
    """Recursive rejection without replacement, path by path from the definition, with one mistake or none.

    mistake: "" none; "not renormalised" compares with p instead of p over the tokens left (the wrong conditional law);
    "one minus" renormalises by 1 − the mass taken; "reuse" compares one uniform at every accept step.
    """

    mistake: str

    @property
    def num_uniforms(self) -> int:
        return self.problem.law.k + 1

    def follow(self, row: tuple[int, ...]) -> tuple[list[float], np.ndarray]:
        p, r, keep = self.problem.draft.copy(), self.problem.target, []
        taken = 0.0
        for x in row:
            left = {"not renormalised": 1.0, "one minus": 1.0 - taken}.get(self.mistake, p.sum())
            law = p / left if left > 0 else np.zeros_like(p)
            keep.append(min(1.0, r[x] / law[x]) if law[x] > 0 else 1.0)
            excess = np.maximum(r - law, 0.0)
            r = excess / excess.sum() if excess.sum() > 0 else r
            taken += p[x]
            p[x] = 0.0
        return keep, r

    def split(self, drafts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        accepted, residuals = np.zeros((2, len(drafts), self.problem.num_tokens))
        for i, row in enumerate(drafts):
            keep, residual = self.follow(tuple(row))
            reached, highest = 1.0, 0.0
            for x, probability in zip(row, keep, strict=True):
                taken = max(probability - highest, 0.0) if self.mistake == "reuse" else reached * probability
                accepted[i, x] += taken
                reached, highest = reached - taken, max(highest, probability)
            residuals[i] = reached * residual
        return accepted, residuals

    def verify(self, drafts: np.ndarray, uniforms: np.ndarray, state: Any) -> tuple[np.ndarray, np.ndarray]:
        output, accepted = np.empty(len(drafts), dtype=np.int64), np.zeros(len(drafts), dtype=bool)
        for row in np.unique(drafts, axis=0):
            here = np.flatnonzero((drafts == row).all(axis=1))
            keep, residual = self.follow(tuple(row))
            coins = uniforms[here, :1] if self.mistake == "reuse" else uniforms[here, : len(keep)]
            wins = coins < np.asarray(keep)
            accepted[here] = wins.any(axis=1)
            output[here] = np.where(accepted[here], row[wins.argmax(axis=1)], inverse_cdf(residual, uniforms[here, -1]))
        return output, accepted


@dataclasses.dataclass(frozen=True)
class PathVerifier(otm.Verifier):
    mistake: str = ""

    lossless = True
    laws = (otm.WithoutReplacement,)

    def prepare(self, problem: otm.Problem) -> PathRule:
        return PathRule(problem, self.mistake)

    def acceptance(self, problem: otm.Problem, by: Any) -> Any:
        return np.asarray(enumerated_acceptance(self.prepare(problem), by))


_DRAFT, _TARGET = [0.5, 0.3, 0.15, 0.05], [0.2, 0.35, 0.2, 0.25]
_HEAVY_DRAFT = [1.0, 1e-17, 3e-17, 2e-17]  # 1 − p(0) is 0 in floating point

_MUTANTS = [
    pytest.param("not renormalised", _DRAFT, id="wrong conditional law without replacement"),
    pytest.param("reuse", _DRAFT, id="one uniform reused"),
    pytest.param("one minus", _HEAVY_DRAFT, id="p renormalised by 1 − p"),
]


class TestMutantsDie:
    @pytest.mark.parametrize("draft", [_DRAFT, _HEAVY_DRAFT])
    @pytest.mark.parametrize("k", [2, 3])
    def test_the_control_lives(self, draft: list[float], k: int) -> None:
        problem = otm.Problem(draft=draft, target=_TARGET, law=otm.WithoutReplacement(k))
        rows, claimed = joint_law(otm.RecursiveRejection(), problem)
        np.testing.assert_allclose(joint_law(PathVerifier(), problem)[1], claimed, atol=1e-14)
        draws = otm.sample(PathVerifier(), problem, size=SAMPLES, rng=np.random.default_rng(0))
        assert not alarms(tabulate(draws, rows, 4), claimed, SAMPLES).any()

    @pytest.mark.parametrize(("mistake", "draft"), _MUTANTS)
    @pytest.mark.parametrize("k", [2, 3])
    def test_in_the_exact_law(self, mistake: str, draft: list[float], k: int) -> None:
        problem = otm.Problem(draft=draft, target=_TARGET, law=otm.WithoutReplacement(k))
        loss = np.abs(otm.coupling(PathVerifier(mistake), problem).output_marginal - problem.target).max()
        assert loss > 1e-3
        assert np.abs(otm.coupling(otm.RecursiveRejection(), problem).output_marginal - problem.target).max() < 1e-14

    @pytest.mark.parametrize(("mistake", "draft"), _MUTANTS)
    def test_in_monte_carlo(self, mistake: str, draft: list[float]) -> None:
        problem = otm.Problem(draft=draft, target=_TARGET, law=otm.WithoutReplacement(3))
        rows, claimed = joint_law(otm.RecursiveRejection(), problem)
        truth = joint_law(PathVerifier(mistake), problem)[1]
        assert power(truth, claimed, SAMPLES) > 1 - 1e-6
        draws = otm.sample(PathVerifier(mistake), problem, size=SAMPLES, rng=np.random.default_rng(1))
        assert alarms(tabulate(draws, rows, 4), claimed, SAMPLES).any()


# --- degenerate inputs ----------------------------------------------------------------------------------------------------------

_DEGENERATE = {
    "p = q": ([0.5, 0.3, 0.2], [0.5, 0.3, 0.2]),
    "disjoint": ([0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]),
    "point masses apart": ([1.0, 0.0, 0.0], [0.0, 0.0, 1.0]),
    "point masses together": ([0.0, 1.0, 0.0], [0.0, 1.0, 0.0]),
    "V = 1": ([1.0], [1.0]),
    "ties": ([0.25] * 4, [0.25] * 4),
    "masses of 1e-300": ([1.0, 1e-300, 2e-300], [1e-300, 0.4, 0.6]),
    "q a point": ([0.4, 0.35, 0.25], [0.0, 0.0, 1.0]),
}
_VERIFIERS = (
    otm.Naive(),
    otm.NaiveTree(),
    otm.RecursiveRejection(),
    otm.SpecHub(),
    otm.GreedyOptimal(),
    otm.SelectThenReject(),
)


@pytest.mark.parametrize("name", _DEGENERATE)
@pytest.mark.parametrize("verifier", _VERIFIERS, ids=lambda v: type(v).__name__)
def test_degenerate_inputs(name: str, verifier: otm.Verifier) -> None:
    draft, target = (np.asarray(x) for x in _DEGENERATE[name])
    draft = draft / math.fsum(draft)
    for make, k in itertools.product((otm.IID, otm.WithoutReplacement, otm.Greedy, otm.TopK), (1, 2, 3)):
        law = make(k)
        if not verifier.supports(law) or (k > len(draft) and make is not otm.IID):
            continue
        problem = otm.Problem(draft=draft, target=target, law=law)
        plan = otm.coupling(verifier, problem)
        tolerance = max(rounding(len(draft), k), 1e-9 if isinstance(verifier, otm.SelectThenReject) else 0.0)
        assert np.abs(plan.output_marginal - target).max() <= rounding(len(draft), k)
        value = otm.acceptance(verifier, problem)
        assert value == pytest.approx(plan.acceptance, abs=tolerance)
        assert otm.acceptance(verifier, problem, by="rule") <= value + tolerance
        assert value <= otm.optimal_acceptance(problem) + tolerance
        draws = otm.sample(verifier, problem, size=50, rng=np.random.default_rng(0))
        assert (target[draws.output] > 0).all()
    if name == "p = q" and not isinstance(verifier, otm.Naive):
        assert value == pytest.approx(1.0, abs=tolerance)
    if name == "disjoint":
        assert value == pytest.approx(0.0, abs=1e-15)
