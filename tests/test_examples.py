"""Distributions to play with, and formulas for uniform and two-token problems against the cut and
the definitions.
"""

import fractions

import numpy as np
import pytest
from hypothesis import given, strategies as st

import otm
from tests import exact
from tests.tolerance import rounding


def test_hand_values():
    makers = otm.examples
    assert makers.uniform(1, vocabulary=3).tolist() == [1, 0, 0]
    assert makers.uniform(4).tolist() == makers.zipf(4, exponent=0).tolist() == [0.25] * 4
    assert makers.bernoulli(0.75).tolist() == [0.25, 0.75]
    assert makers.zipf(3, exponent=2) == pytest.approx(np.array([36, 9, 4]) / 49, rel=1e-15)
    facts = {"num_tokens": 4.0, "support": 3.0, "entropy_bits": 1.5, "largest": 0.5}
    assert makers.describe(np.array([0.5, 0.25, 0.25, 0.0])) == facts
    assert makers.describe([1.0])["entropy_bits"] == 0.0


def test_dirichlet_has_the_moments_of_its_law():
    # E p = 1/V and Var p = (1/V)(1 − 1/V)/(aV + 1). Means of n = 20,000 entries in [0, 1]:
    # Hoeffding, failure 1e-9, is .023; Bernstein with the stated variance .114 gives |mean −
    # 1/4| ≤ .0175. Squares of deviations lie in [0, 9/16]: likewise .013.
    mass = otm.examples.dirichlet(4, rng=np.random.default_rng(1), concentration=0.3, rows=20_000)
    assert abs(mass[:, 0].mean() - 0.25) < 0.0175
    most = otm.examples.dirichlet(
        50, rng=np.random.default_rng(0), concentration=1e-3, rows=200
    )  # nearly all mass on one token
    for rows in (mass, most):
        assert (rows >= 0).all() and abs(rows.sum(axis=1) - 1).max() < 1e-14
    assert abs(((mass[:, 0] - 0.25) ** 2).mean() - 0.25 * 0.75 / 2.2) < 0.013


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: otm.examples.uniform(3, vocabulary=2), "vocabulary must .* at least 3; got 2"),
        (lambda: otm.examples.bernoulli(1.5), r"q must lie in \[0, 1\]; got 1.5"),
        (lambda: otm.examples.zipf(3, exponent=-1), "exponent must lie in"),
        (
            lambda: otm.examples.dirichlet(3, rng=np.random.default_rng(0), concentration=0),
            r"concentration must lie in \(0",
        ),
        (lambda: otm.examples.describe(np.full((2, 2), 0.5)), r"one distribution \(V,\)"),
    ],
)
def test_bad_parameters(call, said):
    with pytest.raises(otm.errors.InvalidParameter, match=said):
        call()


F = fractions.Fraction


@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 5))
def test_uniform_optimum_is_the_cut(block, ratio, k):
    d = block * ratio
    problem = otm.Problem(
        draft=otm.examples.uniform(d),
        target=otm.examples.uniform(block, vocabulary=d),
        law=otm.IID(k),
    )
    assert otm.examples.uniform_optimum(ratio=ratio, k=k) == pytest.approx(
        otm.optimal_acceptance(problem), abs=rounding(d, k)
    )


@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 12))
def test_two_token_optimum_is_the_brute_force(p, q, k):
    draft, target = [F(p), 1 - F(p)], [F(q), 1 - F(q)]
    value = exact.optimum_iid(draft, target, k)
    assert otm.examples.two_token_optimum(draft=p, target=q, k=k) == pytest.approx(
        float(value), abs=rounding(2, k)
    )


def test_uniform_optimum_keeps_its_digits_where_one_draft_hardly_helps():
    # r = 10¹², k = 3: 3·10⁻¹² − 3·10⁻²⁴ + …, which 1 − (1 − 1/r)^k in floats gives to four digits
    assert otm.examples.uniform_optimum(ratio=1e12, k=3) == pytest.approx(
        float(1 - (1 - F(1, 10**12)) ** 3), rel=1e-15
    )
