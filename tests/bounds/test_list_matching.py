"""The list matching bound below the list race."""

from __future__ import annotations

import itertools

from hypothesis import given, settings

import otm
from otm import ListRace, Problem
from tests import strategies

SLACK = 1e-11  # quadrature (2e-12) and rounding on both sides of an inequality


@settings(max_examples=150)
@given(problem=strategies.iid_problems(max_tokens=6))
def test_the_order_of_the_list_race_and_its_bound(problem: Problem) -> None:
    chain = [
        otm.optimal_acceptance(problem),
        otm.acceptance(ListRace(), problem),
        otm.acceptance(ListRace(), problem, by="rule"),
        otm.bounds.list_matching_lower(problem),
    ]
    assert all(left >= right - SLACK for left, right in itertools.pairwise(chain)), chain
