"""The optimal verifier within a total variation distance: it attains the frontier and spends no more than it may."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import otm
from tests import strategies

ROUNDING = 1e-12


@given(pair=strategies.pairs(max_tokens=5), k=st.integers(1, 4), tv=st.floats(0.0, 1.0))
def test_the_frontier_is_attained_within_the_budget(pair: tuple[np.ndarray, np.ndarray], k: int, tv: float) -> None:
    problem, verifier = otm.Problem(draft=pair[0], target=pair[1], law=otm.IID(k)), otm.TvOptimal(tv)
    found = otm.coupling(verifier, problem)
    due = float(otm.lossy.tv_frontier(problem, tv=tv))
    assert found.acceptance == pytest.approx(due, abs=ROUNDING)
    assert otm.acceptance(verifier, problem) == pytest.approx(due, abs=ROUNDING)
    assert otm.lossy.distortion(verifier, problem).total_variation <= tv + ROUNDING


def test_nothing_to_spend_is_the_optimal_verifier() -> None:
    rng = np.random.default_rng(0)
    problem = otm.Problem(draft=rng.dirichlet(np.ones(5)), target=rng.dirichlet(np.ones(5)), law=otm.IID(3))
    assert otm.lossy.distortion(otm.TvOptimal(0.0), problem).total_variation < ROUNDING


def test_a_draft_that_is_always_accepted_leaves_nothing_to_forgive() -> None:
    problem = otm.Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=otm.IID(2))
    assert otm.acceptance(otm.TvOptimal(0.1), problem) == 1.0
    np.testing.assert_allclose(otm.lossy.output_law(otm.TvOptimal(0.1), problem), [0.5, 0.5], atol=1e-15)


def test_parameters() -> None:
    with pytest.raises(otm.errors.InvalidParameter, match="tv must lie in"):
        otm.TvOptimal(1.5)
