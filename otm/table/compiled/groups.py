"""A row's tokens in descending order of q/p: packed for a sort, or put into groups of which only a
few are put in order.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from otm._numba import compile_once
from otm.table.compiled.parts import (
    BLOCK,
    ORDER,
    TABLE,
    Floats,
    Integers,
    Order,
    bits,
    number,
    part,
)

MOST_GROUPS, PER_GROUP = 4096, 32  # groups at most, and how many tokens they hold on average

_INFINITE, _UNLIMITED, _NOWHERE = (
    np.int64(0x7FF0000000000000),
    np.int64(0x7FDFFFFFFFFFFFFF),
    np.int64(0x7FEFFFFFFFFFFFFF),
)
_UNSIGNED = np.int64(0x7FFFFFFFFFFFFFFF)
_MANY = 2 * BLOCK  # what a plain sum may have of terms
_RATIOS_SAMPLED = 1024  # tokens whose ratios say how far the groups of a row reach
# bits of 2⁻⁶⁴ and 2⁶⁴
_LEAST_RATIO, _MOST_RATIO = (
    np.int64(1023 - 64) << np.int64(52),
    np.int64(1023 + 64) << np.int64(52),
)
_INSIDE, _BEYOND = 1.0 - 2.0**-50, 1.0 + 2.0**-50  # a quotient of rounded quotients is off by less
# many tokens whose ratios differ by less, as rounding leaves equal ones, count as equal
_ALIKE = 1.0 - 2.0**-47
# running sums of so many tokens are taken side by side: an addition waits for the one before it
_STRAND = BLOCK // 4


@part()
def pack(p: Floats, q: Floats, start: int, n: int, mask: int, order: Integers) -> None:
    """Fill, for each token of a block, p/q with the token's index in its last bits; without mass it
    comes last.
    """
    for j in range(n):
        ratio = bits(p[j] / q[j]) & _UNSIGNED
        ratio = _NOWHERE if ratio > _INFINITE else min(ratio, _UNLIMITED)
        order[start + j] = (ratio & ~mask) | (start + j)


@part()
def spread(p: Floats, q: Floats, groups: int) -> tuple[int, int]:
    """Return which bits of p/q number the groups of a row: (x >> shift) − first, from a sample of
    the tokens.

    Tokens beyond the sample's range join the first and the last group.
    """
    least, most = _MOST_RATIO, _LEAST_RATIO
    step = max(len(p) // _RATIOS_SAMPLED, 1)
    for i in range(0, len(p), step):
        ratio = bits(p[i] / q[i]) & _UNSIGNED
        if _LEAST_RATIO <= ratio <= _MOST_RATIO:
            least, most = min(least, ratio), max(most, ratio)
    shift = 0
    while (most >> shift) - (least >> shift) > groups - 3:
        shift += 1
    return int((least >> shift) - 1), shift


@part()
def place_tokens(
    p: Floats, q: Floats, first: int, shift: int, place: NDArray[np.int16], bins: Floats
) -> None:
    """Fill each token's group and add it up: its masses and a one."""
    last = len(bins) - 1
    for j in range(len(place)):  # 0/0 may go anywhere
        place[j] = min(max((bits(p[j] / q[j]) >> shift) - first, 0), last)
    for j in range(len(place)):
        into = bins[place[j]]
        into[0] += p[j]
        into[1] += q[j]
        into[2] += 1.0


@compile_once(
    types.int64(ORDER, types.int16[::1], TABLE, types.int64, types.int64, types.int64[::1]),
    inside=True,
)
def gather(
    order: Order,
    place: NDArray[np.int16],
    bins: Floats,
    first: int,
    shift: int,
    after_last: Integers,
) -> int:
    """List a row's tokens group by group, and fill the groups' ends.

    Returns:
        How many groups hold tokens.
    """
    p, q, tokens, starts, ends = order.p, order.q, order.tokens, order.starts, order.ends
    groups = start = 0
    for b in range(len(bins)):
        after_last[b] = start
        start += int(bins[b, 2])
        if bins[b, 2] > 0:
            starts[groups] = after_last[b]
            groups += 1
    starts[groups] = start
    for i in range(len(place)):
        of = np.uint64(place[i])
        tokens[np.uint64(after_last[of])] = i
        after_last[of] += 1
    ends[0, 0] = ends[1, 0] = 0.0
    g = 0
    before, before_of_target, rest, rest_of_target = 0.0, 0.0, 0.0, 0.0
    for b in range(len(bins)):
        if not bins[b, 2] > 0:
            continue
        mass, target = bins[b, 0], bins[b, 1]
        # p/q lies between these bits of it
        most = _BEYOND / number((first + b) << shift) if b > 0 else np.inf
        least = _INSIDE / number((first + b + 1) << shift) if b < len(bins) - 1 else 0.0
        order.is_sorted[g] = starts[g + 1] - starts[g] == 1
        if starts[g + 1] - starts[g] > _MANY:
            mass = target = 0.0
            lowest, highest = np.inf, 0.0
            for at in range(starts[g], starts[g + 1], BLOCK):
                block = block_of_target = 0.0
                for j in range(at, min(at + BLOCK, starts[g + 1])):
                    i = tokens[j]
                    block += p[i]
                    block_of_target += q[i]
                    ratio = q[i] / p[i]
                    if p[i] > 0 or q[i] > 0:
                        lowest, highest = min(lowest, ratio), max(highest, ratio)
                mass += block
                target += block_of_target
            order.is_sorted[g] = lowest >= highest * _ALIKE
            most, least = highest, highest if order.is_sorted[g] else lowest
        after, after_of_target = before + mass, before_of_target + target
        rest += (before - after) + mass
        rest_of_target += (before_of_target - after_of_target) + target
        before, before_of_target = after, after_of_target
        g += 1
        ends[0, g], ends[1, g], ends[2, g - 1], ends[3, g - 1] = (
            before + rest,
            before_of_target + rest_of_target,
            most,
            least,
        )
    return groups


@part()
def _add_up(mass: Floats, before: float, running: Floats) -> None:
    """Fill the running sums of a group; of a block in strands, since each addition waits for the
    one before it.
    """
    n = len(mass)
    if n == BLOCK:
        a = b = c = d = 0.0
        for j in range(_STRAND):
            a += mass[j]
            b += mass[_STRAND + j]
            c += mass[2 * _STRAND + j]
            d += mass[3 * _STRAND + j]
            running[j], running[_STRAND + j], running[2 * _STRAND + j], running[3 * _STRAND + j] = (
                a,
                b,
                c,
                d,
            )
        second = before + a
        third = second + b
        fourth = third + c
        for j in range(_STRAND):
            running[j] += before
            running[_STRAND + j] += second
            running[2 * _STRAND + j] += third
            running[3 * _STRAND + j] += fourth
    else:
        rest = 0.0  # what the additions have rounded off: a group may be long
        for j in range(n):
            after = before + mass[j]
            rest += (before - after) + mass[j]
            before = after
            running[j] = before + rest


@compile_once(types.int64(ORDER, types.int64), inside=True)
def open_group(order: Order, group: int) -> int:
    """Fill `opened` with a group in order; return how many tokens it has, −1 if there is no room.

    Called, not inlined: without `reassoc` both compiled forms do the same.
    """
    p, q, tokens, opened = order.p, order.q, order.tokens, order.opened
    start = order.starts[group]
    n = int(order.starts[group + 1] - start)
    if n > opened.shape[1]:
        return -1
    if not order.is_sorted[group]:
        key = opened[2]
        for j in range(n):
            i = np.uint64(tokens[start + j])
            key[j] = p[i] / q[i] if q[i] > 0 else (np.inf if p[i] > 0 else 0.0)
        gap = n // 2
        while gap > 0:
            for j in range(gap, n):
                ratio, token, t = key[j], tokens[start + j], j
                while t >= gap and key[t - gap] > ratio:
                    key[t], tokens[start + t] = key[t - gap], tokens[start + t - gap]
                    t -= gap
                key[t], tokens[start + t] = ratio, token
            gap = gap * 5 // 11 if gap > 2 else gap - 1
        order.is_sorted[group] = True
    for j in range(n):
        opened[0, j] = p[np.uint64(tokens[start + j])]
    for j in range(n):
        opened[1, j] = q[np.uint64(tokens[start + j])]
    _add_up(opened[0, :n], order.ends[0, group], opened[2, :n])
    _add_up(opened[1, :n], order.ends[1, group], opened[3, :n])
    return n
