"""A check of the law of a function's draws, shared by the tests of interception."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping

from otm.audit.tracing.branching import contradicts_samples, trace


def assert_law(
    function: Callable[[], Hashable],
    expected: Mapping[Hashable, float],
    *,
    tolerance: float = 1e-14,
) -> None:
    """Assert that a function without arguments has this law, exactly and by real randomness."""
    law = trace(lambda uniforms: function())
    assert not contradicts_samples([law])
    assert law.error <= tolerance
    assert law.mass.keys() == {value for value, mass in expected.items() if mass}
    for value, mass in law.mass.items():
        assert math.isclose(mass, expected[value], abs_tol=max(tolerance, law.error))


def even(*values: Hashable) -> dict[Hashable, float]:
    return dict.fromkeys(values, 1 / len(values))
