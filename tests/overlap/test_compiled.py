"""Compiled bins: which rows they leave to the sort, and that sums of many tokens lose nothing."""

from __future__ import annotations

import numpy as np
import pytest

from otm.overlap import compiled
from otm.overlap.curve import Containment
from tests.overlap.instances import problems


def test_some_rows_are_left_to_the_sort_and_most_are_not() -> None:
    left = {}
    for name, p, q in problems(20_000, 5):
        left[name] = (
            bool(compiled.optimum(p[None], q[None], [Containment(k=8), Containment(c=4.0)])[1][0]),
            bool(compiled.kseq_roots(p[None], q[None], [8])[1][0]),
        )
    assert left["a minimum on every piece"][0]
    assert left["one bin, all different"][1]
    assert not any(left["language model"] + left["flat"] + left["zeros"])
    assert not left["equal"][0]
    assert not left["few ratios"][0]


@pytest.mark.parametrize("width", [32_000, 128_256])
@pytest.mark.parametrize("k", [1, 1000])
def test_many_tokens_of_one_ratio_lose_nothing_to_their_sum(width: int, k: int) -> None:
    """All are in one bin, and added up one by one they were off by a hundredth of V u."""
    p = np.full((1, width), 1.0 / width)
    values, left = compiled.optimum(p, p.copy(), [Containment(k=k)])
    assert not left.any()
    # docs/theory.md, "The optimum from bins": 2 (22 + ν) u + 2k u·[k ≤ 64] + 12 u with ν ≤ 64.
    assert abs(values[0, 0] - 1.0) <= (2 * (22 + 64) + 2 * k * (k <= 64) + 12) * 2.0**-53
