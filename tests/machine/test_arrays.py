"""The array primitives: inverse distribution functions at their ends, powers, sums, and laws that
round badly.
"""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from otm._machine import arrays
from otm._machine.arrays import inverse_cdf
from tests import strategies

LARGEST = 1.0 - 2.0**-53


@given(
    st.integers(1, 7).flatmap(strategies.distributions),
    st.lists(st.floats(0, LARGEST), max_size=30),
)
def test_inverse_cdf_is_the_quantile_function(mass, uniforms):
    """And never a token without mass."""
    cumulative = np.cumsum(mass) / mass.sum()
    uniforms += [0.0, 5e-324, 1e-300, 0.25, 0.5, 0.75, LARGEST]
    for u, token in zip(uniforms, inverse_cdf(mass, np.array(uniforms)), strict=True):
        assert mass[token] > 0
        assert u > 0 or token == np.flatnonzero(mass)[0]
        # Within rounding of an edge either side is right.
        assert cumulative[token] >= u - 1e-15
        assert token == 0 or cumulative[token - 1] <= u + 1e-15


def test_inverse_cdf_where_the_masses_do_not_reach_one():
    mass = np.full(10, 0.1) * (1 - 1e-13)  # a residual is normalised to rounding only
    assert inverse_cdf(mass, np.array(LARGEST)) == 9
    # unnormalised weights are meant to work
    assert inverse_cdf(mass * 7, np.array([0.05, 0.95])).tolist() == [
        0,
        9,
    ]
    assert inverse_cdf(np.array([0.0, 1.0, 0.0]), np.zeros((2, 3))).tolist() == [[1, 1, 1]] * 2


@pytest.mark.parametrize("exponent", [1, 12, 31, 64])
def test_integer_power(backend, exponent):
    base = backend.array([0.0, 0.3, 0.9999, 1.0])
    before = backend.numpy(base).copy()
    power = backend.numpy(arrays.integer_power(base, exponent))
    # Squaring costs at most 2·log2(k) multiplications, and each doubles or adds the error: k units
    # in the last place.
    unit = 2.0**-53 if backend.dtype == "float64" else 2.0**-24
    np.testing.assert_allclose(
        power, before.astype(np.float64) ** exponent, rtol=2 * exponent * unit
    )
    np.testing.assert_array_equal(backend.numpy(base), before)


@pytest.mark.parametrize("num_tokens", [1, 511, 512, 128_256])
def test_running_sums_err_by_a_block_and_the_number_of_blocks(backend, num_tokens):
    """Masses from {1, 2, 3} round in one direction for long stretches: summed in turn they are off
    by V/100 units.
    """
    weights = np.random.default_rng(0).choice([1.0, 2.0, 3.0], size=(2, num_tokens))
    masses = backend.array(weights / weights.sum(axis=-1, keepdims=True))
    exact = np.cumsum(backend.numpy(masses).astype(np.longdouble), axis=-1)
    whole, sums = arrays.total(masses), arrays.running_sum(masses)
    assert str(whole.dtype).endswith("float64") and str(sums.dtype).endswith("float64")
    np.testing.assert_allclose(backend.numpy(whole), exact[:, -1].astype(float), rtol=1e-14)
    sums = backend.numpy(sums)
    assert abs(sums / exact - 1).max() <= (arrays.BLOCK + num_tokens / arrays.BLOCK + 2) * 2.0**-53
    assert abs(sums - exact).max() <= 5e-14
    assert (np.diff(sums) >= 0).all()


def test_gather_is_batched(backend):
    array = backend.array(np.arange(12.0).reshape(2, 2, 3))
    xp = arrays.namespace(array)
    order = xp.argsort(-array, axis=-1)
    np.testing.assert_array_equal(
        backend.numpy(arrays.gather(array, order)), np.arange(12.0).reshape(2, 2, 3)[..., ::-1]
    )


def test_by_rows_joins_chunks_of_any_shape(monkeypatch):
    array = np.arange(30.0).reshape(2, 3, 5)
    monkeypatch.setattr(arrays, "CHUNK_ELEMENTS", 10)
    result = arrays.by_rows(lambda x: np.stack([x.sum(axis=-1), x.max(axis=-1)]), array)
    np.testing.assert_array_equal(result, np.stack([array.sum(axis=-1), array.max(axis=-1)]))


def test_sums_do_not_depend_on_the_order_in_memory():
    """Rows that lie column by column would be added up one term after the other: V units of
    roundoff instead of 64.
    """
    rows = np.random.default_rng(0).random((3, 100_000))
    assert np.array_equal(arrays.total(np.asfortranarray(rows)), arrays.total(rows))
    assert not np.array_equal(np.asfortranarray(rows).sum(axis=-1), arrays.total(rows))
