"""Along the overlap curve, from the ends of groups and a look into few: the optimum, K-SEQ,
recursive rejection, H itself.
"""

from __future__ import annotations

import numpy as np
from numba import types

from otm._numba import compile_once
from otm.table.compiled.groups import open_group
from otm.table.compiled.parts import (
    BLOCK,
    LARGEST_MULTIPLIED_POWER,
    ORDER,
    Floats,
    Integers,
    Order,
    accept,
    contained,
    multiply,
    part,
)

_NEGLIGIBLE = 2.0**-56  # a bound that exceeds the best value known by less is rounding
_NEWTON_STEPS, _BISECTIONS, _SETTLED = 16, 60, 2.0**-52


@part()
def optima(order: Order, groups: int, power: Floats, ks: Integers, values: Floats) -> bool:
    """Fill α*_k = 1 − max_C [(1 − C)^k + Q(Tᶜ) − 1]⁺ over the prefixes Tᶜ of mass C
    (`otm.drafts.iid_cut`); False without room.

    Group by group: within one the sum is bounded as within a bin (docs/theory.md, "Without a
    sort"), and few need a look inside.
    """
    ends, opened, starts = order.ends, order.opened, order.starts
    at, reached = -1, 0
    for b in range(groups + 1):
        power[0, b] = 1.0
    for i, k in enumerate(ks):
        if k <= LARGEST_MULTIPLIED_POWER:
            multiply(power[0, : groups + 1], ends[0, : groups + 1], k - reached)
            reached = k
        else:
            for b in range(groups + 1):
                power[0, b] = contained(ends[0, b], k)
        worst = 1.0
        for b in range(groups + 1):
            worst = max(worst, power[0, b] + ends[1, b])
        best = worst
        for b in range(groups):
            mass = ends[0, b + 1] - ends[0, b]
            # Without draft mass an end is best; its ratio times 0 would be NaN, which is not above
            # either.
            power[1, b] = min(
                power[0, b + 1] + ends[1, b] + ends[2, b] * mass,
                power[0, b] + ends[1, b + 1] - ends[3, b] * mass,
            )
        for b in range(groups):
            if not power[1, b] > best + _NEGLIGIBLE or ends[2, b] == ends[3, b]:
                continue  # of equal ratios an end is best
            if b != at:
                if open_group(order, b) < 0:
                    return False
                at = b
            for j in range(starts[b + 1] - starts[b]):
                worst = max(worst, contained(opened[2, j], k) + opened[3, j])
        values[i] = 1.0 - min(worst - 1.0, 1.0)
    return True


@part()
def _stops(ratio: float, inside: float, outside: float, k: int) -> bool:
    """Whether γβ ≥ p_acc does not hold any more at γ = ratio, or γ ≤ 1; NaN (∞·0) goes on."""
    return bool(ratio <= 1.0 or ratio * inside + outside - accept(inside + outside / ratio, k) <= 0)


@part()
def kseq(order: Order, groups: int, k: int) -> float:
    """Return the acceptance at γ*, found in the segment r_{j+1} ≤ γ* ≤ r_j by
    `otm.verifiers.kseq`'s steps; NaN without room.
    """
    ends, opened = order.ends, order.opened
    whole = ends[1, groups]
    low, high = 0, groups
    while low < high:  # the groups whose tokens all have γβ < p_acc at their own ratio
        b = (low + high) // 2
        stops = _stops(ends[3, b], ends[0, b + 1], whole - ends[1, b + 1], k)
        low, high = (low, b) if stops else (b + 1, high)
    group, inside, outside = low, ends[0, low], whole - ends[1, low]
    left, right = 1.0, ends[3, low - 1] if low > 0 else 0.0
    if group < groups and ends[2, group] == ends[3, group]:
        left = max(ends[2, group], 1.0)
    elif group < groups:
        n = open_group(order, group)
        if n < 0:
            return np.nan
        low, high = 0, n
        while low < high:
            j = (low + high) // 2
            stops = _stops(opened[1, j] / opened[0, j], opened[2, j], whole - opened[3, j], k)
            low, high = (low, j) if stops else (j + 1, high)
        if low > 0:
            inside, outside, right = (
                opened[2, low - 1],
                whole - opened[3, low - 1],
                opened[1, low - 1] / opened[0, low - 1],
            )
        if low < n:
            left = max(opened[1, low] / opened[0, low], 1.0)
        elif group + 1 < groups:
            left = max(ends[2, group + 1], 1.0)
    right = max(left, min(right, float(k)))
    gamma = _solve_between(left, right, inside, outside, k)
    return accept(inside + outside / gamma, k)


@part()
def _solve_between(left: float, right: float, inside: float, outside: float, k: int) -> float:
    """Return the root of γβ − p_acc, β = A + B/γ: Newton's steps inside the bracket, then
    bisection.
    """
    if inside == 0.0 and outside == 0.0:
        return left  # disjoint supports: every γ solves it
    gamma = 0.5 * (left + right)
    for step in range(_NEWTON_STEPS + _BISECTIONS):
        beta = inside + outside / gamma
        value = gamma * inside + outside - accept(beta, k)
        if abs(value) <= _SETTLED:
            break  # p_acc(γ) lies between p_acc(γ*) and γβ(γ) = p_acc(γ) + value: it is that close
        if value < 0:
            left = gamma
        else:
            right = gamma
        middle = 0.5 * (left + right)
        if step < _NEWTON_STEPS:
            slope = inside + k * min(max(1.0 - beta, 0.0), 1.0) ** (k - 1.0) * outside / gamma**2
            guess = gamma - value / slope
            if left <= guess <= right:
                middle = guess
        settled = abs(middle - gamma) <= _SETTLED * gamma
        gamma = middle
        if settled:
            break
    return gamma


@compile_once(types.float64(ORDER, types.int64, types.float64), inside=True)
def excess_above(order: Order, groups: int, level: float) -> float:
    """Return Σ (q − t p)₊: Q − t P of the groups with q > t p, and term by term in the group where
    that ends.
    """
    p, q, tokens, starts, ends = order.p, order.q, order.tokens, order.starts, order.ends
    low, high = 0, groups
    while low < high:
        b = (low + high) // 2
        low, high = (b + 1, high) if ends[2, b] > level else (low, b)
    if low == 0:
        return 0.0
    excess = 0.0
    for start in range(starts[low - 1], starts[low], BLOCK):
        block = 0.0
        for j in range(start, min(start + BLOCK, starts[low])):
            i = np.uint64(tokens[j])
            block += max(q[i] - level * p[i], 0.0)
        excess += block
    return float(max(ends[1, low - 1] - level * ends[0, low - 1] + excess, 0.0))


@part()
def recursive_rejection(order: Order, groups: int, ks: Integers, values: Floats) -> None:
    """Fill 1 − m_k from m_i = Σ (q − (m_0 + … + m_{i−1}) p)₊
    (`otm.verifiers.recursive_rejection.rejection_levels`).
    """
    rejected, used, drawn = 1.0, 0.0, 0
    for i, k in enumerate(ks):
        while drawn < k:
            used += rejected
            rejected = min(excess_above(order, groups, used), rejected)
            drawn += 1
        values[i] = 1.0 - rejected
