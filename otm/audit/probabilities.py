"""How probabilities and distributions are written in reports."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

MOST_ENTRIES = 12
"""Entries of a distribution that are written out."""


def number(value: float) -> str:
    """Print a probability: as a fraction where a small one is meant, else to six digits.

    >>> number(0.625), number(1 / 3), number(0.1234567)
    ('5/8', '1/3', '0.123457')
    """
    if not np.isfinite(value):
        return "∞"
    fraction = Fraction(value).limit_denominator(128)
    if abs(float(fraction) - value) < 1e-14:
        return str(fraction)
    return f"{value:.6g}"


def numbers(values: Any) -> str:
    """Print a distribution, shortened beyond twelve entries.

    >>> numbers([[0.5, 0.5], [0.25, 0.75]])
    '(1/2, 1/2); (1/4, 3/4)'
    """
    array = np.asarray(values)
    if array.ndim > 1:
        return "; ".join(numbers(row) for row in array)
    shown = ", ".join(number(float(x)) for x in array[:MOST_ENTRIES])
    return f"({shown}{', …' if len(array) > MOST_ENTRIES else ''})"
