"""Formulas for uniform and two-token problems against the cut and the definitions."""

from __future__ import annotations

import fractions

import pytest
from hypothesis import given
from hypothesis import strategies as st

import otm
from tests import exact
from tests.tolerance import rounding

F = fractions.Fraction


@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 5))
def test_uniform_optimum_is_the_cut(block: int, ratio: int, k: int) -> None:
    d = block * ratio
    problem = otm.Problem(draft=otm.examples.uniform(d), target=otm.examples.uniform(block, vocabulary=d), law=otm.IID(k))
    assert otm.examples.uniform_optimum(ratio=ratio, k=k) == pytest.approx(otm.optimal_acceptance(problem), abs=rounding(d, k))


@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 12))
def test_two_token_optimum_is_the_brute_force(p: float, q: float, k: int) -> None:
    draft, target = [F(p), 1 - F(p)], [F(q), 1 - F(q)]
    value = exact.optimum_iid(draft, target, k)
    assert otm.examples.two_token_optimum(draft=p, target=q, k=k) == pytest.approx(float(value), abs=rounding(2, k))


def test_uniform_optimum_keeps_its_digits_where_one_draft_hardly_helps() -> None:
    # r = 10¹², k = 3: 3·10⁻¹² − 3·10⁻²⁴ + …, which 1 − (1 − 1/r)^k in floats gives to four digits
    assert otm.examples.uniform_optimum(ratio=1e12, k=3) == pytest.approx(float(1 - (1 - F(1, 10**12)) ** 3), rel=1e-15)
