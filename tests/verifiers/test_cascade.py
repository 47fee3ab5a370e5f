"""Speculative cascades: the two laws as written."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

import otm
from tests import strategies
from tests.verifiers.lossy_instances import ROUNDING, one_draft


@given(pair=strategies.pairs(max_tokens=6), alpha=st.floats(0.0, 1.0))
def test_token_v3_is_the_test_with_the_target_behind_it(
    pair: tuple[np.ndarray, np.ndarray], alpha: float
) -> None:
    problem, verifier = one_draft(pair), otm.Cascade(rule="token_v3", alpha=alpha)
    p, q = problem.draft, problem.target
    good = q >= (1 - alpha) * q.max() - 1e-12
    due = np.where(good, p, 0) + p[~good].sum() * q
    np.testing.assert_allclose(otm.lossy.output_law(verifier, problem), due, rtol=0, atol=ROUNDING)
    for by in ("rule", "membership"):
        assert otm.acceptance(verifier, problem, by=by) == pytest.approx(
            np.minimum(p, due).sum(), abs=ROUNDING
        )
    assert otm.acceptance(verifier, problem) >= p[good].sum() - ROUNDING


@given(pair=strategies.pairs(max_tokens=6), alpha=st.floats(0.0, 1.0))
def test_opt_is_one_law_or_the_other(pair: tuple[np.ndarray, np.ndarray], alpha: float) -> None:
    problem, verifier = one_draft(pair), otm.Cascade(rule="opt", alpha=alpha)
    p, q = problem.draft, problem.target
    # a tie is the draft's
    margin = p.max() - (q.max() - alpha * np.maximum(p - q, 0).sum()) + 1e-12
    if abs(margin) > ROUNDING:
        np.testing.assert_allclose(
            otm.lossy.output_law(verifier, problem), q if margin < 0 else p, rtol=0, atol=ROUNDING
        )


def test_the_ends_of_the_price() -> None:
    problem = one_draft((np.array([0.6, 0.3, 0.1]), np.array([0.2, 0.1, 0.7])))
    # .6 < .7: the target decides
    assert otm.acceptance(otm.Cascade(rule="opt", alpha=0.0), problem) == pytest.approx(0.4)
    # .6 ≥ .7 − .6
    assert otm.acceptance(otm.Cascade(rule="opt", alpha=1.0), problem) == pytest.approx(1.0)
    # every token is good
    assert otm.acceptance(otm.Cascade(alpha=1.0), problem) == pytest.approx(1.0)
    np.testing.assert_allclose(
        otm.lossy.output_law(otm.Cascade(alpha=0.0), problem), [0.18, 0.09, 0.73], atol=1e-15
    )


def test_a_tie_is_the_drafts_however_it_is_summed() -> None:
    """A greedy target on the draft's likeliest token: max q − TV is max p, exactly, and never in
    floats.
    """
    for p in ([0.67003436, 0.24983097, 0.08013466], [0.2131, 0.0176, 5.8e-16, 0.7018, 0.0675]):
        draft = otm.normalise(p)
        problem = one_draft((draft, np.eye(len(p))[int(np.argmax(p))]))
        assert otm.acceptance(otm.Cascade(rule="opt", alpha=1.0), problem) == pytest.approx(
            1.0, abs=ROUNDING
        )


def test_parameters() -> None:
    with pytest.raises(otm.errors.InvalidParameter, match="alpha must lie in"):
        otm.Cascade(alpha=2.0)
    with pytest.raises(otm.errors.InvalidParameter, match="'opt' or 'token_v3'"):
        otm.Cascade(rule="token_v1")  # type: ignore[arg-type]
