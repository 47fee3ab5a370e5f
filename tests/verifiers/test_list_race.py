"""The list race: by rule as printed, by membership where both are tiny."""

from fractions import Fraction

import pytest
from hypothesis import given, settings, strategies as st

import otm
from otm import IID, ListRace, Problem
from tests import exact, strategies


class TestListRace:
    @settings(max_examples=40)
    @given(pair=strategies.pairs(max_tokens=5), k=st.integers(1, 3))
    def test_by_rule_is_the_sum_as_printed(self, pair, k):
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

    @pytest.mark.parametrize("k", [2, 3, 8])
    def test_membership_is_no_less_than_the_rule_where_both_are_tiny(self, k):
        problem = Problem(draft=[1e-10, 1 - 1e-10], target=[1.0, 0.0], law=IID(k))
        share = Fraction(problem.draft[0])  # g = (1 − p)/p, so k q/(k + g) = k p/(1 + (k − 1) p)
        rule, member = (otm.acceptance(ListRace(), problem, by=by) for by in ("rule", "membership"))
        assert rule == pytest.approx(float(k * share / (1 + (k - 1) * share)), rel=1e-14)
        # no other token is ever put out, so one draft of it is all there is to hit
        exact_member = float(1 - (1 - share) ** k)
        assert rule <= member <= exact_member + 2e-12
        assert otm.bounds.list_matching_lower(problem) <= member

    @settings(max_examples=40)
    @given(pair=strategies.pairs(max_tokens=5), k=st.integers(1, 4))
    def test_one_process_keeps_no_less(self, pair, k):
        problem = Problem(draft=pair[0], target=pair[1], law=IID(k))
        assert otm.acceptance(otm.Race(), problem) >= otm.acceptance(ListRace(), problem) - 3e-12
