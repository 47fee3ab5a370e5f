"""Formatting of numbers and of foreign text for a report."""

from __future__ import annotations


def value_or_range(low: float, high: float, digits: int, unit: str = "") -> str:
    """Return a value, or both ends of an interval.

    >>> value_or_range(1.5, 1.5, 2, "×"), value_or_range(1.0, 1.98, 2)
    ('1.50×', '1.00 to 1.98')
    """
    first, last = f"{low:.{digits}f}", f"{high:.{digits}f}"
    return f"{first}{unit}" if first == last else f"{first} to {last}{unit}"


def printable(text: str) -> str:
    """Replace control and direction characters, which could disguise a text."""
    return "".join(c if c.isprintable() else {"\n": " ⏎ ", "\t": " "}.get(c, "�") for c in text)
