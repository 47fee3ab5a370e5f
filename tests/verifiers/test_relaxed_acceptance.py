"""Relaxed acceptance: its law as written, with both fallbacks."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from hypothesis import given, strategies as st

import otm
from tests import strategies
from tests.verifiers.lossy_instances import ROUNDING, one_draft


@given(
    pair=strategies.pairs(max_tokens=6),
    top=st.integers(1, 7),
    delta=st.floats(0, 1),
    fallback=st.sampled_from(["target", "greedy"]),
)
def test_law_as_written(
    pair: tuple[np.ndarray, np.ndarray],
    top: int,
    delta: float,
    fallback: Literal["target", "greedy"],
) -> None:
    problem, verifier = (
        one_draft(pair),
        otm.RelaxedAcceptance(top=top, delta=delta, fallback=fallback),
    )
    p, q = problem.draft, problem.target
    likeliest = sorted(range(len(q)), key=lambda y: (-q[y], y))
    good = np.isin(np.arange(len(q)), likeliest[:top]) & (q >= q.max() - delta)
    rest = q if fallback == "target" else np.eye(len(q))[likeliest[0]]
    np.testing.assert_allclose(
        otm.lossy.output_law(verifier, problem),
        np.where(good, p, 0) + p[~good].sum() * rest,
        rtol=0,
        atol=ROUNDING,
    )
    assert otm.acceptance(verifier, problem, by="rule") == pytest.approx(
        p[good].sum(), abs=ROUNDING
    )
    caught = float((p * ~good * rest).sum())
    assert otm.acceptance(verifier, problem) == pytest.approx(p[good].sum() + caught, abs=ROUNDING)


def test_parameters() -> None:
    for wrong in ({"top": 0}, {"delta": 1.5}, {"fallback": "draft"}):
        with pytest.raises(otm.errors.InvalidParameter):
            otm.RelaxedAcceptance(**wrong)  # type: ignore[arg-type]
