"""Typical acceptance as written."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import otm
from otm import TypicalAcceptance
from tests import strategies
from tests.verifiers.lossy_instances import ROUNDING, one_draft


class TestTypicalAcceptance:
    @settings(max_examples=60)
    @given(pair=strategies.pairs(max_tokens=6), eps=st.floats(0, 1), delta=st.floats(0, 2))
    def test_as_written(
        self, pair: tuple[np.ndarray, np.ndarray], eps: float, delta: float
    ) -> None:
        problem = one_draft(pair)
        p, q = problem.draft, problem.target
        live = q[q > 0]
        threshold = min(eps, delta * float(np.exp(live @ np.log(live))))
        if np.abs(q - threshold).min() < 1e-12:
            return  # a tie decided by rounding
        typical = q > threshold
        verifier = TypicalAcceptance(eps=eps, delta=delta)
        assert otm.acceptance(verifier, problem, by="rule") == pytest.approx(
            p[typical].sum(), abs=ROUNDING
        )
        member = p[typical].sum() + (p * q)[~typical].sum()
        assert otm.acceptance(verifier, problem) == pytest.approx(member, abs=ROUNDING)
        wanted = np.where(typical, p, 0) + p[~typical].sum() * q
        np.testing.assert_allclose(
            otm.lossy.output_law(verifier, problem), wanted, rtol=0, atol=ROUNDING
        )

    def test_parameters(self) -> None:
        with pytest.raises(otm.errors.InvalidParameter, match="eps must lie in"):
            TypicalAcceptance(eps=1.5)
        with pytest.raises(otm.errors.InvalidParameter, match="delta must lie in"):
            TypicalAcceptance(delta=-0.1)
