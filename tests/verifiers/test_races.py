"""Races and MinHash: exact values against rational, high-precision and simulated references that share no code with them."""

from __future__ import annotations

import itertools
import time
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

import otm
from otm import IID, ListRace, MinHash, Problem, Race, WithoutReplacement
from otm.races import QUADRATURE_ERROR, exponential_nodes
from tests import exact, strategies

TARGET, DRAFT = [0.1, 0.3, 0.05, 0.25, 0.3], [0.5, 0.2, 0.15, 0.1, 0.05]
INTEGRATED = 2 * QUADRATURE_ERROR  # discretisation, two cut-offs of 1e-13 and the rounding of sums below 1
FALSE_ALARM = 1e-9


# --- references ---------------------------------------------------------------------------------------------------------------


def race_exactly(p: exact.Masses, q: exact.Masses, k: int) -> Fraction:
    """Expand the Poisson-binomial probabilities into exponentials, each integrated in closed form: rational, 3^V terms."""
    value = Fraction(0)
    for i in range(len(p)):
        if p[i] == 0:
            continue
        rates = [max(q[i] * p[j] / p[i] - q[j], Fraction(0)) for j in range(len(p)) if j != i]
        for size in range(min(k, len(rates) + 1)):
            for overtaking in itertools.combinations(range(len(rates)), size):
                stay = 1 + sum((r for j, r in enumerate(rates) if j not in overtaking), Fraction(0))
                for late in exact.subsets(size):
                    both = stay + sum((rates[overtaking[j]] for j in late), Fraction(0))
                    value += q[i] * (-1) ** len(late) / both
    return value


def race_by_panels(p: np.ndarray, q: np.ndarray, k: int) -> float:
    """Gauss–Legendre on panels [a, 2a] from 1e-10 to 50, tokens in their own order; the rest of the law of t is below 2e-10."""
    x, w = np.polynomial.legendre.leggauss(14)
    edges = 50.0 * 2.0 ** np.arange(-39, 1)
    t = np.concatenate([a + (b - a) * (x + 1) / 2 for a, b in itertools.pairwise(edges)])
    weight = np.concatenate([(b - a) / 2 * w for a, b in itertools.pairwise(edges)]) * np.exp(-t)
    value = 0.0
    for i in range(len(p)):
        rates = np.maximum(q[i] / p[i] * p - q, 0.0)
        counts = [np.ones_like(t), *(np.zeros_like(t) for _ in range(k - 1))]
        for rate in rates[rates > 0]:
            hit = 1 - np.exp(-rate * t)
            counts = [counts[m] * (1 - hit) + (counts[m - 1] * hit if m else 0) for m in range(k)]
        value += q[i] * float(weight @ sum(counts))
    return value


def race_in_high_precision(p: list[float], q: list[float], k: int) -> float:
    """The integral in 40 digits, in the variable log t, which resolves overtaking rates of 1e300."""
    with mpmath.workdps(40):
        P, Q = [mpmath.mpf(x) for x in p], [mpmath.mpf(x) for x in q]
        value = mpmath.mpf(0)
        for i in range(len(P)):
            if P[i] == 0 or Q[i] == 0:
                continue
            rates = [max(Q[i] * P[j] / P[i] - Q[j], 0) for j in range(len(P)) if j != i]

            def density(u: mpmath.mpf, rates: list[mpmath.mpf] = rates) -> mpmath.mpf:
                t, counts = mpmath.exp(u), [mpmath.mpf(1)] + [mpmath.mpf(0)] * (k - 1)
                for rate in rates:
                    hit = -mpmath.expm1(-rate * t)
                    counts = [counts[m] * (1 - hit) + (counts[m - 1] * hit if m else 0) for m in range(k)]
                return t * mpmath.exp(-t) * sum(counts)

            value += Q[i] * mpmath.quad(density, [*range(-32, 5, 2)])
        return float(value)


def simulated_race(p: np.ndarray, q: np.ndarray, k: int, lists: int, n: int, rng: np.random.Generator) -> list[tuple]:
    """Draw (drafts, output) from plain exponentials: the definition."""
    times = rng.exponential(size=(n, lists, len(p)))
    draft = np.argsort(times / p, axis=2)
    drafts = draft[:, 0, :k] if lists == 1 else draft[:, :, 0]
    output = (times / q).min(axis=1).argmin(axis=1)
    return [(*map(int, row), int(y)) for row, y in zip(drafts, output, strict=True)]


def simulated_darts(p: np.ndarray, q: np.ndarray, n: int, rng: np.random.Generator) -> tuple[list[tuple], int]:
    """Throw darts one after the other; return (draft, output) and how often both stopped at the same dart."""
    darts = 400  # both stop within 400 darts but for (1 − 1/V)^400 < 1e-49 at V = 4
    token, height = rng.integers(len(p), size=(n, darts)), rng.random((n, darts))
    first, second = (height <= p[token]).argmax(axis=1), (height <= q[token]).argmax(axis=1)
    rows = np.arange(n)
    found = list(zip(token[rows, first].tolist(), token[rows, second].tolist(), strict=True))
    return found, int(np.count_nonzero(first == second))


def assert_drawn_from(found: list[tuple], plan: otm.results.Coupling) -> None:
    """Every cell's count within its binomial interval; all cells together alarm falsely with probability `FALSE_ALARM`."""
    cells = {
        (*row, y): m
        for row, masses in zip(plan.drafts.tolist(), plan.joint.toarray(), strict=True)
        for y, m in enumerate(masses)
    }
    counts = dict.fromkeys(cells, 0)
    for cell in found:
        counts[cell] += 1
    for cell, mass in cells.items():
        tail = FALSE_ALARM / (2 * len(cells))
        low, high = binom.ppf(tail, len(found), mass), binom.isf(tail, len(found), mass)
        assert low <= counts[cell] <= high, (cell, mass, counts[cell])


# --- the race -----------------------------------------------------------------------------------------------------------------


class TestRaceValue:
    @pytest.mark.parametrize(("k", "value"), [(1, 0.454717), (2, 0.724113), (3, 0.876561), (4, 0.961116), (5, 1.0)])
    def test_gold_row_8(self, k: int, value: float) -> None:
        p, q = ([Fraction(x).limit_denominator(100) for x in row] for row in (DRAFT, TARGET))
        rational = race_exactly(p, q, k)
        assert float(rational) == pytest.approx(value, abs=5e-7)
        found = otm.acceptance(Race(), Problem(draft=DRAFT, target=TARGET, law=WithoutReplacement(k)))
        assert found == pytest.approx(float(rational), abs=INTEGRATED)

    @settings(max_examples=60)
    @given(pair=strategies.pairs(max_tokens=5), data=st.data())
    def test_against_rational_arithmetic(self, pair: tuple[np.ndarray, np.ndarray], data: st.DataObject) -> None:
        p, q = pair
        k = data.draw(st.integers(1, len(p)))
        wanted = float(race_exactly(exact.exact(p), exact.exact(q), k))
        for law in [WithoutReplacement(k), IID(1)][: 2 if k == 1 else 1]:
            assert otm.acceptance(Race(), Problem(draft=p, target=q, law=law)) == pytest.approx(wanted, abs=INTEGRATED)

    @pytest.mark.parametrize("k", [2, 3])
    def test_tiny_masses_against_high_precision(self, k: int) -> None:
        p, q = np.array([0.6, 0.3, 1e-300, 0.1, 1e-8]), np.array([0.2, 1e-300, 0.5, 1e-12, 0.3])
        p, q = p / p.sum(), q / q.sum()
        value = otm.acceptance(Race(), Problem(draft=p, target=q, law=WithoutReplacement(k)))
        # 1e-12: the reference cuts t below e^{-32} = 1e-14 and above e^4, and is 40 digits otherwise.
        assert value == pytest.approx(race_in_high_precision(list(p), list(q), k), abs=INTEGRATED + 1e-12)

    @pytest.mark.parametrize("k", [2, 5])
    def test_512_tokens_against_gauss_legendre(self, k: int) -> None:
        rng = np.random.default_rng(3)
        V = 512 if k == 2 else 200
        p = otm.from_logits(2 * rng.normal(size=V))
        q = otm.from_logits(np.log(p) + rng.normal(size=V))
        value = otm.acceptance(Race(), Problem(draft=p, target=q, law=WithoutReplacement(k)))
        assert value == pytest.approx(race_by_panels(p, q, k), abs=1e-9)  # what the reference leaves out below its first panel

    def test_simulated_at_a_size_that_no_enumeration_reaches(self) -> None:
        rng = np.random.default_rng(4)
        p, q = otm.examples.dirichlet(60, rng=rng), otm.examples.dirichlet(60, rng=rng)
        for verifier, law in [(Race(), WithoutReplacement(6)), (Race(), IID(1)), (ListRace(), IID(6)), (MinHash(), IID(1))]:
            problem = Problem(draft=p, target=q, law=law)
            for by in ("membership", "rule"):
                seen = otm.estimate(verifier, problem, samples=40_000, rng=rng, confidence=1 - FALSE_ALARM, by=by)
                assert seen.low <= otm.acceptance(verifier, problem, by=by) <= seen.high, (verifier, by)

    def test_special_cases(self) -> None:
        def value(p: list[float], q: list[float], k: int) -> float:
            return otm.acceptance(Race(), Problem(draft=p, target=q, law=WithoutReplacement(k)))

        assert value([1.0], [1.0], 1) == 1.0
        for k in (1, 2, 3):
            assert value([0.5, 0.3, 0.2], [0.5, 0.3, 0.2], k) == pytest.approx(1.0, abs=INTEGRATED)
            assert value([0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5], k) == 0.0
            assert value([0.25] * 4, [0.25] * 4, k) == pytest.approx(1.0, abs=INTEGRATED)
        assert value([0.5, 0.5, 0.0], [0.2, 0.3, 0.5], 2) == pytest.approx(0.5, abs=1e-15)  # the whole support is drafted
        with pytest.raises(otm.errors.InvalidParameter, match="Distinct drafts need k ≤ V"):
            value([0.5, 0.5], [0.5, 0.5], 3)

    def test_beyond_512_draftable_tokens_is_refused_with_what_to_call(self) -> None:
        p = otm.examples.zipf(600)
        problem = Problem(draft=p, target=otm.examples.uniform(600), law=WithoutReplacement(2))
        with pytest.raises(
            otm.errors.TooLarge, match=r"512 draftable.*there are 600.*poisson_representation_lower.*otm\.estimate"
        ):
            otm.acceptance(Race(), problem)
        restricted = Problem(
            draft=otm.normalise(np.where(np.arange(600) < 40, p, 0)), target=otm.examples.uniform(600), law=problem.law
        )
        assert 0 < otm.acceptance(Race(), restricted) < 40 / 600

    def test_batches_and_torch(self) -> None:
        import torch

        rng = np.random.default_rng(5)
        p, q = otm.examples.dirichlet(6, rng=rng, rows=4), otm.examples.dirichlet(6, rng=rng, rows=4)
        for verifier, law in [(Race(), IID(1)), (Race(), WithoutReplacement(3)), (ListRace(), IID(3)), (MinHash(), IID(1))]:
            rows = [otm.acceptance(verifier, Problem(draft=a, target=b, law=law)) for a, b in zip(p, q, strict=True)]
            batch = otm.acceptance(verifier, Problem(draft=torch.tensor(p), target=torch.tensor(q), law=law))
            assert isinstance(batch, torch.Tensor)
            assert batch.dtype == torch.float64
            np.testing.assert_allclose(batch.numpy(), rows, rtol=0, atol=1e-14)

    @pytest.mark.long
    def test_full_vocabulary_costs_at_most_five_sorts(self) -> None:
        rng = np.random.default_rng(6)
        p = otm.from_logits(3 * rng.normal(size=128_256))
        problem = Problem(draft=p, target=otm.from_logits(np.log(p) + rng.normal(size=128_256)), law=IID(1))
        keys = problem.draft / problem.target

        def fastest(call: object) -> float:
            spent = []
            for _ in range(30):
                start = time.perf_counter()
                call()  # type: ignore[operator]
                spent.append(time.perf_counter() - start)
            return min(spent)

        assert fastest(lambda: otm.acceptance(Race(), problem)) <= 5 * fastest(lambda: np.argsort(keys))

    def test_full_vocabulary_against_the_sum_as_written(self) -> None:
        rng = np.random.default_rng(7)
        V = 128_256
        p = otm.from_logits(3 * rng.normal(size=V))
        q = otm.from_logits(np.log(p) + rng.normal(size=V))
        value = otm.acceptance(Race(), Problem(draft=p, target=q, law=IID(1)))
        # The largest terms from the definition; each of the others is at most min(p, q).
        top = np.argsort(np.minimum(p, q))[-300:]
        largest = sum(1 / np.maximum(p / p[i], q / q[i]).sum() for i in top)
        rest = np.minimum(p, q).sum() - np.minimum(p, q)[top].sum()
        assert largest <= value <= largest + rest


class TestQuadrature:
    @pytest.mark.parametrize("k", [1, 2, 8, 64])
    def test_poisson_probabilities_of_every_scale(self, k: int) -> None:
        # E Pr(Poisson(g t) ≤ k − 1) = 1 − (g/(1+g))^k for t ~ Exp(1): k arrivals at most, growth (1/cos φ)^{k−1}.
        t, weights = exponential_nodes(lambda c: -(k - 1) * np.log(c))
        from scipy.stats import poisson

        for g in 10.0 ** np.arange(-6, 13):
            wanted = -np.expm1(k * np.log(g / (1 + g)))
            assert weights @ poisson.cdf(k - 1, g * t) == pytest.approx(wanted, abs=INTEGRATED)

    def test_a_coarser_rule_would_be_noticed(self) -> None:
        t, weights = exponential_nodes(lambda c: -7 * np.log(c))
        from scipy.stats import poisson

        coarse = abs(4 * weights[::4] @ poisson.cdf(7, 3 * t[::4]) - (1 - 0.75**8))
        assert coarse > 100 * INTEGRATED


# --- couplings ----------------------------------------------------------------------------------------------------------------


class TestCouplings:
    P, Q = np.array([0.5, 0.25, 0.15, 0.1]), np.array([0.1, 0.3, 0.2, 0.4])

    @pytest.mark.parametrize("k", [1, 2, 3])
    def test_of_the_race_against_simulation(self, k: int) -> None:
        found = simulated_race(self.P, self.Q, k, 1, 200_000, np.random.default_rng(10 + k))
        assert_drawn_from(found, otm.coupling(Race(), Problem(draft=self.P, target=self.Q, law=WithoutReplacement(k))))

    @pytest.mark.parametrize("k", [2, 3])
    def test_of_the_list_race_against_simulation(self, k: int) -> None:
        found = simulated_race(self.P, self.Q, k, k, 200_000, np.random.default_rng(20 + k))
        assert_drawn_from(found, otm.coupling(ListRace(), Problem(draft=self.P, target=self.Q, law=IID(k))))

    def test_of_the_darts_against_simulation(self) -> None:
        problem = Problem(draft=self.P, target=self.Q, law=IID(1))
        found, same = simulated_darts(self.P, self.Q, 50_000, np.random.default_rng(30))
        assert_drawn_from(found, otm.coupling(MinHash(), problem))
        rule = otm.acceptance(MinHash(), problem, by="rule")
        assert binom.ppf(FALSE_ALARM / 2, 50_000, rule) <= same <= binom.isf(FALSE_ALARM / 2, 50_000, rule)

    @settings(max_examples=40)
    @given(pair=strategies.pairs(max_tokens=5))
    def test_the_closed_form_is_the_integral(self, pair: tuple[np.ndarray, np.ndarray]) -> None:
        # One race and a list of one are the same scheme; the first coupling is a closed form, the second a quadrature.
        problem = Problem(draft=pair[0], target=pair[1], law=IID(1))
        closed, integrated = otm.coupling(Race(), problem), otm.coupling(ListRace(), problem)
        table = {tuple(row): masses for row, masses in zip(closed.drafts.tolist(), closed.joint.toarray(), strict=True)}
        for row, masses in zip(integrated.drafts.tolist(), integrated.joint.toarray(), strict=True):
            np.testing.assert_allclose(masses, table[tuple(row)], rtol=0, atol=INTEGRATED)
        assert otm.acceptance(Race(), problem) == pytest.approx(otm.acceptance(ListRace(), problem), abs=1e-14)

    def test_too_large(self) -> None:
        problem = Problem(draft=otm.examples.zipf(40), target=otm.examples.uniform(40), law=WithoutReplacement(3))
        with pytest.raises(otm.errors.TooLarge, match=r"200,000 .*has 2,371,200.*otm\.sample"):
            otm.coupling(Race(), problem)


class TestListRace:
    @settings(max_examples=40)
    @given(pair=strategies.pairs(max_tokens=5), k=st.integers(1, 3))
    def test_by_rule_is_the_sum_as_printed(self, pair: tuple[np.ndarray, np.ndarray], k: int) -> None:
        p, q = exact.exact(pair[0]), exact.exact(pair[1])
        wanted = Fraction(0)
        for j in range(len(p)):
            if p[j] and q[j]:
                both = sum((max(p[i] / p[j], q[i] / q[j]) + (k - 1) * q[i] / q[j] for i in range(len(p))), Fraction(0))
                wanted += k / both
        problem = Problem(draft=pair[0], target=pair[1], law=IID(k))
        assert otm.acceptance(ListRace(), problem, by="rule") == pytest.approx(float(wanted), abs=1e-14)

    @settings(max_examples=40)
    @given(pair=strategies.pairs(max_tokens=4), k=st.integers(2, 3))
    def test_membership_is_that_of_the_coupling(self, pair: tuple[np.ndarray, np.ndarray], k: int) -> None:
        problem = Problem(draft=pair[0], target=pair[1], law=IID(k))
        value = otm.acceptance(ListRace(), problem)
        assert value == pytest.approx(otm.coupling(ListRace(), problem).acceptance, abs=2 * INTEGRATED)

    def test_membership_by_simulation(self) -> None:
        problem = Problem(draft=TestCouplings.P, target=TestCouplings.Q, law=IID(3))
        found = simulated_race(TestCouplings.P, TestCouplings.Q, 3, 3, 200_000, np.random.default_rng(40))
        hits = sum(output in drafts for *drafts, output in found)
        value = otm.acceptance(ListRace(), problem)
        assert binom.ppf(FALSE_ALARM / 2, 200_000, value) <= hits <= binom.isf(FALSE_ALARM / 2, 200_000, value)

    def test_membership_at_full_vocabulary_lies_between_the_rule_and_the_optimum(self) -> None:
        rng = np.random.default_rng(8)
        p = otm.from_logits(2 * rng.normal(size=20_000))
        problem = Problem(draft=p, target=otm.from_logits(np.log(p) + rng.normal(size=20_000)), law=IID(4))
        rule, member = (otm.acceptance(ListRace(), problem, by=by) for by in ("rule", "membership"))
        assert rule + 1e-6 < member < otm.optimal_acceptance(problem)


class TestProtocol:
    @pytest.mark.parametrize(
        ("verifier", "law"), [(Race(), WithoutReplacement(2)), (ListRace(), IID(2)), (MinHash(), IID(1))], ids=repr
    )
    def test_the_output_does_not_depend_on_the_drafter(self, verifier: otm.Verifier, law: otm.Law) -> None:
        # The same state with another draft distribution gives the same output for races: they never look at p when they verify.
        q = [0.1, 0.2, 0.3, 0.4]
        rule = otm.prepare(verifier, Problem(draft=[0.4, 0.3, 0.2, 0.1], target=q, law=law))
        drafts, state = rule.draw(np.random.default_rng(0).random((500, rule.num_draft_uniforms)))
        with pytest.raises(TypeError, match=r"state is None\. Pass"):
            rule.verify(drafts, np.zeros((500, rule.num_uniforms)), None)
        if verifier != MinHash():
            other = otm.prepare(verifier, Problem(draft=[0.7, 0.1, 0.1, 0.1], target=q, law=law))
            again = other.verify(drafts, np.zeros((500, 0)), state)
            np.testing.assert_array_equal(again[0], rule.verify(drafts, np.zeros((500, 0)), state)[0])

    def test_supports(self) -> None:
        assert [Race().supports(law) for law in (IID(1), IID(2), WithoutReplacement(1), WithoutReplacement(5))] == [
            True,
            False,
            True,
            True,
        ]
        assert not ListRace().supports(WithoutReplacement(2))
        assert not MinHash().supports(IID(2))


def test_coupling_of_masses_far_apart_keeps_the_target_and_its_own_value() -> None:
    """Likelihood ratios of 1e250 and 1e252 are two joining times, not one."""
    target = np.array([3, 2, 3, 3]) / 11
    problem = Problem(draft=[1, 1e-250, 1e-251, 1e-252], target=target, law=otm.WithoutReplacement(2))
    joint = otm.coupling(otm.Race(), problem)
    assert joint.acceptance == pytest.approx(otm.acceptance(otm.Race(), problem), abs=1e-9)
    assert joint.acceptance <= otm.optimal_acceptance(problem) + 1e-9
    np.testing.assert_allclose(joint.output_marginal, target, atol=1e-9)


@pytest.mark.parametrize("smallest", [1e-307, 1e-310, 5e-324])
def test_coupling_where_likelihood_ratios_overflow(smallest: float) -> None:
    """What happens among the last tokens depends on the ratios of their masses only, 4 to 3 here, however small they are."""
    target = np.array([0.2, 0.4, 0.4])
    joints = []
    for scale in (2.0**-500, smallest):
        problem = Problem(draft=[1, 4 * scale, 3 * scale], target=target, law=otm.WithoutReplacement(2))
        joint = otm.coupling(otm.Race(), problem)
        assert joint.acceptance == pytest.approx(otm.acceptance(otm.Race(), problem), abs=1e-9)
        np.testing.assert_allclose(joint.output_marginal, target, atol=1e-9)
        joints.append(joint.joint.toarray())
    np.testing.assert_allclose(joints[1], joints[0], atol=1e-9)
