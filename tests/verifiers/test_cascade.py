"""Speculative cascades: the two laws as written."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import otm
from tests import strategies
from tests.verifiers.lossy_instances import ROUNDING, one_draft


@given(pair=strategies.pairs(max_tokens=6), alpha=st.floats(0.0, 1.0))
def test_token_v3_is_the_test_with_the_target_behind_it(pair: tuple[np.ndarray, np.ndarray], alpha: float) -> None:
    problem, verifier = one_draft(pair), otm.Cascade(rule="token_v3", alpha=alpha)
    p, q = problem.draft, problem.target
    good = q >= (1 - alpha) * q.max()
    due = np.where(good, p, 0) + p[~good].sum() * q
    np.testing.assert_allclose(otm.lossy.output_law(verifier, problem), due, rtol=0, atol=ROUNDING)
    for by in ("rule", "membership"):
        assert otm.acceptance(verifier, problem, by=by) == pytest.approx(np.minimum(p, due).sum(), abs=ROUNDING)
    assert otm.acceptance(verifier, problem) >= p[good].sum() - ROUNDING


@given(pair=strategies.pairs(max_tokens=6), alpha=st.floats(0.0, 1.0))
def test_opt_is_one_law_or_the_other(pair: tuple[np.ndarray, np.ndarray], alpha: float) -> None:
    problem, verifier = one_draft(pair), otm.Cascade(rule="opt", alpha=alpha)
    p, q = problem.draft, problem.target
    # The price as the verifier sums it: a tie in rounding may fall either way, and both laws are then the cascade's.
    margin = p.max() - (q.max() - alpha * np.maximum(p - q, 0).sum())
    if abs(margin) > ROUNDING:
        np.testing.assert_allclose(otm.lossy.output_law(verifier, problem), q if margin < 0 else p, rtol=0, atol=ROUNDING)


def test_the_ends_of_the_price() -> None:
    problem = one_draft((np.array([0.6, 0.3, 0.1]), np.array([0.2, 0.1, 0.7])))
    assert otm.acceptance(otm.Cascade(rule="opt", alpha=0.0), problem) == pytest.approx(0.4)  # .6 < .7: the target decides
    assert otm.acceptance(otm.Cascade(rule="opt", alpha=1.0), problem) == pytest.approx(1.0)  # .6 ≥ .7 − .6
    assert otm.acceptance(otm.Cascade(alpha=1.0), problem) == pytest.approx(1.0)  # every token is good
    np.testing.assert_allclose(otm.lossy.output_law(otm.Cascade(alpha=0.0), problem), [0.18, 0.09, 0.73], atol=1e-15)


def test_parameters() -> None:
    with pytest.raises(otm.errors.InvalidParameter, match="alpha must lie in"):
        otm.Cascade(alpha=2.0)
    with pytest.raises(otm.errors.InvalidParameter, match="'opt' or 'token_v3'"):
        otm.Cascade(rule="token_v1")  # type: ignore[arg-type]
