"""The optimal verifier within a total variation distance: it attains the frontier and spends no
more than it may.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

import otm
from tests import strategies

ROUNDING = 1e-12


@given(pair=strategies.pairs(max_tokens=5), k=st.integers(1, 4), tv=st.floats(0.0, 1.0))
def test_the_frontier_is_attained_within_the_budget(
    pair: tuple[np.ndarray, np.ndarray], k: int, tv: float
) -> None:
    problem, verifier = (
        otm.Problem(draft=pair[0], target=pair[1], law=otm.IID(k)),
        otm.TvOptimal(tv),
    )
    found = otm.coupling(verifier, problem)
    due = float(otm.lossy.tv_frontier(problem, tv=tv))
    assert found.acceptance == pytest.approx(due, abs=ROUNDING)
    assert otm.acceptance(verifier, problem) == pytest.approx(due, abs=ROUNDING)
    assert otm.lossy.distortion(verifier, problem).total_variation <= tv + ROUNDING
    np.testing.assert_allclose(
        otm.lossy.output_law(verifier, problem), found.output_marginal, atol=ROUNDING
    )


def test_nothing_to_spend_is_the_optimal_verifier() -> None:
    rng = np.random.default_rng(0)
    problem = otm.Problem(
        draft=rng.dirichlet(np.ones(5)), target=rng.dirichlet(np.ones(5)), law=otm.IID(3)
    )
    assert otm.lossy.distortion(otm.TvOptimal(0.0), problem).total_variation < ROUNDING


def test_a_draft_that_is_always_accepted_leaves_nothing_to_forgive() -> None:
    problem = otm.Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=otm.IID(2))
    assert otm.acceptance(otm.TvOptimal(0.1), problem) == 1.0
    np.testing.assert_allclose(
        otm.lossy.output_law(otm.TvOptimal(0.1), problem), [0.5, 0.5], atol=1e-15
    )


def test_one_draft_is_the_static_ensemble_and_a_vocabulary_may_be_large() -> None:
    rng = np.random.default_rng(1)
    problem = otm.Problem(
        draft=rng.dirichlet(np.ones(4096)), target=rng.dirichlet(np.ones(4096)), law=otm.IID(1)
    )
    distance = 1 - float(otm.optimal_acceptance(problem))
    due = otm.lossy.output_law(otm.Ensemble(1 - 0.1 / distance), problem)
    np.testing.assert_allclose(
        otm.lossy.output_law(otm.TvOptimal(0.1), problem), due, atol=ROUNDING
    )
    found = otm.compare(draft=problem.draft, target=problem.target, k=[1, 4], samples=0)
    row = next(
        row for row in found.rows if isinstance(row.verifier, otm.TvOptimal) and row.law.k == 4
    )
    assert row.distortion is not None and row.distortion.total_variation == pytest.approx(
        0.05, abs=ROUNDING
    )


def test_parameters() -> None:
    with pytest.raises(otm.errors.InvalidParameter, match="tv must lie in"):
        otm.TvOptimal(1.5)
