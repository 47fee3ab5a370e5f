"""Recursive rejection of i.i.d. drafts against the rational recursion and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

import otm
from otm import IID, KSeq, Problem, RecursiveRejection
from tests import exact, strategies
from tests.tolerance import rounding


@settings(max_examples=200)
@given(strategies.iid_problems(max_tokens=5, max_k=5))
def test_recursive_rejection_is_the_rational_recursion(problem: Problem) -> None:
    wanted = exact.recursive_rejection(
        exact.exact(problem.draft), exact.exact(problem.target), problem.law.k
    )
    tolerance = rounding(problem.num_tokens, problem.law.k)
    for by in ("membership", "rule"):
        assert (
            abs(otm.acceptance(RecursiveRejection(), problem, by=by) - float(wanted)) <= tolerance
        )


def test_recursive_rejection_by_hand() -> None:
    # p = (3/4, 1/4), q = (1/2, 1/2): stage 1 accepts 3/4; the residual is all on token 1, so stage
    # 2 accepts 1/4 of what is left.
    problem = Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=IID(2))
    rule = otm.prepare(RecursiveRejection(), problem)
    accepted, residual = rule.split(np.array([[0, 0], [0, 1], [1, 0], [1, 1]]))
    np.testing.assert_allclose(accepted, [[2 / 3, 0], [2 / 3, 1 / 3], [0, 1], [0, 1]], atol=1e-15)
    np.testing.assert_allclose(residual, [[0, 1 / 3], [0, 0], [0, 0], [0, 0]], atol=1e-15)


def test_the_recursion_ends_where_nothing_is_left() -> None:
    problem = Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=IID(1))
    assert otm.acceptance_curve(RecursiveRejection(), problem, k=[1, 2, 50]).tolist() == [
        1.0,
        1.0,
        1.0,
    ]


@pytest.mark.parametrize("verifier", [KSeq(), RecursiveRejection()], ids=repr)
def test_the_rejected_are_never_drawn_again(verifier: otm.Verifier) -> None:
    """At γ*, and for recursive rejection always: a rejected token has no mass in the residual, so
    rule = membership.
    """
    rng = np.random.default_rng(9)
    for _ in range(10):
        rows = otm.examples.dirichlet(5, rng=rng, rows=2)
        problem = Problem(draft=rows[0], target=rows[1], law=IID(3))
        assert otm.acceptance(verifier, problem, by="rule") == pytest.approx(
            otm.coupling(verifier, problem).acceptance, abs=rounding(5, 3)
        )
