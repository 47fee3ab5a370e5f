"""The hull under the taut string."""

import numpy as np
from hypothesis import given, settings, strategies as st

from otm.divergences.taut_string import upper_hull


@settings(max_examples=100)
@given(steps=st.lists(st.tuples(st.floats(0.01, 1), st.floats(0, 1)), min_size=1, max_size=12))
def test_the_hull_is_the_least_concave_majorant(steps):
    """At every point the highest of all chords above it."""
    q, b = (np.array(column) for column in zip(*steps, strict=True))
    width, rise, block_of = upper_hull(q, b)
    assert (np.diff(rise / width) < 1e-12).all()
    x, y = (np.cumulative_sum(column, include_initial=True) for column in (q, b))
    ends = (np.cumulative_sum(column, include_initial=True) for column in (width, rise))
    chords = [
        max(np.interp(here, x[[i, j]], y[[i, j]]) for i in range(m + 1) for j in range(m, len(x)))
        for m, here in enumerate(x)
    ]
    np.testing.assert_allclose(np.interp(x, *ends), chords, rtol=0, atol=1e-12)
    np.testing.assert_allclose(np.bincount(block_of, weights=q), width, atol=1e-12)
