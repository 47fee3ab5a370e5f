"""Lenience: its laws as written, and the two residuals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import otm
from otm import Lenience
from tests import strategies
from tests.verifiers.lossy_instances import ROUNDING, one_draft


class TestLenience:
    @settings(max_examples=100)
    @given(pair=strategies.pairs(max_tokens=6), factor=st.floats(0.05, 1.0))
    def test_laws_as_written(self, pair: tuple[np.ndarray, np.ndarray], factor: float) -> None:
        problem = one_draft(pair)
        p, q = problem.draft, problem.target
        plain, scaled = Lenience(factor), Lenience(factor, residual="scaled")
        kept = np.minimum(p, q / factor)
        laws = [otm.lossy.output_law(v, problem) for v in (plain, scaled)]
        for verifier, law, weight in zip((plain, scaled), laws, (1.0, factor), strict=True):
            assert otm.acceptance(verifier, problem, by="rule") == pytest.approx(
                kept.sum(), abs=ROUNDING
            )
            assert otm.acceptance(verifier, problem) == pytest.approx(kept.sum(), abs=ROUNDING)
            residual = np.maximum(q - weight * p, 0)
            # Where the rejection is rounding, so may be the residual, and anything times it is.
            if residual.sum() > 1e-9:
                wanted = kept + (1 - kept.sum()) * residual / residual.sum()
                np.testing.assert_allclose(law, wanted, rtol=0, atol=1e-12)
            assert (law <= q / factor + ROUNDING / factor).all()
        near, far = (otm.lossy.distortion(v, problem).total_variation for v in (plain, scaled))
        assert near <= far + ROUNDING

    def test_one_is_speculative_decoding(self) -> None:
        problem = one_draft((np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])))
        np.testing.assert_allclose(
            otm.lossy.output_law(Lenience(1.0), problem), problem.target, atol=1e-15
        )

    def test_the_two_residuals_differ(self) -> None:
        problem = one_draft((np.array([0.6, 0.3, 0.1]), np.array([0.1, 0.25, 0.65])))
        laws = [
            otm.lossy.output_law(Lenience(0.5, residual=r), problem) for r in ("plain", "scaled")
        ]
        assert np.abs(laws[0] - laws[1]).max() > 0.01

    def test_parameters(self) -> None:
        for bad in (0.0, -1.0, 1.5):
            with pytest.raises(otm.errors.InvalidParameter, match="lenience must lie in"):
                Lenience(bad)
        with pytest.raises(otm.errors.InvalidParameter, match="residual must be 'plain'"):
            Lenience(0.5, residual="other")  # type: ignore[arg-type]
