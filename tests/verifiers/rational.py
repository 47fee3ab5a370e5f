"""Rational oracles of verifiers, written from the definitions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

import otm
from tests import exact

F = Fraction


def successive(p: exact.Masses, drafts: tuple[int, ...]) -> Fraction:
    """Probability of drawing these tokens in this order without replacement."""
    mass = F(1)
    for i, x in enumerate(drafts):
        mass *= p[x] / sum((p[y] for y in range(len(p)) if y not in drafts[:i]), F(0))
    return mass


def problem_of(pair: tuple[np.ndarray, np.ndarray], law: otm.Law) -> otm.Problem:
    return otm.Problem(draft=pair[0], target=pair[1], law=law)
