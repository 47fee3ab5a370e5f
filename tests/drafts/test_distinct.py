"""Laws that draft no token twice."""

from __future__ import annotations

import pytest

import otm


@pytest.mark.parametrize("make", [otm.WithoutReplacement, otm.Greedy, otm.TopK])
def test_more_distinct_drafts_than_tokens_are_an_error(make: type[otm.Law]) -> None:
    with pytest.raises(
        otm.errors.InvalidParameter, match="Distinct drafts need k ≤ V; got k = 3 with V = 2"
    ):
        otm.Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=make(3))
    problem = otm.Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=make(1))
    with pytest.raises(otm.errors.InvalidParameter, match="k ≤ V"):
        otm.optimal_acceptance_curve(problem, k=[1, 2, 3])
