"""Schemes that try drafts in turn, or one and catch the others: closed forms in exact fractions."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import otm
from otm.verifiers.base import enumerated_acceptance
from tests import exact, strategies
from tests.tolerance import rounding
from tests.verifiers.rational import problem_of

Form = Callable[[Fraction, Fraction, int], Fraction]


def by_token(form):
    return lambda p, q, k: sum((form(a, b, k) for a, b in zip(p, q, strict=True)), Fraction(0))


FORMS = {
    otm.Maximal(): by_token(lambda a, b, _: min(a, b)),
    otm.Naive(): by_token(lambda a, b, k: b * (1 - (1 - a) ** k)),
    otm.NaiveTree(): by_token(
        lambda a, b, k: min(a, b) + max(b - a, Fraction(0)) * (1 - (1 - a) ** (k - 1))
    ),
    otm.RecursiveRejection(): exact.recursive_rejection,
}


@pytest.mark.parametrize("verifier", FORMS, ids=repr)
@settings(max_examples=100)
@given(problem=strategies.iid_problems(max_tokens=5, max_k=5))
def test_closed_form(verifier, problem):
    problem = problem if verifier.supports(problem.law) else problem.with_law(otm.IID(1))
    p, q, k = exact.exact(problem.draft), exact.exact(problem.target), problem.law.k
    for by in ("membership", "rule"):
        assert otm.acceptance(verifier, problem, by=by) == pytest.approx(
            float(FORMS[verifier](p, q, k)), abs=rounding(len(p), k)
        )


@given(pair=strategies.pairs(), k=st.integers(1, 4))
def test_greedy_drafts_are_verified_optimally(pair, k):
    problem = problem_of(pair, otm.Greedy(min(k, len(pair[0]))))
    table = problem.law.enumerate(np.asarray(exact.exact(problem.draft), dtype=object))
    target = exact.exact(problem.target)
    best = float(exact.optimum_from_table(table.tokens.tolist(), list(table.mass), target))
    rule = otm.prepare(otm.GreedyOptimal(), problem)
    for by in ("membership", "rule"):
        assert enumerated_acceptance(rule, by) == pytest.approx(
            best, abs=rounding(problem.num_tokens, k)
        )
