"""Rational enumeration of draft laws, and what else their tests share."""

from __future__ import annotations

from fractions import Fraction

from tests import exact

F = Fraction


def ranked(p: exact.Masses) -> list[int]:
    """Tokens by descending mass, lowest index first among equals."""
    return sorted(range(len(p)), key=lambda x: (-p[x], x))
