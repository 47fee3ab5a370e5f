"""Leviathan's chain formulas against sums and scans."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import otm
from otm.engines.chain import chain_expected_tokens, chain_speedup, optimal_chain_length
from tests.tolerance import UNIT_ROUNDOFF

EDGES = (0.0, 1e-300, 0.3, 0.7, 1 - 1e-9, 1 - 2.0**-53, 1.0)


@given(st.one_of(st.floats(0, 1), st.sampled_from(EDGES)), st.integers(0, 40))
def test_expected_tokens_are_a_geometric_sum(acceptance, length):
    wanted = sum(Fraction(acceptance) ** i for i in range(length + 1))
    # log, product, expm1, quotient: (γ + 1)·|log a| ≥ the relative condition, so 4 + 2 roundings.
    assert chain_expected_tokens(acceptance, length=length) == pytest.approx(
        float(wanted), rel=16 * UNIT_ROUNDOFF
    )


@given(st.floats(0, 1), st.floats(0, 1.2))
def test_the_optimal_length_by_scanning(acceptance, ratio):
    found = optimal_chain_length(acceptance, cost_ratio=ratio, max_length=60)
    scan = [chain_speedup(acceptance, length=n, cost_ratio=ratio) for n in range(61)]
    assert scan[found] >= max(scan) * (1 - 1e-12)


@pytest.mark.parametrize(
    ("acceptance", "ratio", "most", "length"),
    [(0.5, 0.5, 9, 0), (0.5, 0.49, 9, 1), (1.0, 0.1, 33, 33), (0.3, 0.0, 5, 5), (0.0, 0.0, 5, 0)],
)
def test_known_choices(acceptance, ratio, most, length):
    """No draft pays if a ≤ c; drafts that are free or never rejected always do."""
    assert optimal_chain_length(acceptance, cost_ratio=ratio, max_length=most) == length


@pytest.mark.parametrize("length", [0, 1, 2, 7, 40, 2**40])
@pytest.mark.parametrize("array", [np.array([EDGES] * 2), torch.from_numpy(np.array([EDGES] * 2))])
def test_arrays_are_the_numbers_in_turn(length, array):
    found = chain_expected_tokens(array, length=length)
    assert type(found) is type(array)
    wanted = [chain_expected_tokens(value, length=length) for value in EDGES]
    np.testing.assert_allclose(np.asarray(found), [wanted] * 2, rtol=1e-15)
    assert isinstance(chain_expected_tokens(np.array(0.5), length=length), float)


@pytest.mark.parametrize("length", [0, 1, 2, 7, 40, 2**53 - 1])
def test_the_derivative_is_a_sum_without_differences(length):
    endless = length > 40
    edges = EDGES[:4] if endless else EDGES
    given = torch.tensor(edges, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(chain_expected_tokens(given, length=length).sum(), given)
    wanted = [
        1 / (1 - a) ** 2
        if endless
        else float(sum(i * Fraction(a) ** (i - 1) for i in range(1, length + 1)))
        for a in edges
    ]
    # Some 2 log₂(γ + 1) products and sums of non-negative numbers, each relative to a u: powers
    # double what is below them.
    close = 1e-12 if endless else 8 * (length + 1) * UNIT_ROUNDOFF
    np.testing.assert_allclose(slope.numpy(), wanted, rtol=close)


@pytest.mark.parametrize(
    "bad",
    [np.array([0.5, 1.5]), np.array([np.nan]), np.array([True]), np.ma.array([0.5], mask=[1])],
)
def test_what_is_no_probability_is_refused(bad):
    with pytest.raises(otm.errors.InvalidParameter):
        chain_expected_tokens(bad, length=2)
