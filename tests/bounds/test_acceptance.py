"""The bracket without a sort, the limit of many drafts, K-SEQ's guarantee and its factor."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

import otm
from otm import IID, Optimal, Problem
from tests import exact, strategies
from tests.tolerance import UNIT_ROUNDOFF, rounding
from tests.verifiers.optimal.large import language_rows


@settings(max_examples=100)
@example(  # c lies below an empty bin and a full one that it does not lift
    (
        np.array([6.0, 94.0, 165.0, 261.0, 141.0, 333.0, 0.0]) / 1000,
        np.array([0.002, 76.0, 73.0, 178.0, 206.0, 460.0, 6.998]) / 1000,
    ),
    3,
    25,
)
@given(
    strategies.pairs(max_tokens=30),
    st.sampled_from([1, 2, 3, 8, 64, 10**6]),
    st.sampled_from([1, 2, 3, 7, 64, 4096]),
)
def test_the_bracket_holds_the_optimum(pair, k, bins):
    problem = Problem(draft=pair[0], target=pair[1], law=IID(k))
    best, bracket = otm.optimal_acceptance(problem), otm.bounds.optimal_bracket(problem, bins=bins)
    slack = rounding(problem.num_tokens + bins, k)
    assert bracket.lower <= best + slack
    assert best <= bracket.upper + slack
    rule = otm.prepare(Optimal(bins=bins), problem)
    assert rule.lower == pytest.approx(bracket.lower, abs=slack)
    assert rule.upper == pytest.approx(bracket.upper, abs=slack)


def test_the_bracket_narrows_with_bins():
    p, q = language_rows(128_256, seed=2)
    problem = Problem(draft=p, target=q, law=IID(8))
    gaps = [otm.bounds.optimal_bracket(problem, bins=bins).gap for bins in (64, 512, 4096)]
    assert gaps[2] < 3e-4
    assert gaps[0] > 4 * gaps[1] > 16 * gaps[2]


def test_the_bracket_is_for_iid_drafts_and_membership_has_a_limit():
    p, q = language_rows(3000, seed=1)
    problem = Problem(draft=p, target=q, law=IID(2))
    with pytest.raises(otm.errors.TooLarge, match="by='rule'"):
        otm.acceptance(Optimal(bins=64), problem)
    rule = otm.acceptance(Optimal(bins=64), problem, by="rule")
    lower = otm.bounds.optimal_bracket(problem, bins=64).lower
    moved = (8 * (3000 + 64) + 64) * 2.0**-53
    assert rule - lower == pytest.approx(moved, abs=2.0**-52)  # rounded to its side by just so much


def test_the_limit_is_the_target_mass_that_can_be_drafted():
    problem = otm.Problem(draft=[0.5, 0.5, 0.0], target=[0.2, 0.3, 0.5], law=otm.IID(1))
    limit = otm.bounds.support_limit_upper(problem)
    assert limit >= 0.5  # rounded up: what is 1/2 exactly is not called less
    assert limit == pytest.approx(0.5, abs=2 * (3 * 4 + 4) * 2.0**-53)
    assert otm.optimal_acceptance(problem.with_law(otm.IID(200))) == pytest.approx(
        0.5, abs=rounding(3, 64)
    )


@settings(max_examples=150)
@given(strategies.iid_problems(max_tokens=6, max_k=4), st.floats(0, 1))
def test_kseq_is_at_least_its_guarantee_for_gamma_up_to_k(problem, where):
    k, star = problem.law.k, float(otm.verifiers.gamma_star(problem))
    gamma = min(star + where * (k - star), float(k))
    rule = otm.acceptance(otm.KSeq(gamma=max(gamma, star)), problem, by="rule")
    slack, bound = rounding(problem.num_tokens, k), otm.bounds.kseq_lower(problem)
    assert rule >= bound - slack
    assert bound >= (1 - 1 / math.e) * otm.optimal_acceptance(problem) - slack
    p, q = exact.exact(problem.draft), exact.exact(problem.target)
    factor = 1 - (1 - exact.Fraction(1, k)) ** k
    wanted = factor * sum(min(k * a, b) for a, b in zip(p, q, strict=True))
    assert abs(bound - float(wanted)) <= slack


@pytest.mark.parametrize("k", [1, 2, 1000, 10**8, 10**12, 10**15, 2**53])
def test_the_guarantees_factor_keeps_its_digits(k):
    factor = otm.bounds.kseq_factor(k)
    with mpmath.workdps(60):
        exact_factor = float(1 - (1 - mpmath.mpf(1) / k) ** k)
    assert factor == pytest.approx(exact_factor, rel=4 * UNIT_ROUNDOFF)
    assert factor >= 1 - 1 / math.e
    # where the guarantee is the optimum
    problem = otm.Problem(draft=[1 / k, 1 - 1 / k], target=[1.0, 0.0], law=otm.IID(k))
    assert otm.bounds.kseq_lower(problem) <= otm.optimal_acceptance(problem) + 4 * UNIT_ROUNDOFF


def test_the_guarantee_is_rounded_down():
    """By formula and rounding alone it passed what it bounds by 9e-16."""
    problem = otm.Problem(draft=[0.2857, 0.7143], target=[0.2, 0.8], law=otm.IID(1))
    true = 1 - (
        Fraction(0.2857) / (Fraction(0.2857) + Fraction(0.7143))
        - Fraction(0.2) / (Fraction(0.2) + Fraction(0.8))
    )
    found = Fraction(otm.bounds.kseq_lower(problem))
    assert true - Fraction(1, 10**14) < found <= true
