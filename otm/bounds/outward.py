"""A bound is rounded to its own side: what is computed is moved by all that rounding can have done
to it.

A sum of non-negative terms keeps its relative accuracy, and so do products, quotients and 1 − (1 −
x)^k of what goes into it. Masses come through the gate with ν units of roundoff each, ν being what
a sum over the vocabulary errs by; with the sum itself that is 3ν for terms made of p and q, and a
few units for the operations on a term (docs/theory.md, "Plain sums"). Masses below 2⁻¹⁰²² have lost
more than units: half of the smallest float for each token.
"""

from __future__ import annotations

from otm._arrays import UNIT_ROUNDOFF, Array, clip

_LEAST = 5e-324


def sum_units(num_tokens: int) -> float:
    """Return ν: pairwise sums, vector lanes and trees err by at most 64 units of roundoff, short
    sums by one a term.

    >>> sum_units(3), sum_units(128_256)
    (4.0, 64.0)
    """
    return min(num_tokens + 1.0, 64.0)


def down(values: Array, num_tokens: int, *, units: float, weight: float = 1.0) -> Array:
    """Return non-negative sums over the vocabulary, moved down by what rounding may have added.

    Args:
        values: float64.
        num_tokens: V.
        units: roundings of one term beside those of its masses.
        weight: what a mass is multiplied by at most.

    >>> bool(down(np.asarray(0.75), 2, units=8) < 0.75)
    True
    """
    return clip(
        values * (1.0 - _relative(num_tokens, units)) - weight * (num_tokens + 2) * _LEAST,
        0.0,
        float("inf"),
    )


def up(values: Array, num_tokens: int, *, units: float, weight: float = 1.0) -> Array:
    """Return non-negative sums over the vocabulary, moved up by what rounding may have taken;
    arguments as of `down`.

    >>> bool(up(np.asarray(0.75), 2, units=8) > 0.75)
    True
    """
    return values * (1.0 + _relative(num_tokens, units)) + weight * (num_tokens + 2) * _LEAST


def _relative(num_tokens: int, units: float) -> float:
    return (3.0 * sum_units(num_tokens) + units) * UNIT_ROUNDOFF
