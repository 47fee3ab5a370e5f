"""The static ensemble: its law, and that it lies on the total variation frontier."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

import otm
from tests import strategies
from tests.verifiers.lossy_instances import ROUNDING, one_draft


@given(pair=strategies.pairs(max_tokens=6), weight=st.floats(0.0, 1.0))
def test_law_acceptance_and_frontier(pair: tuple[np.ndarray, np.ndarray], weight: float) -> None:
    problem, verifier = one_draft(pair), otm.Ensemble(weight)
    p, q = problem.draft, problem.target
    distance = float(np.maximum(p - q, 0).sum())
    law = otm.lossy.output_law(verifier, problem)
    np.testing.assert_allclose(law, weight * q + (1 - weight) * p, rtol=0, atol=ROUNDING)
    for by in ("rule", "membership"):
        assert otm.acceptance(verifier, problem, by=by) == pytest.approx(
            1 - weight * distance, abs=ROUNDING
        )
    spent = otm.lossy.distortion(verifier, problem).total_variation
    assert spent == pytest.approx((1 - weight) * distance, abs=ROUNDING)
    assert otm.lossy.tv_frontier(problem, tv=min(spent, 1.0)) == pytest.approx(
        1 - weight * distance, abs=ROUNDING
    )


def test_parameters() -> None:
    for bad in (-0.1, 1.5):
        with pytest.raises(otm.errors.InvalidParameter, match="weight must lie in"):
            otm.Ensemble(bad)
