"""Cactus: the law by the sum over drafts, and the divergence that it does not control."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

import otm
from tests import strategies
from tests.verifiers.lossy_instances import ROUNDING, one_draft


@given(pair=strategies.pairs(max_tokens=6), delta=st.floats(0.0, 2.0))
def test_law_as_written(pair: tuple[np.ndarray, np.ndarray], delta: float) -> None:
    problem, verifier = one_draft(pair), otm.Cactus(delta)
    p, q = problem.draft, problem.target
    raised = np.minimum(1.0, q + np.sqrt(2 * delta * q * (1 - q)))
    due = np.minimum(p, raised)
    for x in np.flatnonzero(p - raised > 0):
        aim = q * (1 - raised[x]) / (1 - q[x])
        aim[x] = raised[x]
        excess = np.maximum(aim - p, 0)
        due = due + (p[x] - raised[x]) * (excess / excess.sum() if excess.any() else q)
    np.testing.assert_allclose(
        otm.lossy.output_law(verifier, problem), due, rtol=0, atol=10 * ROUNDING
    )
    for by in ("rule", "membership"):
        assert otm.acceptance(verifier, problem, by=by) == pytest.approx(
            np.minimum(p, raised).sum(), abs=ROUNDING
        )


def test_no_bonus_is_speculative_decoding() -> None:
    problem = one_draft((np.array([0.6, 0.3, 0.1]), np.array([0.2, 0.1, 0.7])))
    np.testing.assert_allclose(
        otm.lossy.output_law(otm.Cactus(0.0), problem), problem.target, atol=1e-15
    )


@pytest.mark.parametrize("size", [10, 1000, 100_000])
def test_the_output_is_not_within_delta(size: int) -> None:
    """Half of the tokens drafted, all of them equal, with δ = 1/(2V − 2): h = 1/V + √((1/V)(1 −
    1/V)/(V − 1)) = 2/V = p.
    """
    draft, target = np.repeat([2.0, 0.0], size // 2) / size, np.full(size, 1.0 / size)
    problem, verifier = one_draft((draft, target)), otm.Cactus(0.5 / (size - 1))
    assert otm.acceptance(verifier, problem) == pytest.approx(1.0, abs=1e-12)
    law = otm.lossy.output_law(verifier, problem)
    live = law > 0
    assert float(law[live] @ np.log(law[live] / target[live])) == pytest.approx(
        math.log(2), abs=1e-9
    )


def test_parameters() -> None:
    with pytest.raises(otm.errors.InvalidParameter, match="delta must lie in"):
        otm.Cactus(-0.1)


def test_an_immense_bonus_is_no_overflow() -> None:
    problem = otm.Problem(draft=[0.75, 0.25], target=[1.0, 0.0], law=otm.IID(1))
    assert otm.acceptance(otm.Cactus(1e308), problem) == 0.75
