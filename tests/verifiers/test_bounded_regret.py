"""Bounded regret: the law as written, and its edges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

import otm
from otm.verifiers.lossy_rule import Fallback
from tests import strategies
from tests.verifiers.lossy_instances import ROUNDING, one_draft


@given(
    pair=strategies.pairs(max_tokens=6),
    regret=st.floats(0, 5),
    fallback=st.sampled_from(["target", "greedy"]),
)
def test_law_as_written(
    pair: tuple[np.ndarray, np.ndarray], regret: float, fallback: Fallback
) -> None:
    problem, verifier = one_draft(pair), otm.BoundedRegret(regret, fallback=fallback)
    p, q = problem.draft, problem.target
    with np.errstate(divide="ignore"):
        lost = np.log(q.max()) - np.log(q)
    if (abs(q - np.exp(-regret) * q.max()) < 1e-11).any():
        return  # a tie by the threshold of ties
    good = lost <= regret
    rest = q if fallback == "target" else np.eye(len(q))[int(np.argmax(q))]
    due = np.where(good, p, 0) + p[~good].sum() * rest
    np.testing.assert_allclose(otm.lossy.output_law(verifier, problem), due, rtol=0, atol=ROUNDING)
    assert otm.acceptance(verifier, problem, by="rule") == pytest.approx(
        p[good].sum(), abs=ROUNDING
    )


def test_a_regret_of_none_is_the_likeliest_token_alone() -> None:
    problem = one_draft((np.array([0.2, 0.3, 0.5]), np.array([0.4, 0.35, 0.25])))
    np.testing.assert_array_equal(
        otm.lossy.output_law(otm.BoundedRegret(0.0), problem), [1.0, 0.0, 0.0]
    )
    assert otm.acceptance(otm.BoundedRegret(0.0), problem) == 0.2
    assert otm.acceptance(otm.BoundedRegret(np.inf), problem) == 1.0


def test_parameters() -> None:
    for wrong in ({"regret": -1.0}, {"fallback": "draft"}):
        with pytest.raises(otm.errors.InvalidParameter):
            otm.BoundedRegret(**wrong)  # type: ignore[arg-type]
