"""Lemma 1's limit of many drafts."""

from __future__ import annotations

import pytest

import otm
from tests.tolerance import rounding


def test_the_limit_is_the_target_mass_that_can_be_drafted() -> None:
    problem = otm.Problem(draft=[0.5, 0.5, 0.0], target=[0.2, 0.3, 0.5], law=otm.IID(1))
    limit = otm.bounds.support_limit_upper(problem)
    assert limit >= 0.5  # rounded up: what is 1/2 exactly is not called less
    assert limit == pytest.approx(0.5, abs=2 * (3 * 4 + 4) * 2.0**-53)
    assert otm.optimal_acceptance(problem.with_law(otm.IID(200))) == pytest.approx(
        0.5, abs=rounding(3, 64)
    )
