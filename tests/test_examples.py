"""Distributions to play with, and formulas for uniform and two-token problems against the cut and
the definitions.
"""

from __future__ import annotations

import fractions
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import otm
from tests import exact
from tests.tolerance import rounding

INF = float("inf")


class TestMakers:
    def test_uniform(self) -> None:
        np.testing.assert_array_equal(otm.examples.uniform(4), [0.25] * 4)
        np.testing.assert_array_equal(otm.examples.uniform(1, vocabulary=3), [1, 0, 0])

    def test_bernoulli(self) -> None:
        np.testing.assert_array_equal(otm.examples.bernoulli(0), [1, 0])
        np.testing.assert_array_equal(otm.examples.bernoulli(0.75), [0.25, 0.75])

    def test_zipf(self) -> None:
        np.testing.assert_allclose(otm.examples.zipf(3), np.array([6, 3, 2]) / 11, rtol=1e-15)
        np.testing.assert_allclose(
            otm.examples.zipf(3, exponent=2), np.array([36, 9, 4]) / 49, rtol=1e-15
        )
        np.testing.assert_array_equal(otm.examples.zipf(4, exponent=0), [0.25] * 4)

    @pytest.mark.parametrize("concentration", [1e-3, 0.1, 1.0, 100.0])
    def test_dirichlet_rows_are_distributions(self, concentration: float) -> None:
        mass = otm.examples.dirichlet(
            50, rng=np.random.default_rng(0), concentration=concentration, rows=200
        )
        assert mass.shape == (200, 50)
        assert (mass >= 0).all()
        np.testing.assert_allclose(mass.sum(axis=1), 1, atol=1e-14)

    def test_dirichlet_has_the_moments_of_its_law(self) -> None:
        # E p = 1/V and Var p = (1/V)(1 − 1/V)/(aV + 1). Means of n = 20,000 entries in [0, 1]:
        # Hoeffding, failure 1e-9, is .023; Bernstein with the stated variance .114 gives |mean −
        # 1/4| ≤ .0175. Squares of deviations lie in [0, 9/16]: likewise .013.
        mass = otm.examples.dirichlet(
            4, rng=np.random.default_rng(1), concentration=0.3, rows=20_000
        )
        assert abs(mass[:, 0].mean() - 0.25) < 0.0175
        assert abs(((mass[:, 0] - 0.25) ** 2).mean() - 0.25 * 0.75 / 2.2) < 0.013

    def test_dirichlet_is_reproducible(self) -> None:
        left, right = (otm.examples.dirichlet(5, rng=np.random.default_rng(3)) for _ in range(2))
        np.testing.assert_array_equal(left, right)

    @pytest.mark.parametrize(
        ("call", "requirement", "value"),
        [
            (
                lambda: otm.examples.uniform(0),
                "num_tokens must be an integer of at least 1",
                "got 0",
            ),
            (
                lambda: otm.examples.uniform(3, vocabulary=2),
                "vocabulary must be an integer of at least 3",
                "got 2",
            ),
            (lambda: otm.examples.bernoulli(1.5), "q must lie in [0, 1]", "got 1.5"),
            (lambda: otm.examples.zipf(0), "num_tokens must be an integer of at least 1", "got 0"),
            (lambda: otm.examples.zipf(3, exponent=-1), "exponent must lie in", "got -1"),
            (
                lambda: otm.examples.dirichlet(0, rng=np.random.default_rng(0)),
                "num_tokens must be an integer",
                "got 0",
            ),
            (
                lambda: otm.examples.dirichlet(3, rng=np.random.default_rng(0), rows=0),
                "rows must be an integer",
                "got 0",
            ),
            (
                lambda: otm.examples.dirichlet(3, rng=np.random.default_rng(0), concentration=0),
                "concentration must lie in (0",
                "got 0",
            ),
            (
                lambda: otm.examples.dirichlet(3, rng=np.random.default_rng(0), concentration=INF),
                "concentration must",
                "inf",
            ),
            (
                lambda: otm.examples.describe(np.full((2, 2), 0.5)),
                "one distribution (V,)",
                "(2, 2)",
            ),
        ],
    )
    def test_bad_parameters(self, call: Any, requirement: str, value: str) -> None:
        with pytest.raises(otm.errors.InvalidParameter) as caught:
            call()
        assert requirement in str(caught.value)
        assert value in str(caught.value)

    def test_describe(self) -> None:
        facts = otm.examples.describe(np.array([0.5, 0.25, 0.25, 0.0]))
        assert facts == {"num_tokens": 4.0, "support": 3.0, "entropy_bits": 1.5, "largest": 0.5}
        assert otm.examples.describe(np.array([1.0]))["entropy_bits"] == 0.0


F = fractions.Fraction


@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 5))
def test_uniform_optimum_is_the_cut(block: int, ratio: int, k: int) -> None:
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
def test_two_token_optimum_is_the_brute_force(p: float, q: float, k: int) -> None:
    draft, target = [F(p), 1 - F(p)], [F(q), 1 - F(q)]
    value = exact.optimum_iid(draft, target, k)
    assert otm.examples.two_token_optimum(draft=p, target=q, k=k) == pytest.approx(
        float(value), abs=rounding(2, k)
    )


def test_uniform_optimum_keeps_its_digits_where_one_draft_hardly_helps() -> None:
    # r = 10¹², k = 3: 3·10⁻¹² − 3·10⁻²⁴ + …, which 1 − (1 − 1/r)^k in floats gives to four digits
    assert otm.examples.uniform_optimum(ratio=1e12, k=3) == pytest.approx(
        float(1 - (1 - F(1, 10**12)) ** 3), rel=1e-15
    )
