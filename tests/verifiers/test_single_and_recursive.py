"""Single-draft rejection, recursive rejection and the plan as a verifier, against rational arithmetic and by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings

import otm
from otm import IID, KSeq, Maximal, Problem, RecursiveRejection, TransportPlan
from tests import exact, strategies
from tests.tolerance import rounding


@settings(max_examples=150)
@given(strategies.iid_problems(max_tokens=6, max_k=1))
def test_maximal_is_one_minus_total_variation(problem: Problem) -> None:
    p, q = exact.exact(problem.draft), exact.exact(problem.target)
    wanted = float(sum(min(a, b) for a, b in zip(p, q, strict=True)))
    tolerance = rounding(problem.num_tokens, 1)
    assert abs(otm.acceptance(Maximal(), problem) - wanted) <= tolerance
    assert abs(1 - otm.divergences.total_variation(draft=problem.draft, target=problem.target) - wanted) <= tolerance
    # With one draft every exact scheme is the same: the optimum, K-SEQ (γ* = 1) and recursive rejection.
    assert abs(otm.optimal_acceptance(problem) - wanted) <= tolerance
    assert abs(otm.acceptance(KSeq(), problem) - wanted) <= tolerance
    assert abs(otm.acceptance(RecursiveRejection(), problem) - wanted) <= tolerance


@settings(max_examples=200)
@given(strategies.iid_problems(max_tokens=5, max_k=5))
def test_recursive_rejection_is_the_rational_recursion(problem: Problem) -> None:
    wanted = exact.recursive_rejection(exact.exact(problem.draft), exact.exact(problem.target), problem.law.k)
    tolerance = rounding(problem.num_tokens, problem.law.k)
    for by in ("membership", "rule"):
        assert abs(otm.acceptance(RecursiveRejection(), problem, by=by) - float(wanted)) <= tolerance


def test_recursive_rejection_by_hand() -> None:
    # p = (3/4, 1/4), q = (1/2, 1/2): stage 1 accepts 3/4; the residual is all on token 1, so stage 2 accepts 1/4 of what is left.
    problem = Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=IID(2))
    rule = otm.prepare(RecursiveRejection(), problem)
    accepted, residual = rule.split(np.array([[0, 0], [0, 1], [1, 0], [1, 1]]))
    np.testing.assert_allclose(accepted, [[2 / 3, 0], [2 / 3, 1 / 3], [0, 1], [0, 1]], atol=1e-15)
    np.testing.assert_allclose(residual, [[0, 1 / 3], [0, 0], [0, 0], [0, 0]], atol=1e-15)


def test_the_recursion_ends_where_nothing_is_left() -> None:
    problem = Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=IID(1))
    assert otm.acceptance_curve(RecursiveRejection(), problem, k=[1, 2, 50]).tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("seed", range(4))
def test_the_plan_chooses_among_the_drafts_alone(seed: int) -> None:
    rows = otm.examples.dirichlet(4, rng=np.random.default_rng(seed), rows=2)
    problem = Problem(draft=rows[0], target=rows[1], law=IID(3))
    rule = otm.prepare(TransportPlan(), problem)
    sequences = np.array(list(itertools.product(range(4), repeat=3)))
    accepted, residual = rule.split(sequences)
    outside = np.array([[y not in row for y in range(4)] for row in sequences.tolist()])
    assert (accepted[outside] == 0).all()
    # The same set gives the same row, whatever the order of the drafts.
    order = rule.split(sequences[:, ::-1])
    np.testing.assert_array_equal(accepted, order[0])
    np.testing.assert_array_equal(residual, order[1])
    # No residual draw can land on a draft: the plan would have accepted it instead.
    mass = np.prod(rows[0][sequences], axis=1)
    assert mass @ (residual * ~outside).sum(axis=1) <= 1e-9


@pytest.mark.parametrize("verifier", [KSeq(), RecursiveRejection()], ids=repr)
def test_the_rejected_are_never_drawn_again(verifier: otm.Verifier) -> None:
    """At γ*, and for recursive rejection always: a rejected token has no mass in the residual, so rule = membership."""
    rng = np.random.default_rng(9)
    for _ in range(10):
        rows = otm.examples.dirichlet(5, rng=rng, rows=2)
        problem = Problem(draft=rows[0], target=rows[1], law=IID(3))
        assert otm.acceptance(verifier, problem, by="rule") == pytest.approx(
            otm.coupling(verifier, problem).acceptance, abs=rounding(5, 3)
        )
