"""The races: one draft's, list races and the Poisson bound, from every token's match probability
along the order.
"""

from __future__ import annotations

import math

from numba import types

from otm._numba import compile_once
from otm.table.compiled.columns import LIST_RACE, POISSON
from otm.table.compiled.groups import open_group
from otm.table.compiled.parts import (
    BLOCK,
    FAST,
    LARGEST_MULTIPLIED_POWER,
    LEAST_NORMAL,
    TERMS,
    Floats,
    Integers,
    Order,
    add_moments,
    clear,
    dot,
    integer_power,
    multiply,
    part,
)

NARROW = 1 / 64

_OUT_OF_ORDER = (
    1.0 + 2.0**-45
    # neighbours whose ratios differ by less may stand either way: equal ones, after an exponential each
)
_IMMATERIAL = 1e-290  # products of two tokens' masses that have lost their digits


@part(at_once=True)
def races(
    order: Order, whole_p: float, ks: Integers, work: Floats, moments: Floats, per_k: Floats
) -> tuple[float, bool]:
    """Fill the masses at the blocks' ends, list races, Σ q k h/(1 + (k − 1) h), and the Poisson
    bound, 1 − Σ q (1 − h)^k.

    h = Pr(the draft race is won by this token | the target's is), see `otm.races`, rises along the
    order. On a stretch of it where h = c (1 + y), |y| ≤ 1/64, both are power series in y, whose
    weights are the moments Σ q y^n: of 1/(1 + ρ y), ρ ≤ 1, and of (1 − h)^k, at most 1 in size for
    |y| ≤ 1, so that its coefficients are at most 1.

    Returns:
        The race, Σ q h, and whether two tokens stand in the wrong order.
    """
    ends, opened = order.ends, order.opened
    clear(moments)
    for i in range(len(ks)):
        per_k[LIST_RACE, i] = per_k[POISSON, i] = 0.0
    race = centre = 0.0
    swapped = 0
    ends[0, 0] = ends[1, 0] = 0.0
    blocks = (len(order.tokens) + BLOCK - 1) // BLOCK
    last_p, last_q = 0.0, 0.0
    for b in range(blocks):
        n = open_group(order, b)
        mass, target, hit, power = opened[0, :BLOCK], opened[1, :BLOCK], work[0], work[1]
        for j in range(n, BLOCK):
            mass[j] = target[j] = opened[2, j] = opened[3, j] = 0.0
        ends[0, b + 1], ends[1, b + 1] = opened[2, n - 1], opened[3, n - 1]
        ends[2, b], ends[3, b] = target[0] / mass[0], target[n - 1] / mass[n - 1]
        swapped += target[0] * last_p > last_q * mass[0] * _OUT_OF_ORDER + _IMMATERIAL
        last_p, last_q = mass[n - 1], target[n - 1]
        swapped += _match(mass, target, opened[2], opened[3], whole_p, hit)
        race += dot(target, hit)
        least, most = hit[0], hit[n - 1]
        if not most <= (1.0 + NARROW) * centre:
            close_stretch(moments, centre, ks, per_k)
            centre = min(least / (1.0 - NARROW), 1.0)
        if centre >= LEAST_NORMAL and most <= (1.0 + NARROW) * centre:
            scale = 1.0 / centre
            for j in range(BLOCK):
                power[j] = hit[j] * scale - 1.0
            add_moments(target, power, moments[0])
        else:
            centre = 0.0
            _add_races(target, hit, power, ks, per_k)
    close_stretch(moments, centre, ks, per_k)
    for i, k in enumerate(ks):
        per_k[LIST_RACE, i] *= k
        per_k[POISSON, i] = ends[1, blocks] - per_k[POISSON, i]
    return race, swapped > 0


@part()
def _match(
    p: Floats, q: Floats, above_p: Floats, above_q: Floats, whole_p: float, hit: Floats
) -> int:
    """Fill h = p/(q P(tokens with smaller ratio) + p Q(tokens with at least this ratio)); count
    swapped neighbours.
    """
    swapped = 0
    for j in range(BLOCK):
        h = p[j] / (q[j] * (whole_p - above_p[j]) + p[j] * above_q[j])
        # NaN, 0/0, is p subnormal or 0 under a zero prefix: the probability is at most p. Where p
        # and q are subnormal both products may vanish: h is then ∞.
        hit[j] = min(h, 1.0) if h == h else 0.0
        before = max(j - 1, 0)
        swapped += q[j] * p[before] > q[before] * p[j] * _OUT_OF_ORDER + _IMMATERIAL
    return swapped


@part()
def _missed(moments: Floats, powers: Floats, centre: float, k: int) -> float:
    """Return Σ q (1 − h)^k = Σ_n C(k, n) (−c)^n (1 − c)^{k−n} Σ q y^n."""
    terms, rest = min(k, TERMS - 1), max(1.0 - centre, 0.0)
    power = (
        integer_power(rest, k - terms)
        if k <= LARGEST_MULTIPLIED_POWER
        else math.exp((k - terms) * math.log1p(-centre))
    )
    for n in range(terms, -1, -1):
        powers[n] = power
        power *= rest
    chosen, missed = 1.0, 0.0
    for n in range(terms + 1):
        missed += chosen * powers[n] * moments[n]
        chosen *= -centre * (k - n) / (n + 1.0)
    return missed


@compile_once(
    types.void(types.float64[:, ::1], types.float64, types.int64[::1], types.float64[:, :])
)
def close_stretch(moments: Floats, centre: float, ks: Integers, per_k: Floats) -> None:
    """Add a stretch's Σ q h/(1 + (k − 1) h) and Σ q (1 − h)^k from its moments, and clear those;
    centre 0 is no stretch.
    """
    if centre > 0.0:
        for i, k in enumerate(ks):
            scale = 1.0 + (k - 1.0) * centre
            rho = (k - 1.0) * centre / scale
            series = 0.0
            for m in range(TERMS - 1, 0, -1):
                series = moments[0, m] - rho * series
            per_k[LIST_RACE, i] += centre / scale * (moments[0, 0] + (1.0 - rho) * series)
            per_k[POISSON, i] += _missed(moments[0], moments[1], centre, k)
    clear(moments)


@part(FAST)
def _add_races(q: Floats, hit: Floats, power: Floats, ks: Integers, per_k: Floats) -> None:
    """Add a block's Σ q h/(1 + (k − 1) h) and Σ q (1 − h)^k, token by token."""
    for j in range(BLOCK):
        power[j] = 1.0
    reached = 0
    for i, k in enumerate(ks):
        multiply(power, hit, k - 1 - reached)
        together = missed = 0.0
        for j in range(BLOCK):
            together += q[j] * hit[j] / (1.0 + (k - 1.0) * hit[j])
            power[j] *= max(1.0 - hit[j], 0.0)
            missed += q[j] * power[j]
        reached = k
        per_k[LIST_RACE, i] += together
        per_k[POISSON, i] += missed
