"""The hull under the taut string."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings, strategies as st

from otm.taut_string import upper_hull


class TestPieces:
    @settings(max_examples=100)
    @given(steps=st.lists(st.tuples(st.floats(0.01, 1), st.floats(0, 1)), min_size=1, max_size=12))
    def test_the_hull_is_the_least_concave_majorant(self, steps: list[tuple[float, float]]) -> None:
        q, b = (np.array(column) for column in zip(*steps, strict=True))
        width, rise, block_of = upper_hull(q, b)
        assert (np.diff(rise / width) < 1e-12).all()
        x, y = np.concatenate([[0], np.cumsum(q)]), np.concatenate([[0], np.cumsum(b)])
        hull = np.interp(
            x, np.concatenate([[0], np.cumsum(width)]), np.concatenate([[0], np.cumsum(rise)])
        )
        chords = np.array(
            [
                max(
                    y[i] + (y[j] - y[i]) * (x[m] - x[i]) / (x[j] - x[i]) if j > i else y[m]
                    for i in range(m + 1)
                    for j in range(m, len(x))
                )
                for m in range(len(x))
            ]
        )
        np.testing.assert_allclose(hull, chords, rtol=0, atol=1e-12)
        np.testing.assert_allclose(np.bincount(block_of, weights=q), width, atol=1e-12)
