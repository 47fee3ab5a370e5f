"""Distances against SciPy, rational arithmetic and each other."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.special import rel_entr

import otm
from otm.divergences import divergence_term
from tests import exact, strategies
from tests.tolerance import UNIT_ROUNDOFF, rounding


@settings(max_examples=200)
@given(strategies.pairs(max_tokens=8))
def test_total_variation_is_the_largest_difference_over_events(
    pair,
):
    p, q = (exact.exact(x) for x in pair)
    wanted = max(sum((p[x] - q[x] for x in T), exact.Fraction(0)) for T in exact.subsets(len(p)))
    assert abs(
        otm.divergences.total_variation(draft=pair[0], target=pair[1]) - float(wanted)
    ) <= rounding(len(p), 1)


@settings(max_examples=200)
@given(strategies.pairs(max_tokens=8))
def test_kl_is_scipys_relative_entropy(pair):
    """Each term q log(q/p) carries log's half ulp on logs up to 700, and SciPy's plain sum cancels
    to |Σp − Σq|; infinite exactly where the target leaves the draft.
    """
    draft, target = pair
    value = otm.divergences.kl_divergence(draft=draft, target=target)
    assert value == pytest.approx(rel_entr(target, draft).sum(), rel=1e-13, abs=1e-12)
    assert value >= 0


@pytest.mark.parametrize("size", [1e-3, 1e-7, 1e-9, 1e-12])
def test_kl_keeps_its_digits_when_the_two_are_close(size):
    p = np.array([0.5, 0.25, 0.25])
    q = p + size * np.array([0.5, -0.25, -0.25])
    assert otm.divergences.kl_divergence(draft=p, target=p) == 0.0
    # so that the gate divides nothing, and the fractions below are the masses themselves
    assert q.sum() == p.sum() == 1.0
    # Term by term, d = (p − q)/q: q (d²/2 − d³/3 + d⁴/4 − …), whose omitted rest is below d⁴ of the
    # sum.
    wanted = Fraction(0)
    for a, b in zip(p, q, strict=True):
        d = (Fraction(float(a)) - Fraction(float(b))) / Fraction(float(b))
        wanted += Fraction(float(b)) * sum((-d) ** n / n for n in range(2, 7))
    # Σ p s²/2 with s = (1, −1, −1)
    assert float(wanted) == pytest.approx(size**2 / 2, rel=2 * size + 1e-3)
    # The terms' own error; a sum of q log(q/p) is off by 1e-17 absolutely, which is everything at ε
    # = 1e-9.
    assert otm.divergences.kl_divergence(draft=p, target=q) == pytest.approx(
        float(wanted), rel=1e-11 if size > 1e-4 else 1e-14, abs=0
    )


@pytest.mark.parametrize("q", [1e-300, 1e-9, 0.3, 1.0])
@pytest.mark.parametrize(
    "ratio",
    [1e-3, 0.7499, 0.7501, 0.95, 1 - 1e-9, 1.0, 1 + 1e-6, 1.2499, 1.2501, 3.0, 1e5],
)
def test_divergence_terms_against_high_precision(q, ratio):
    """The quotient and its logarithm are off by 3u at |d| = 1/4, where a term is d − log(1 + d) ≥
    .027: 110u.
    """
    mass = q * ratio
    with mpmath.workdps(60):
        wanted = float(
            mpmath.mpf(q) * mpmath.log(mpmath.mpf(q) / mpmath.mpf(mass)) - q + mpmath.mpf(mass)
        )
    assert divergence_term(np.array([q]), np.array([mass]))[0] == pytest.approx(
        wanted, rel=110 * UNIT_ROUNDOFF, abs=1e-320
    )


def test_divergence_terms_at_their_ends():
    np.testing.assert_array_equal(
        divergence_term(np.array([0.0, 0.5, 0.0]), np.array([0.25, 0.0, 0.0])), [0.25, np.inf, 0.0]
    )
    # m/q overflows: q log(q/m) is nothing beside m. Where it underflows the logarithm is what
    # counts: log 0.7 + 1074 log 2.
    assert divergence_term(np.array([0.7]), np.array([5e-324]))[0] == pytest.approx(
        0.7 * (np.log(0.7) + 1074 * np.log(2)) - 0.7, rel=1e-15
    )
    assert divergence_term(np.array([5e-324]), np.array([0.5]))[0] == 0.5


@settings(max_examples=200)
@given(strategies.pairs(max_tokens=8))
def test_harmonic_mean_distance(pair):
    p, q = (exact.exact(x) for x in pair)
    wanted = 1 - sum(
        (2 * a * b / (a + b) for a, b in zip(p, q, strict=True) if a + b), exact.Fraction(0)
    )
    value = otm.divergences.harmonic_mean_distance(draft=pair[0], target=pair[1])
    assert abs(value - float(wanted)) <= rounding(len(p), 1)
    assert 0 <= value <= 1
    # Cauchy–Schwarz: (Σ|p − q|)² ≤ Σ (p − q)²/(p + q) · Σ (p + q), that is TV² ≤ d; and |p − q| ≤ p
    # + q gives d ≤ TV.
    distance = otm.divergences.total_variation(draft=pair[0], target=pair[1])
    assert distance**2 - rounding(len(p), 1) <= value <= distance + rounding(len(p), 1)


DISTANCES = (
    otm.divergences.total_variation,
    otm.divergences.harmonic_mean_distance,
    otm.divergences.kl_divergence,
)


@pytest.mark.parametrize("distance", DISTANCES[:2])
def test_disjoint_laws_are_no_further_apart_than_one(distance):
    """Rounding must not leak out: 0.8 + 0.2 + 2·0.5, halved, may be 1 + 2u."""
    p = [[0.5, 0.5, 0, 0, 0], [0.6, 0.3, 0.1, 0, 0]]
    q = [[0, 0, 0, 0.8, 0.2], [0, 0, 0, 0.7, 0.3]]
    found = distance(draft=p, target=q)
    assert (found <= 1.0).all()
    np.testing.assert_allclose(found, 1.0, rtol=0, atol=1e-15)


@pytest.mark.parametrize("distance", DISTANCES)
def test_batches_are_row_by_row(distance):
    p, q = np.random.default_rng(0).dirichlet(np.ones(5), size=(2, 2, 3))
    values = distance(draft=p, target=q[0, 0])
    wanted = [[distance(draft=row, target=q[0, 0]) for row in rows] for rows in p]
    np.testing.assert_allclose(values, wanted, rtol=1e-14)
    assert distance(draft=p, target=p).tolist() == np.zeros((2, 3)).tolist()


@given(strategies.pairs(max_tokens=6), st.floats(0, 9))
def test_the_hockey_stick_is_what_the_overlap_curve_leaves(pair, level):
    p, q = pair
    found = otm.divergences.hockey_stick(draft=p, target=q, level=level)
    assert found == pytest.approx(float(np.maximum(q - level * p, 0.0).sum()), rel=1e-14, abs=0.0)
    assert found == pytest.approx(1.0 - float(otm.overlap.overlap_at(p, q, level)), abs=1e-14)
    total = otm.divergences.total_variation(draft=p, target=q)
    assert otm.divergences.hockey_stick(draft=p, target=q, level=1.0) == pytest.approx(
        total, abs=1e-15
    )
