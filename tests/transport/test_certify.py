"""Certificates: rational brackets around the truth, whatever flow and cut are proposed."""

import dataclasses
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import otm
from otm.drafts.base import collapse, enumerate_drafts
from otm.transport import lp
from otm.transport.certify import certify, exact_masses
from tests import exact, strategies


def brute_force(problem):
    return exact.optimum_iid(exact.exact(problem.draft), exact.exact(problem.target), problem.law.k)


@settings(max_examples=60)
@given(strategies.iid_problems(max_tokens=4, max_k=3), st.sampled_from(["sets", "sequences"]))
def test_the_rational_certificates_bracket_the_brute_force(problem, method):
    lower, upper = otm.transport.certify_exactly(problem, otm.optimum(problem, method=method))
    value = brute_force(problem)
    assert lower <= value <= upper  # no tolerance: both sides are rational
    assert upper - lower <= Fraction(1, 10**9)


@settings(max_examples=60)
@given(strategies.iid_problems(max_tokens=4, max_k=2), st.data())
def test_no_proposal_however_wrong_is_certified_beyond_the_truth(problem, data):
    """Random flows (negative, too large, on edges outside the set) and random cuts still bracket
    α*.
    """
    draft, target = exact_masses(problem.draft), exact_masses(problem.target)
    sets = collapse(enumerate_drafts(problem.law, draft))
    edges = data.draw(
        st.lists(
            st.tuples(
                st.integers(0, len(sets.mass) - 1),
                st.integers(0, problem.num_tokens - 1),
                st.fractions(min_value=-1, max_value=2, max_denominator=100),
            ),
            max_size=12,
        )
    )
    rows, columns = np.array([edge[:2] for edge in edges], dtype=np.int64).reshape(-1, 2).T
    flow = np.array([edge[2] for edge in edges] + [None], dtype=object)[:-1]
    cut = np.array(
        data.draw(st.lists(st.booleans(), min_size=problem.num_tokens, max_size=problem.num_tokens))
    )
    checked = certify(sets, target, rows, columns, flow, cut)
    value = brute_force(problem)
    assert checked.lower <= value <= checked.upper
    # The repaired flow is itself feasible: that is what makes its sum a bound.
    assert all(x >= 0 for x in checked.flow)
    for ends, most in ((rows, sets.mass), (columns, target)):
        for end in set(ends.tolist()):
            assert sum(x for x, e in zip(checked.flow, ends, strict=True) if e == end) <= most[end]
    # In floating point the same proposal is certified to the same numbers, moved outward.
    floats = collapse(enumerate_drafts(problem.law, problem.draft))
    rounded = certify(floats, problem.target, rows, columns, flow.astype(float), cut)
    assert rounded.lower <= float(checked.lower) + 1e-14
    assert rounded.upper >= min(1.0, float(checked.upper)) - 1e-14


def test_a_wrong_cut_is_seen_in_the_upper_certificate():
    problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))
    solved = dataclasses.replace(otm.optimum(problem), cut=np.array([False, True]))
    assert otm.transport.certify_exactly(problem, solved) == (
        Fraction(15, 16),
        1 + Fraction(1, 2) - Fraction(1, 16),
    )


def test_a_solver_that_returns_nothing_is_a_failure_and_not_a_number(
    monkeypatch,
):
    def idle(sets, target):
        nothing = np.zeros(0, dtype=np.int64)
        return nothing, nothing, np.zeros(0), np.zeros(len(target), dtype=bool)

    monkeypatch.setattr(lp, "_propose", idle)
    problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))
    with pytest.raises(
        otm.errors.SolverFailure, match=r"agree within 1e-09.*otm\.optimal_acceptance"
    ):
        otm.optimum(problem)


def test_an_infeasible_program_is_a_failure_and_not_a_plan():
    edge = np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64)
    with pytest.raises(otm.errors.SolverFailure, match=r"Infeasible.*otm\.optimal_acceptance"):
        lp._solve(*edge, np.array([-1.0, 1.0]))
