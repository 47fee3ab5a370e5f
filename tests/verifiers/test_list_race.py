"""The list race: by rule as printed, by membership as its coupling and as simulated."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import binom

import otm
from otm import IID, ListRace, Problem
from tests import exact, strategies
from tests.verifiers.race_references import FALSE_ALARM, INTEGRATED, P, Q, simulated_race


class TestListRace:
    @settings(max_examples=40)
    @given(pair=strategies.pairs(max_tokens=5), k=st.integers(1, 3))
    def test_by_rule_is_the_sum_as_printed(
        self, pair: tuple[np.ndarray, np.ndarray], k: int
    ) -> None:
        p, q = exact.exact(pair[0]), exact.exact(pair[1])
        wanted = Fraction(0)
        for j in range(len(p)):
            if p[j] and q[j]:
                both = sum(
                    (max(p[i] / p[j], q[i] / q[j]) + (k - 1) * q[i] / q[j] for i in range(len(p))),
                    Fraction(0),
                )
                wanted += k / both
        problem = Problem(draft=pair[0], target=pair[1], law=IID(k))
        assert otm.acceptance(ListRace(), problem, by="rule") == pytest.approx(
            float(wanted), abs=1e-14
        )

    @settings(max_examples=40)
    @given(pair=strategies.pairs(max_tokens=4), k=st.integers(2, 3))
    def test_membership_is_that_of_the_coupling(
        self, pair: tuple[np.ndarray, np.ndarray], k: int
    ) -> None:
        problem = Problem(draft=pair[0], target=pair[1], law=IID(k))
        value = otm.acceptance(ListRace(), problem)
        assert value == pytest.approx(
            otm.coupling(ListRace(), problem).acceptance, abs=2 * INTEGRATED
        )

    def test_membership_by_simulation(self) -> None:
        problem = Problem(draft=P, target=Q, law=IID(3))
        found = simulated_race(P, Q, 3, 3, 200_000, np.random.default_rng(40))
        hits = sum(output in drafts for *drafts, output in found)
        value = otm.acceptance(ListRace(), problem)
        assert (
            binom.ppf(FALSE_ALARM / 2, 200_000, value)
            <= hits
            <= binom.isf(FALSE_ALARM / 2, 200_000, value)
        )

    def test_membership_at_full_vocabulary_lies_between_the_rule_and_the_optimum(self) -> None:
        rng = np.random.default_rng(8)
        p = otm.from_logits(2 * rng.normal(size=20_000))
        problem = Problem(
            draft=p, target=otm.from_logits(np.log(p) + rng.normal(size=20_000)), law=IID(4)
        )
        rule, member = (otm.acceptance(ListRace(), problem, by=by) for by in ("rule", "membership"))
        assert rule + 1e-6 < member < otm.optimal_acceptance(problem)
