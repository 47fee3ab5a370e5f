"""K-SEQ's guarantee and its factor."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import otm
from tests import exact, strategies
from tests.tolerance import UNIT_ROUNDOFF, rounding


@settings(max_examples=150)
@given(strategies.iid_problems(max_tokens=6, max_k=4), st.floats(0, 1))
def test_kseq_is_at_least_its_guarantee_for_gamma_up_to_k(
    problem: otm.Problem, where: float
) -> None:
    k, star = problem.law.k, float(otm.verifiers.gamma_star(problem))
    gamma = min(star + where * (k - star), float(k))
    rule = otm.acceptance(otm.KSeq(gamma=max(gamma, star)), problem, by="rule")
    slack = rounding(problem.num_tokens, k)
    bound = otm.bounds.kseq_lower(problem)
    assert otm.bounds.kseq_factor(k) >= 1 - 1 / math.e
    assert rule >= bound - slack
    assert bound >= (1 - 1 / math.e) * otm.optimal_acceptance(problem) - slack


@given(strategies.iid_problems(max_tokens=6, max_k=4))
def test_kseq_lower_is_its_formula(problem: otm.Problem) -> None:
    p, q, k = exact.exact(problem.draft), exact.exact(problem.target), problem.law.k
    wanted = (1 - (1 - exact.Fraction(1, k)) ** k) * sum(
        min(k * a, b) for a, b in zip(p, q, strict=True)
    )
    assert abs(otm.bounds.kseq_lower(problem) - float(wanted)) <= rounding(problem.num_tokens, k)


def test_the_guarantees_factor() -> None:
    assert otm.bounds.kseq_factor(1) == 1.0
    assert otm.bounds.kseq_factor(3) == pytest.approx(19 / 27, abs=1e-15)
    # (1 − 1/k)^k = e^{−1 − 1/(2k) − …}: at k = 10⁶ the factor is 1 − 1/e + 1/(2ek) to 1e-12
    assert otm.bounds.kseq_factor(10**6) == pytest.approx(
        1 - 1 / math.e + 1 / (2e6 * math.e), abs=1e-10
    )


@pytest.mark.parametrize("k", [1, 2, 1000, 10**8, 10**12, 10**15, 2**53])
def test_the_guarantees_factor_keeps_its_digits(k: int) -> None:
    factor = otm.bounds.kseq_factor(k)
    with mpmath.workdps(60):
        exact_factor = float(1 - (1 - mpmath.mpf(1) / k) ** k)
    assert factor == pytest.approx(exact_factor, rel=4 * UNIT_ROUNDOFF)
    assert factor >= 1 - 1 / math.e
    problem = otm.Problem(
        draft=[1 / k, 1 - 1 / k], target=[1.0, 0.0], law=otm.IID(k)
    )  # where the guarantee is the optimum
    assert otm.bounds.kseq_lower(problem) <= otm.optimal_acceptance(problem) + 4 * UNIT_ROUNDOFF


def test_the_guarantee_is_rounded_down() -> None:
    """By formula and rounding alone it passed what it bounds by 9e-16."""
    problem = otm.Problem(draft=[0.2857, 0.7143], target=[0.2, 0.8], law=otm.IID(1))
    true = 1 - (
        Fraction(0.2857) / (Fraction(0.2857) + Fraction(0.7143))
        - Fraction(0.2) / (Fraction(0.2) + Fraction(0.8))
    )
    found = Fraction(otm.bounds.kseq_lower(problem))
    assert true - Fraction(1, 10**14) < found <= true
