"""Rational oracles of verifiers, written from the definitions."""

from __future__ import annotations

import itertools
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


def rejection_along(
    p: exact.Masses, q: exact.Masses, drafts: tuple[int, ...]
) -> tuple[list[Fraction], exact.Masses]:
    """Recursive rejection on one path: accept probabilities and the last residual; p renormalised
    over the tokens left.
    """
    r, keep = list(q), []
    for i, x in enumerate(drafts):
        left = sum((p[y] for y in range(len(p)) if y not in drafts[:i]), F(0))
        law = [F(0) if y in drafts[:i] else p[y] / left for y in range(len(p))]
        keep.append(min(F(1), r[x] / law[x]))
        excess = [max(a - b, F(0)) for a, b in zip(r, law, strict=True)]
        total = sum(excess)
        r = [e / total for e in excess] if total else r
    return keep, r


def recursive_without_replacement(
    p: exact.Masses, q: exact.Masses, k: int
) -> tuple[Fraction, exact.Masses]:
    """Acceptance and output law, path by path."""
    support = [x for x in range(len(p)) if p[x] > 0]
    accepted, output = F(0), [F(0)] * len(p)
    for drafts in itertools.permutations(support, min(k, len(support))):
        reaching = successive(p, drafts)
        keep, residual = rejection_along(p, q, drafts)
        for x, probability in zip(drafts, keep, strict=True):
            accepted += reaching * probability
            output[x] += reaching * probability
            reaching *= 1 - probability
        output = [o + reaching * r for o, r in zip(output, residual, strict=True)]
    return accepted, output


def problem_of(pair: tuple[np.ndarray, np.ndarray], law: otm.Law) -> otm.Problem:
    return otm.Problem(draft=pair[0], target=pair[1], law=law)
