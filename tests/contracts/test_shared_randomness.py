"""Races and MinHash: couplings against simulation, and outputs that do not depend on
the drafter.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.stats import binom

import otm
from otm import IID, ListRace, MinHash, Problem, Race, WithoutReplacement
from tests import strategies
from tests.verifiers.race_references import FALSE_ALARM, INTEGRATED, P, Q, simulated_race


def simulated_darts(
    p: np.ndarray, q: np.ndarray, n: int, rng: np.random.Generator
) -> tuple[list[tuple], int]:
    """Throw darts one after the other; return (draft, output) and how often both stopped at the
    same dart.
    """
    darts = 400  # both stop within 400 darts but for (1 − 1/V)^400 < 1e-49 at V = 4
    token, height = rng.integers(len(p), size=(n, darts)), rng.random((n, darts))
    first, second = (height <= p[token]).argmax(axis=1), (height <= q[token]).argmax(axis=1)
    rows = np.arange(n)
    found = list(zip(token[rows, first].tolist(), token[rows, second].tolist(), strict=True))
    return found, int(np.count_nonzero(first == second))


def assert_drawn_from(found: list[tuple], plan: otm.results.Coupling) -> None:
    """Every cell's count within its binomial interval; all cells together alarm falsely with
    probability `FALSE_ALARM`.
    """
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


class TestCouplings:
    @pytest.mark.parametrize("k", [1, 2, 3])
    def test_of_the_race_against_simulation(self, k: int) -> None:
        found = simulated_race(P, Q, k, 1, 200_000, np.random.default_rng(10 + k))
        assert_drawn_from(
            found, otm.coupling(Race(), Problem(draft=P, target=Q, law=WithoutReplacement(k)))
        )

    @pytest.mark.parametrize("k", [2, 3])
    def test_of_the_list_race_against_simulation(self, k: int) -> None:
        found = simulated_race(P, Q, k, k, 200_000, np.random.default_rng(20 + k))
        assert_drawn_from(found, otm.coupling(ListRace(), Problem(draft=P, target=Q, law=IID(k))))

    @pytest.mark.parametrize("k", [2, 3])
    def test_of_a_race_with_independent_drafts_against_its_list(self, k: int) -> None:
        """A list of draws from p at the points of a Poisson process: the drafts are its first k
        entries, the output is the entry with the least T_n p(X_n)/q(X_n).
        """
        # the winner stands at time t q/p of the list, t ~ Exp(1): not beyond 400 entries
        rng, count = np.random.default_rng(40 + k), 40_000
        entries = rng.choice(len(P), p=P, size=(count, 400))
        times = np.cumsum(rng.exponential(size=(count, 400)), axis=1)
        winner = entries[np.arange(count), (times * (P / Q)[entries]).argmin(axis=1)]
        found = list(map(tuple, np.column_stack([entries[:, :k], winner]).tolist()))
        assert_drawn_from(found, otm.coupling(Race(), Problem(draft=P, target=Q, law=IID(k))))

    def test_of_the_darts_against_simulation(self) -> None:
        problem = Problem(draft=P, target=Q, law=IID(1))
        found, same = simulated_darts(P, Q, 50_000, np.random.default_rng(30))
        assert_drawn_from(found, otm.coupling(MinHash(), problem))
        rule = otm.acceptance(MinHash(), problem, by="rule")
        assert (
            binom.ppf(FALSE_ALARM / 2, 50_000, rule)
            <= same
            <= binom.isf(FALSE_ALARM / 2, 50_000, rule)
        )

    @settings(max_examples=40)
    @given(pair=strategies.pairs(max_tokens=5))
    def test_the_closed_form_is_the_integral(self, pair: tuple[np.ndarray, np.ndarray]) -> None:
        # One race and a list of one are the same scheme; the first coupling is a closed form, the
        # second a quadrature.
        problem = Problem(draft=pair[0], target=pair[1], law=IID(1))
        closed, integrated = otm.coupling(Race(), problem), otm.coupling(ListRace(), problem)
        table = {
            tuple(row): masses
            for row, masses in zip(closed.drafts.tolist(), closed.joint.toarray(), strict=True)
        }
        for row, masses in zip(integrated.drafts.tolist(), integrated.joint.toarray(), strict=True):
            np.testing.assert_allclose(masses, table[tuple(row)], rtol=0, atol=INTEGRATED)
        assert otm.acceptance(Race(), problem) == pytest.approx(
            otm.acceptance(ListRace(), problem), abs=1e-14
        )

    def test_too_large(self) -> None:
        problem = Problem(
            draft=otm.examples.zipf(40), target=otm.examples.uniform(40), law=WithoutReplacement(3)
        )
        with pytest.raises(otm.errors.TooLarge, match=r"200,000 .*has 2,371,200.*otm\.sample"):
            otm.coupling(Race(), problem)


class TestProtocol:
    @pytest.mark.parametrize(
        ("verifier", "law"),
        [
            (Race(), WithoutReplacement(2)),
            (Race(), IID(2)),
            (ListRace(), IID(2)),
            (MinHash(), IID(1)),
        ],
        ids=repr,
    )
    def test_the_output_does_not_depend_on_the_drafter(
        self, verifier: otm.Verifier, law: otm.Law
    ) -> None:
        # The same state with another draft distribution gives the same output for races: they never
        # look at p when they verify.
        q = [0.1, 0.2, 0.3, 0.4]
        rule = otm.prepare(verifier, Problem(draft=[0.4, 0.3, 0.2, 0.1], target=q, law=law))
        drafts, state = rule.draw(np.random.default_rng(0).random((500, rule.num_draft_uniforms)))
        with pytest.raises(TypeError, match=r"state is None\. Pass"):
            rule.verify(drafts, np.zeros((500, rule.num_uniforms)), None)
        if verifier != MinHash():
            other = otm.prepare(verifier, Problem(draft=[0.7, 0.1, 0.1, 0.1], target=q, law=law))
            again = other.verify(drafts, np.zeros((500, 0)), state)
            np.testing.assert_array_equal(
                again[0], rule.verify(drafts, np.zeros((500, 0)), state)[0]
            )

    def test_supports(self) -> None:
        assert [
            Race().supports(law)
            for law in (IID(1), IID(2), WithoutReplacement(1), WithoutReplacement(5))
        ] == [
            True,
            True,
            True,
            True,
        ]
        assert not ListRace().supports(WithoutReplacement(2))
        assert not MinHash().supports(IID(2))
