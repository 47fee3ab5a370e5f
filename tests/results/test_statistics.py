"""Intervals against SciPy's, closed forms and simulation; the two types' conventions."""

import math

import numpy as np
import pytest
import scipy

from otm.results.statistics import (
    Estimate,
    bernstein_deviation,
    binomial_interval,
    jackknife_error,
    ratio_of_means,
    t_quantile,
)


def test_students_quantile_is_scipys_also_for_several_intervals_at_once():
    groups = np.array([2, 5, 40, 1000])
    assert t_quantile(groups).tolist() == scipy.stats.t.ppf(0.975, groups - 1).tolist()
    assert float(t_quantile(40, 0.9, comparisons=4)) == pytest.approx(
        scipy.stats.t.ppf(1 - 0.1 / 8, 39), rel=1e-12
    )
    assert float(t_quantile(1)) == float(t_quantile(2))  # no interval is asked for there


@pytest.mark.parametrize("hits", [0, 1, 7, 20])
def test_the_binomial_interval_is_scipys(hits):
    expected = scipy.stats.binomtest(hits, 20).proportion_ci(0.9, method="exact")
    found = binomial_interval(hits, 20, confidence=0.9)
    assert (found.value, found.samples, found.confidence) == (hits / 20, 20, 0.9)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_the_jackknife_of_a_mean_is_its_standard_error_and_counts_stand_for_equal_groups():
    values = np.array([1.0, 2.0, 2.0, 4.0])
    left_out = (values.sum() - values) / 3
    error = values.std(ddof=1) / 2
    assert float(jackknife_error(left_out)) == pytest.approx(error, rel=1e-14)
    kinds, counts = left_out[[0, 1, 3]], np.array([1.0, 2.0, 1.0])
    assert float(jackknife_error(kinds, counts)) == pytest.approx(error, rel=1e-14)
    both = jackknife_error(np.stack([left_out, 2 * left_out], axis=1))
    assert both.tolist() == pytest.approx([error, 2 * error], rel=1e-14)
    assert np.isnan(jackknife_error(np.ones((1, 3)))).all()


def test_a_ratio_with_equal_counts_is_the_mean_with_its_t_interval():
    values = np.random.default_rng(0).random((30, 2))
    found = ratio_of_means(values, np.ones_like(values))
    for j in range(2):
        mean, error = values[:, j].mean(), scipy.stats.sem(values[:, j])
        one = found.at(j)
        assert (one.low, one.high) == pytest.approx(scipy.stats.t.interval(0.95, 29, mean, error))
        assert one.value == pytest.approx(mean)
    alone = ratio_of_means(values[:1], np.ones((1, 2)))
    assert np.isnan(alone.low).all() and not alone.has_interval.any()
    assert alone.at(0).words() == f"{values[0, 0]:.2f}"


def test_the_bernstein_deviation_is_that_of_maurer_and_pontil():
    """7 b log(2/δ)/(3(n − 1)) where nothing varies, √(2 s² log(2/δ)/n) where the span is 0."""
    log = math.log(2 / 0.01)
    constant, halves = np.full(500, 2.0), np.tile([1.0, 3.0], 250)
    found = bernstein_deviation(constant, span=3.0, uncertainty=0.01)
    assert found == pytest.approx(7 * 3 * log / (3 * 499))
    assert bernstein_deviation(np.zeros(1), span=1.0, uncertainty=0.5) > 1.0
    # s² = n/(n − 1)
    found = bernstein_deviation(halves, span=0.0, uncertainty=0.01)
    assert found == pytest.approx(math.sqrt(2 * log / 499))


def test_an_estimate_of_several_numbers_is_a_table_of_as_many_rows():
    many = Estimate(np.array([0.5, 0.25]), np.array([0.4, 0.2]), np.array([0.6, 0.3]), 9, 0.9, "a")
    assert many.data().rows == ((0.5, 0.4, 0.6, 9, 0.9, "a"), (0.25, 0.2, 0.3, 9, 0.9, "a"))
    assert many.at(1) == Estimate(0.25, 0.2, 0.3, 9, 0.9, "a")
    assert many.clipped(0.25, [0.5, 1.0]).at(0) == Estimate(0.5, 0.4, 0.5, 9, 0.9, "a")
    assert many.at(0).interval_text == "[0.4, 0.6]"
    assert not Estimate(1.0, math.nan, math.nan).has_interval
