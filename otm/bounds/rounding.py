"""Outward rounding of bounds, by a limit on all rounding errors of the computation.

A sum of non-negative terms keeps its relative accuracy, and so do products, quotients and 1 − (1 −
x)^k of what goes into it. The gate's masses have ν units of roundoff each, ν being what a sum over
the vocabulary errs by; with the sum itself that is 3ν for terms made of p and q, and a few units
for the operations on a term (docs/theory.md, "Plain sums"). A mass below 2⁻¹⁰²² has lost up to half
of the smallest float.
"""

from __future__ import annotations

from collections.abc import Callable

from otm._machine.arrays import UNIT_ROUNDOFF, Array, as_scalar_or_array, by_rows, clip

_LEAST = 5e-324


def sum_units(num_tokens: int) -> float:
    """Return ν, a bound in units of roundoff on the error of a sum over the vocabulary.

    Pairwise sums, vector lanes and trees err by at most 64, short sums by one a term.

    >>> sum_units(3), sum_units(128_256)
    (4.0, 64.0)
    """
    return min(num_tokens + 1.0, 64.0)


def round_down(values: Array, num_tokens: int, *, units: float, weight: float = 1.0) -> Array:
    """Return non-negative sums over the vocabulary, minus the largest possible rounding gain.

    Args:
        values: float64.
        num_tokens: V.
        units: roundings of one term beside those of its masses.
        weight: what a mass is multiplied by at most.

    >>> import numpy as np
    >>> bool(round_down(np.asarray(0.75), 2, units=8) < 0.75)
    True
    """
    kept = 1.0 - (3.0 * sum_units(num_tokens) + units) * UNIT_ROUNDOFF
    return clip(values * kept - weight * (num_tokens + 2) * _LEAST, 0.0, float("inf"))


def round_up(values: Array, num_tokens: int, *, units: float, weight: float = 1.0) -> Array:
    """Return non-negative sums over the vocabulary, plus the largest possible rounding loss.

    Args:
        values, num_tokens, units, weight: as for `round_down`.

    >>> import numpy as np
    >>> bool(round_up(np.asarray(0.75), 2, units=8) > 0.75)
    True
    """
    grown = 1.0 + (3.0 * sum_units(num_tokens) + units) * UNIT_ROUNDOFF
    return values * grown + weight * (num_tokens + 2) * _LEAST


def bound_by_row(bound: Callable[[Array, Array], Array], draft: Array, target: Array) -> Array:
    """Return a float or `(...)`, from a function of rows `(n, V)` that returns `(n,)`."""
    return as_scalar_or_array(by_rows(lambda p, q: bound(p, q)[None], draft, target)[0])
