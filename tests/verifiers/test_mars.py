"""MARS: the rule on logits as written, the test on masses that it is, and what a shift of the
logits does.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

import otm
from otm.verifiers.lossy_rule import Fallback
from tests.verifiers.lossy_instances import ROUNDING, one_draft

DRAFT = np.array([0.1, 0.3, 0.4, 0.2])


@given(
    logits=st.lists(st.floats(0.5, 30.0), min_size=4, max_size=4, unique_by=lambda z: round(z, 3)),
    theta=st.floats(0.0, 1.0),
    fallback=st.sampled_from(["target", "greedy"]),
)
def test_the_ratio_of_logits(logits: list[float], theta: float, fallback: Fallback) -> None:
    z = np.array(logits)
    target = otm.from_logits(z)
    order = np.argsort(-z)
    ratio = z[order[1]] / z[order[0]]
    if abs(ratio - theta) < 1e-6 or target[order[1]] < 1e-8:
        return  # masses within 1e-12 count as equal
    good = np.isin(np.arange(4), order[:2] if ratio > theta else order[:1])
    problem = one_draft((DRAFT, target))
    verifier = otm.Mars(theta, top_logit=float(z.max()), fallback=fallback)
    assert otm.acceptance(verifier, problem, by="rule") == pytest.approx(
        DRAFT[good].sum(), abs=ROUNDING
    )
    rest = target if fallback == "target" else np.eye(4)[order[0]]
    due = np.where(good, DRAFT, 0) + DRAFT[~good].sum() * rest
    np.testing.assert_allclose(otm.lossy.output_law(verifier, problem), due, rtol=0, atol=ROUNDING)


def test_one_distribution_two_verdicts() -> None:
    """Logits (2, 1) and (20, 19) are one law; their ratios are .5 and .95."""
    problem = one_draft((DRAFT[:2] / 0.4, otm.from_logits(np.array([2.0, 1.0]))))
    np.testing.assert_allclose(problem.target, otm.from_logits(np.array([20.0, 19.0])))
    assert otm.acceptance(otm.Mars(top_logit=2.0), problem, by="rule") == pytest.approx(0.25)
    assert otm.acceptance(otm.Mars(top_logit=20.0), problem, by="rule") == pytest.approx(1.0)


def test_parameters() -> None:
    for wrong in ({"theta": 1.5}, {"top_logit": 0.0}, {"fallback": "draft"}):
        with pytest.raises(otm.errors.InvalidParameter):
            otm.Mars(**wrong)  # type: ignore[arg-type]
