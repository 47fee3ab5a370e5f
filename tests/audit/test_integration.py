"""What rounding explains."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import otm
from otm import audit
from tests.audit.callables import maximal


def test_tolerance_is_what_rounding_explains() -> None:
    def in_float32(p: Any, q: Any, d: Any, u: Any) -> tuple[int, bool]:
        return maximal(p.astype(np.float32).astype(np.float64), q, d, u)

    problem = otm.Problem(draft=[0.7, 0.3], target=[0.4, 0.6], law=otm.IID(1))
    assert audit.exact(in_float32, problem).verdict == "not lossless"
    allowed = audit.rounding_tolerance(2, 1, unit_roundoff=2.0**-24)
    assert audit.exact(in_float32, problem, tolerance=allowed).verdict == "lossless"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((0, 1, 2.0**-53), "num_tokens must be an integer of at least 1"),
        ((2, 0, 2.0**-53), "k must be an integer of at least 1"),
        ((2, 1, 0.0), r"unit_roundoff must lie in \(0, 1\]"),
        ((2, 1, 24), r"unit_roundoff must lie in \(0, 1\]; got 24"),
    ],
)
def test_rounding_of_nothing(arguments: tuple[int, int, float], said: str) -> None:
    with pytest.raises(otm.errors.InvalidParameter, match=said):
        audit.rounding_tolerance(*arguments[:2], unit_roundoff=arguments[2])
