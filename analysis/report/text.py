"""Numbers and foreign text as a report shows them."""

from __future__ import annotations

import numpy as np

from ..statistics import Means


def ends(low: float, high: float, digits: int, unit: str = "") -> str:
    """Return a value, or both ends of an interval.

    >>> ends(1.5, 1.5, 2, "×"), ends(1.0, 1.98, 2)
    ('1.50×', '1.00 to 1.98')
    """
    first, last = f"{low:.{digits}f}", f"{high:.{digits}f}"
    return f"{first}{unit}" if first == last else f"{first} to {last}{unit}"


def shown(text: str) -> str:
    """Return text without control and direction characters, which could make it read as something
    else.
    """
    return "".join(c if c.isprintable() else {"\n": " ⏎ ", "\t": " "}.get(c, "�") for c in text)


def interval_text(means: Means, column: int, digits: int = 4) -> str:
    """Return an interval as text, empty where there is none."""
    low, high = means.low[column], means.high[column]
    return (
        f"{low:.{digits}f} to {high:.{digits}f}" if np.isfinite(low) and np.isfinite(high) else ""
    )
