"""Oracles in rational arithmetic, written from the definitions and sharing no code with the
library.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import mpmath

Masses = list[Fraction]
Numbers = Sequence[Any]
"""Fractions, decimals or numbers of mpmath: the formulas are the same."""


def exact(values: Sequence[float]) -> Masses:
    """Return the exact rational values of floats, divided by the exact sum.

    A float row misses 1 by an ulp or two.
    """
    masses = [Fraction(float(x)) for x in values]
    whole = sum(masses)
    return [x / whole for x in masses]


def subsets(num_tokens: int) -> list[tuple[int, ...]]:
    """All 2^V token sets."""
    return [
        T for size in range(num_tokens + 1) for T in itertools.combinations(range(num_tokens), size)
    ]


def optimum_iid(p: Numbers, q: Numbers, k: int) -> Any:
    """α* = 1 + min over all T of Q(T) − P(T)^k."""
    return 1 + min(sum(q[y] for y in T) - sum(p[y] for y in T) ** k for T in subsets(len(p)))


def optimum_from_table(
    drafts: Sequence[Sequence[int]], mass: Sequence[Fraction], q: Masses
) -> Fraction:
    """α* = 1 + min over all T of Q(T) − Pr(S ⊆ T), with the law of the drafts given as a table (−1
    is no draft).
    """
    best = Fraction(0)
    sets = [frozenset(x for x in row if x >= 0) for row in drafts]
    for T in subsets(len(q)):
        inside = sum((m for m, s in zip(mass, sets, strict=True) if s <= set(T)), Fraction(0))
        best = min(best, sum((q[y] for y in T), Fraction(0)) - inside)
    return 1 + best


def sequence_mass(p: Numbers, drafts: Sequence[int]) -> Any:
    """Π p(x_i)."""
    return math.prod(p[x] for x in drafts)


def theorem_1(p: Numbers, q: Numbers, k: int, chosen: Sequence[int]) -> Any:
    """SpecTr, Theorem 1, for one Ω₀: the formula as printed, sequence by sequence."""
    return sum(min(q[y], 1 - (1 - p[y]) ** k) for y in chosen) + sum(
        min(sequence_mass(p, x), sum(q[y] for y in set(x) - set(chosen)))
        for x in itertools.product(range(len(p)), repeat=k)
    )


def recursive_rejection(p: Numbers, q: Numbers, k: int, *, distinct: bool = False) -> Any:
    """Return α of r₀ = q, r_i ∝ (r_{i−1} − p)₊; for distinct drafts over all rejected paths."""
    return 1 - _all_rejected(p, q, k, distinct)


def _all_rejected(p: Numbers, r: Numbers, k: int, distinct: bool) -> Any:
    left = [max(b - a, 0) for a, b in zip(p, r, strict=True)]
    rejected = sum(left)
    if k == 1 or rejected == 0:
        return rejected
    after = [x / rejected for x in left]
    if not distinct:
        return rejected * _all_rejected(p, after, k - 1, distinct)
    found = 0
    for x, mass in enumerate(p):
        if mass > r[x]:  # drafted with probability p, rejected with probability 1 − r/p
            others = [0 if y == x else a for y, a in enumerate(p)]
            whole = sum(others)
            law = [a / whole for a in others] if whole else None
            chance = _all_rejected(law, after, k - 1, distinct) if law else 1
            found += (mass - r[x]) * chance
    return found


def kseq(p: Masses, q: Masses, k: int, gamma: Fraction) -> tuple[Fraction, Fraction, Masses]:
    """K-SEQ at a rational γ, draft sequence by draft sequence: (rule acceptance, membership
    acceptance, output law).

    The residual is (q − min(p, q/γ) p_acc/β)₊, clipped and normalised as in SpecTr, Algorithm 2.
    """
    V = len(p)
    keep = [min(Fraction(1), q[x] / (gamma * p[x])) if p[x] else Fraction(0) for x in range(V)]
    stays = [p[x] * keep[x] for x in range(V)]
    beta = sum(stays, Fraction(0))
    accepted = 1 - (1 - beta) ** k
    scale = accepted / beta if beta else Fraction(k)
    residual = [max(q[x] - stays[x] * scale, Fraction(0)) for x in range(V)]
    left = sum(residual, Fraction(0))
    residual = [x / left for x in residual] if left else q
    rule, member, output = Fraction(0), Fraction(0), [Fraction(0)] * V
    for x in itertools.product(range(V), repeat=k):
        reaching = sequence_mass(p, x)
        for token in x:
            rule += reaching * keep[token]
            member += reaching * keep[token]
            output[token] += reaching * keep[token]
            reaching *= 1 - keep[token]
        for y in range(V):
            output[y] += reaching * residual[y]
            member += reaching * residual[y] if y in x else 0
    return rule, member, output


def gamma_star(
    p: Numbers, q: Numbers, k: int, *, digits: int = 60
) -> tuple[mpmath.mpf, mpmath.mpf]:
    """Solve 1 − (1 − β(γ))^k = γβ(γ) by bisection on [1, k] with `digits` digits: (γ*, slope of f
    at γ*).

    f decreases from f(1) = 1 − (1 − β)^k − β ≥ 0 to f(k) ≤ 0 (Bernoulli's inequality).
    """
    with mpmath.workdps(digits):
        draft, target = (
            [
                x if isinstance(x, mpmath.mpf) else mpmath.mpf(x.numerator) / x.denominator
                for x in side
            ]
            for side in (p, q)
        )

        def f(gamma: mpmath.mpf) -> mpmath.mpf:
            beta = mpmath.fsum(min(a, b / gamma) for a, b in zip(draft, target, strict=True))
            return 1 - (1 - beta) ** k - gamma * beta

        low, high = mpmath.mpf(1), mpmath.mpf(k)
        # Rounding leaves f at the two ends of size 10^−digits where it is exactly zero.
        dust = mpmath.mpf(10) ** (5 - digits)
        if abs(f(low)) <= dust:
            return low, slope(draft, target, k, low)
        for _ in range(int(3.4 * digits)):
            middle = (low + high) / 2
            if f(middle) > 0:
                low = middle
            else:
                high = middle
        root = (low + high) / 2
        return root, slope(draft, target, k, root)


def slope(
    p: Sequence[mpmath.mpf], q: Sequence[mpmath.mpf], k: int, gamma: mpmath.mpf
) -> mpmath.mpf:
    """−f′(γ) = A + k(1 − β)^{k−1} B/γ², A = P(q/p ≥ γ), B = Q(q/p < γ), β = A + B/γ: how well γ* is
    conditioned.
    """
    above = mpmath.fsum(a for a, b in zip(p, q, strict=True) if b >= gamma * a)
    below = mpmath.fsum(b for a, b in zip(p, q, strict=True) if b < gamma * a)
    return above + k * (1 - above - below / gamma) ** (k - 1) * below / gamma**2
