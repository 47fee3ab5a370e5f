r"""The compiled engine of the overlap curve: tokens are binned by q/p, and the bins walked.

A row's tokens fall into bins by the leading bits of q/p read as an integer. One pass adds p and q
up, and running sums over the bins that have mass, the *groups*, give H exactly at every edge. Each
question then needs the order inside a few groups only, whose tokens are listed and put in order
when they are asked for:

*The optimum* is a maximum of b + D, b = (1 − C)^k of k i.i.d. drafts (in general `Containment`),
over prefixes of the descending order with masses C and D. Inside a group with ratios in [a, b'],
from (C₀, D₀) to (C₁, D₁), D lies below the lines of slope b' through its first and of slope a
through its last point, and b is convex in C, so that there the sum is at most max(edges, b(C₁) + D₀
+ b' (C₁ − C₀)) and at most max(edges, b(C₀) + D₁ − a (C₁ − C₀)). Groups whose bound is below the
best edge are passed over.

*K-SEQ's γ\** lies in the group at whose edges H(γ) − p_acc(γ) changes sign.

*Recursive rejection* reads Σ (q − t p)₊ at a few levels t, each from the edges and one group.

Questions about whole rows use fixed bins (`otm.overlap.compiled`). `otm.table` fits its bins to the
row, or makes groups of the stretches of a row that it has sorted for the races.

Every sum keeps what its additions round off, those of a race for each piece of it, so that the
values are more accurate than those of running sums, and do not depend on V.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from otm._machine.arrays import BLOCK, Floats
from otm._machine.compiled import Function, compile_once
from otm.overlap.curve import (
    BISECTIONS,
    INFINITY,
    LARGEST_MULTIPLIED_POWER,
    NEGLIGIBLE,
    NEWTON_STEPS,
    SETTLED,
)

Integers = NDArray[np.int64]
Places = NDArray[np.int16]
Flags = NDArray[np.bool_]

# Read-only arrays, such as a `Problem` may hold, are another type to numba; what takes these takes
# writable ones too.
ROWS = types.Array(types.float64, 2, "C", readonly=True)
ROW = types.Array(types.float64, 1, "C", readonly=True)
TABLE, INTEGERS, FLAGS = types.float64[:, ::1], types.int64[::1], types.boolean[:, ::1]
SIZES = types.float64[::1], INTEGERS  # c and k of each `Containment`

FAST = frozenset({"reassoc", "contract", "nsz"})
_SAMPLED = 1024  # keys that tell how far steps reach
_SHORT = 32  # tokens that insertion alone puts in order
_ALIKE = 1.0 - 2.0**-47  # ratios that differ by less, as rounding leaves equal ones, count as equal
PIECE = 32  # terms of a race that are added up before what is rounded off is kept


class Groups(NamedTuple):
    """The tokens of a row in groups of descending q/p.

    Attributes:
        bin: the bin of each token, counted from the largest ratios.
        sizes: how many tokens each bin holds.
        bins: the bin of each group.
        tokens: the tokens of groups that are listed, group by group.
        starts: where each group begins in `tokens`, and where the last one ends.
        is_sorted: whether a group's tokens are in order themselves.
        ends: a line for each of `LINES`.
        opened: room for one group in order, or a whole row: p, q, and P and Q up to and with each
            token.
    """

    bin: Places
    sizes: Integers
    bins: Integers
    tokens: Integers
    starts: Integers
    is_sorted: Flags
    ends: Floats
    opened: Floats


GROUPS = types.NamedTuple(
    (types.int16[::1], *(INTEGERS,) * 4, types.boolean[::1], TABLE, TABLE), Groups
)

# Lines of `Groups.ends`: P and Q of the groups before each, Q of this one and those after it, the
# largest and the smallest ratio, masses, and two lines to work in.
LINES = 9
ABOVE_P, ABOVE_Q, BELOW_Q, HIGH, LOW, MASS_P, MASS_Q, POWER, BOUND = range(LINES)


# --- what kernels are made of


def part(
    fast: frozenset[str] = frozenset(), *, at_once: bool = False
) -> Callable[[Function], Function]:
    """Compile a part of the entry functions, always into the code of the entry.

    A function that is called has two compiled forms, one of its own and one within its caller's
    library. A process that compiles runs the first and one that loads the library the second, which
    may differ in the last bits where sums may be reordered.

    Args:
        fast: which liberties floating-point sums may take.
        at_once: whether it is made part of what calls it before either is compiled, and takes that
            one's liberties: what calls other parts would have them optimised once more for itself.
    """
    # Nobody calls a part from outside: wrappers would be a fifth of the time to compile.
    options: dict[str, Any] = {
        "no_cpython_wrapper": True,
        "no_cfunc_wrapper": True,
        "error_model": "numpy",
        "fastmath": set(fast),
    }
    options |= {"inline": "always"} if at_once else {"forceinline": True}

    def compiled(function: Function) -> Function:
        return cast(Function, njit(**options)(function))

    return compiled


def _cast(given: Any, made: Any, kind: str) -> Callable[[Any], Any]:
    """Return a function of compiled code that reads the bits of one type as another."""

    def read(_typing: Any, _number: Any) -> tuple[Any, Callable[..., Any]]:
        def code(_context: Any, builder: Any, _signature: Any, numbers: Any) -> Any:
            return builder.bitcast(
                numbers[0], getattr(ir, kind)(*([64] if kind == "IntType" else []))
            )

        return made(given), code

    return cast(Callable[[Any], Any], intrinsic(read))


bits = _cast(types.float64, types.int64, "IntType")
number = _cast(types.int64, types.float64, "DoubleType")


@part()
def integer_power(base: float, exponent: int) -> float:
    """Return a power by squaring."""
    value = 1.0
    while exponent > 0:
        if exponent & 1:
            value *= base
        base *= base
        exponent >>= 1
    return value


@part(FAST)
def multiply(power: Floats, taken: Floats, times: int) -> None:
    """Multiply by (1 − x)^times, by squaring: twice the exponent costs one pass more."""
    if times <= 0:
        return
    for j in range(len(power)):
        square, left = max(1.0 - taken[j], 0.0), times
        while left > 0:
            if left & 1:
                power[j] *= square
            square *= square
            left >>= 1


@compile_once(types.float64(types.float64, types.float64, types.int64), inside=True)
def contained(outside: float, c: float, k: int) -> float:
    """Return ((1 − C)/(1 + (c − 1) C))^k (`otm.overlap.curve.Containment`)."""
    if k <= LARGEST_MULTIPLIED_POWER:
        return integer_power(max(1.0 - outside, 0.0) / (1.0 + (c - 1.0) * outside), k)
    return math.exp(k * (math.log1p(-min(outside, 1.0)) - math.log1p((c - 1.0) * outside)))


@compile_once(types.float64(types.float64, types.int64), inside=True)
def accept(beta: float, k: int) -> float:
    """Return 1 − (1 − β)^k with full relative accuracy for small β."""
    return -math.expm1(k * math.log1p(-min(max(beta, 0.0), 1.0)))


# --- from tokens to bins, from bins to groups, from groups to tokens in order


@part()
def add_to_bins(
    p: Floats, q: Floats, first: int, shift: int, place: Places, sums: Floats, sizes: Integers
) -> None:
    """Find the bins of a block of tokens, (bits of q/p >> shift) − first from the other end, and
    add the tokens up.

    Four sums for each bin: consecutive tokens of one bin would wait for each other's store. Beside
    each sum stands what its additions have rounded off (p, q, rest of p, rest of q), which makes it
    as accurate as the sum of a few numbers, however many tokens are alike.
    """
    last = sums.shape[1] - 1
    for j in range(len(place)):  # alone, this loop is vectorised; 0/0, without mass, goes anywhere
        place[j] = last - min(max((bits(q[j] / p[j]) >> shift) - first, 0), last)
    for j in range(len(place)):
        into = sums[j & 3, place[j]]
        mass, target = into[0] + p[j], into[1] + q[j]
        into[2] += (into[0] - mass) + p[j]
        into[3] += (into[1] - target) + q[j]
        into[0], into[1] = mass, target
        sizes[place[j]] += 1


@compile_once(types.int64(GROUPS, types.int64, types.int64, types.float64[:, :, ::1]), inside=True)
def close_bins(groups: Groups, first: int, shift: int, sums: Floats) -> int:
    """Fill the groups (the bins with mass) and the groups' ends; return the number of groups."""
    bins, ends, n, last = groups.bins, groups.ends, 0, sums.shape[1] - 1
    ends[ABOVE_P, 0] = ends[ABOVE_Q, 0] = 0.0
    before, before_of_target, rest, rest_of_target = 0.0, 0.0, 0.0, 0.0
    for b in range(last + 1):
        mass = (sums[0, b, 0] + sums[1, b, 0]) + (sums[2, b, 0] + sums[3, b, 0])
        target = (sums[0, b, 1] + sums[1, b, 1]) + (sums[2, b, 1] + sums[3, b, 1])
        if mass > 0 or target > 0:
            mass += (sums[0, b, 2] + sums[1, b, 2]) + (sums[2, b, 2] + sums[3, b, 2])
            target += (sums[0, b, 3] + sums[1, b, 3]) + (sums[2, b, 3] + sums[3, b, 3])
            bins[n], ends[MASS_P, n], ends[MASS_Q, n] = b, mass, target
            ends[HIGH, n] = number((first + last - b + 1) << shift) if b > 0 else np.inf
            ends[LOW, n] = number((first + last - b) << shift) if b < last else 0.0
            n += 1
            after, after_of_target = before + mass, before_of_target + target
            rest += (before - after) + mass
            rest_of_target += (before_of_target - after_of_target) + target
            before, before_of_target = after, after_of_target
            ends[ABOVE_P, n], ends[ABOVE_Q, n] = before + rest, before_of_target + rest_of_target
    ends[BELOW_Q, n] = before = rest = 0.0
    for g in range(n - 1, -1, -1):
        rest += (before - (before + ends[MASS_Q, g])) + ends[MASS_Q, g]
        before += ends[MASS_Q, g]
        ends[BELOW_Q, g] = before + rest
    return n


@compile_once(types.boolean(GROUPS, types.int64, FLAGS), inside=True)
def list_tokens(groups: Groups, n: int, wanted: Flags) -> bool:
    """List the tokens of the groups that any line wants; False if there is no room for them."""
    count, slot = 0, np.full(len(groups.sizes), -1, dtype=np.int64)
    for g in range(n):
        groups.starts[g] = count
        for i in range(len(wanted)):
            if wanted[i, g] and slot[groups.bins[g]] < 0:
                slot[groups.bins[g]] = count
                count += groups.sizes[groups.bins[g]]
                groups.is_sorted[g] = groups.sizes[groups.bins[g]] == 1
    groups.starts[n] = count
    if count > len(groups.tokens):
        return False
    if count > 0:
        for i in range(len(groups.bin)):
            at = slot[groups.bin[i]]
            if at >= 0:
                groups.tokens[at] = i
                slot[groups.bin[i]] = at + 1
    return True


@part()
def _ratio(p: float, q: float) -> float:
    """Return q/p, 0 of a token without mass."""
    return q / p if p > 0 or q > 0 else 0.0


@part()
def _order_key(p: float, q: float) -> int:
    """Return an integer that rises with q/p: its bits, or -1 of a token without mass."""
    key = bits(abs(q / p))
    return key if (p > 0) | (q > 0) else -1


@part()
def _spread(keys: Integers, stride: int) -> tuple[int, int]:
    """Return the least and the most of each stride-th key of a positive finite ratio."""
    least, most = int(INFINITY), 0
    for t in range(0, len(keys), stride):
        if 0 < keys[t] < INFINITY:
            least, most = min(least, keys[t]), max(most, keys[t])
    return min(least, most), most


@part()
def _place_in_steps(
    keys: Integers, tokens: Integers, least: int, most: int, sizes: Integers, ends: Integers
) -> int:
    """Sort by steps of the keys' leading bits, two a token between two keys; fill sizes and ends of
    crowded steps, and return how many there are.
    """
    m = len(keys)
    # Ratios of infinity, of 0 and tokens without mass have steps of their own, however many.
    shift, last = 0, 2 * m + 7
    while (most >> shift) - (least >> shift) > last - 7:
        shift += 1
    step, place = np.empty(m, dtype=np.int32), np.zeros(last + 1, dtype=np.int32)
    for t in range(m):
        b = min(max((most >> shift) + 2 - (keys[t] >> shift), 1), last - 2)
        step[t] = 0 if keys[t] >= INFINITY else last - 1 - keys[t] if keys[t] <= 0 else b
    for t in range(m):
        place[np.uint32(step[t])] += 1
    begin = crowds = 0
    for b in range(last + 1):
        size = place[b]
        place[b] = begin
        begin += size
        if size > _SHORT and 0 < b < last - 1:
            sizes[crowds], ends[crowds] = size, begin
            crowds += 1
    moved, values = np.empty(m, dtype=np.int64), np.empty(m, dtype=np.int64)
    for t in range(m):
        at = place[np.uint32(step[t])]
        place[np.uint32(step[t])] = at + 1
        moved[np.uint32(at)], values[np.uint32(at)] = tokens[t], keys[t]
    for t in range(m):
        keys[t], tokens[t] = values[t], moved[t]
    return crowds


@compile_once(types.void(INTEGERS, INTEGERS), inside=True)
def _sort(keys: Integers, tokens: Integers) -> None:
    """Sort tokens by descending key, and the keys; tokens of one key stay in their order.

    A crowded step is put into steps of its own: keys that differ are soon in different ones.
    """
    m = len(keys)
    sizes, ends = np.empty(m // _SHORT + 1, dtype=np.int64), np.empty(m // _SHORT + 1, np.int64)
    sizes[0] = ends[0] = m
    waiting, first = int(m > _SHORT), True
    while waiting > 0:
        waiting -= 1
        begin, end = ends[waiting] - sizes[waiting], ends[waiting]
        # Few keys say how far most of a row's reach; of a crowded step all are looked at.
        least, most = _spread(keys[begin:end], max(m // _SAMPLED, 1) if first else 1)
        if least < most or first:
            found = _place_in_steps(
                keys[begin:end], tokens[begin:end], least, most, sizes[waiting:], ends[waiting:]
            )
            for i in range(waiting, waiting + found):
                ends[i] += begin
            waiting += found
        first = False
    for t in range(1, m):
        key = keys[t]
        if keys[t - 1] < key:
            token, u = tokens[t], t
            while u > 0 and keys[u - 1] < key:
                keys[u], tokens[u] = keys[u - 1], tokens[u - 1]
                u -= 1
            keys[u], tokens[u] = key, token


@compile_once(types.void(ROW, ROW, INTEGERS), inside=True)
def sort_tokens(p: Floats, q: Floats, tokens: Integers) -> None:
    """Sort tokens by descending q/p, those without mass last."""
    keys = np.empty(len(tokens), dtype=np.int64)
    for t in range(len(tokens)):
        keys[t] = _order_key(p[np.uint64(tokens[t])], q[np.uint64(tokens[t])])
    _sort(keys, tokens)


@compile_once(types.int64(ROW, ROW, INTEGERS, INTEGERS), inside=True)
def sort_row(p: Floats, q: Floats, ratios: Integers, tokens: Integers) -> int:
    """Fill all tokens by descending q/p and the bits of these, with room for one more; tokens
    without mass come last, as -1. Return how many have mass.
    """
    live = 0
    for t in range(len(p)):
        tokens[t], ratios[t] = t, _order_key(p[t], q[t])
        live += ratios[t] >= 0
    _sort(ratios[: len(p)], tokens)
    return live


@part()
def add(total: float, rest: float, x: float) -> tuple[float, float]:
    """Return a sum and what its additions have rounded off."""
    after = total + x
    return after, rest + ((total - after) + x)


@compile_once(types.void(ROW, ROW, INTEGERS, TABLE), inside=True)
def lay_out(p: Floats, q: Floats, tokens: Integers, opened: Floats) -> None:
    """Fill p, q, and P and Q up to and with each token, of tokens in order; `opened` is as long as
    whole blocks, and without mass after the last token.
    """
    for line in range(2):
        masses, mass, running = (p, q)[line], opened[line], opened[2 + line]
        for t in range(len(tokens)):
            mass[t] = masses[np.uint64(tokens[t])]
        for t in range(len(tokens), len(mass)):
            mass[t] = 0.0
        before = rest = 0.0
        for start in range(0, len(mass), PIECE):
            base, piece = before + rest, 0.0
            for t in range(start, start + PIECE):
                piece += mass[t]
                running[t] = base + piece
            before, rest = add(before, rest, piece)


@compile_once(types.int64(ROW, ROW, GROUPS, types.int64), inside=True)
def open_group(p: Floats, q: Floats, groups: Groups, g: int) -> int:
    """Fill `opened` with a listed group in order; return the number of tokens: one for all without
    room but with ratios alike, −1 if unlike.

    Called, not inlined: without `reassoc` both compiled forms do the same.
    """
    opened, ends = groups.opened, groups.ends
    tokens = groups.tokens[groups.starts[g] : groups.starts[g + 1]]
    n = len(tokens)
    if n > opened.shape[1]:
        least, most = np.inf, 0.0
        for j in range(n):
            if p[tokens[j]] > 0 or q[tokens[j]] > 0:
                ratio = q[tokens[j]] / p[tokens[j]]
                least, most = min(least, ratio), max(most, ratio)
        if least < most * _ALIKE:
            return -1
        opened[0, 0], opened[1, 0] = ends[MASS_P, g], ends[MASS_Q, g]
        opened[2, 0], opened[3, 0] = ends[ABOVE_P, g + 1], ends[ABOVE_Q, g + 1]
        return 1
    if not groups.is_sorted[g]:
        sort_tokens(p, q, tokens)
        groups.is_sorted[g] = True
    for j in range(n):
        opened[0, j] = p[np.uint64(tokens[j])]
    for j in range(n):
        opened[1, j] = q[np.uint64(tokens[j])]
    for line in range(2):
        before, rest = ends[ABOVE_P + line, g], 0.0
        for j in range(n):
            before, rest = add(before, rest, opened[line, j])
            opened[2 + line, j] = before + rest
    return n


# --- functionals


@compile_once(types.void(GROUPS, types.int64, *SIZES, FLAGS, TABLE), inside=True)
def bound_optima(
    groups: Groups, n: int, cs: Floats, ks: Integers, wanted: Flags, best: Floats
) -> None:
    """Fill, for each size, the largest b + D at the ends of groups and C there, and mark the
    groups that may hold a larger one (docs/theory.md, "Without a sort").
    """
    ends, power, reached = groups.ends, groups.ends[POWER], 0
    for g in range(n + 1):
        power[g] = 1.0
    for i, k in enumerate(ks):
        if cs[i] == 1.0 and reached <= k <= LARGEST_MULTIPLIED_POWER:
            multiply(power[: n + 1], ends[ABOVE_P, : n + 1], k - reached)
            reached = k
        else:
            reached = LARGEST_MULTIPLIED_POWER + 1  # none that could be multiplied on
            for g in range(n + 1):
                power[g] = contained(ends[ABOVE_P, g], cs[i], k)
        best[0, i], best[1, i] = 1.0, 0.0  # T = Ω: b − Q = 0
        for g in range(n + 1):
            if power[g] + ends[ABOVE_Q, g] > best[0, i]:
                best[0, i], best[1, i] = power[g] + ends[ABOVE_Q, g], ends[ABOVE_P, g]
        for g in range(n):
            mass = ends[ABOVE_P, g + 1] - ends[ABOVE_P, g]
            # Without draft mass an end is best; the ratio ∞ times 0 is NaN, which is not above
            # either.
            ends[BOUND, g] = min(
                power[g + 1] + ends[ABOVE_Q, g] + ends[HIGH, g] * mass,
                power[g] + ends[ABOVE_Q, g + 1] - ends[LOW, g] * mass,
            )
        for g in range(n):
            wanted[i, g] = ends[BOUND, g] > best[0, i] + NEGLIGIBLE


@compile_once(types.boolean(ROW, ROW, GROUPS, types.int64, *SIZES, FLAGS, TABLE), inside=True)
def refine_optima(
    p: Floats,
    q: Floats,
    groups: Groups,
    n: int,
    cs: Floats,
    ks: Integers,
    wanted: Flags,
    best: Floats,
) -> bool:
    """Find larger sums inside the marked groups, which are listed, and turn the largest into α*;
    False without room.
    """
    for g in range(n):
        count, above, above_target = -1, groups.opened[2], groups.opened[3]
        for i, k in enumerate(ks):
            if wanted[i, g]:
                if count < 0:
                    count = open_group(p, q, groups, g)
                if count < 0:
                    return False
                for t in range(count):
                    value = contained(above[t], cs[i], k) + above_target[t]
                    if value > best[0, i]:
                        best[0, i], best[1, i] = value, above[t]
    for i in range(len(ks)):
        best[0, i] = 1.0 - min(max(best[0, i] - 1.0, 0.0), 1.0)
    return True


@compile_once(types.boolean(types.float64, types.float64, types.float64, types.int64), inside=True)
def _beyond(gamma: float, slope: float, offset: float, k: int) -> bool:
    """Return True if γ > γ*: H(γ) > p_acc(γ), H(γ) = slope γ + offset (`otm.verifiers.kseq`)."""
    if gamma > k:
        return True
    return bool(gamma > 1.0 and gamma * slope + offset > accept(slope + offset / gamma, k))


@part()
def _solve(left: float, right: float, inside: float, outside: float, k: int) -> float:
    """Return the root of γβ − p_acc, β = A + B/γ: Newton's steps inside the bracket, then
    bisection.
    """
    if inside == 0.0 and outside == 0.0:
        return left  # disjoint supports: every γ solves it
    gamma = 0.5 * (left + right)
    for step in range(NEWTON_STEPS + BISECTIONS):
        beta = inside + outside / gamma
        value = gamma * inside + outside - accept(beta, k)
        if abs(value) <= SETTLED:
            break  # p_acc(γ) lies between p_acc(γ*) and γβ(γ) = p_acc(γ) + value: it is that close
        if value < 0:
            left = gamma
        else:
            right = gamma
        middle = 0.5 * (left + right)
        if step < NEWTON_STEPS:
            slope = inside + k * min(max(1.0 - beta, 0.0), 1.0) ** (k - 1.0) * outside / gamma**2
            guess = gamma - value / slope
            if left <= guess <= right:
                middle = guess
        settled = abs(middle - gamma) <= SETTLED * gamma
        gamma = middle
        if settled:
            break
    return gamma


@compile_once(types.int64(GROUPS, types.int64, types.int64), inside=True)
def kseq_group(groups: Groups, n: int, k: int) -> int:
    """Return the number of groups entirely beyond γ*, by bisection."""
    ends, low, high = groups.ends, 0, n
    while low < high:
        g = (low + high) // 2
        is_beyond = _beyond(ends[LOW, g], ends[ABOVE_P, g + 1], ends[BELOW_Q, g + 1], k)
        low, high = (g + 1, high) if is_beyond else (low, g)
    return low


@compile_once(
    types.UniTuple(types.float64, 3)(ROW, ROW, GROUPS, types.int64, types.int64, types.int64),
    inside=True,
)
def kseq_root(
    p: Floats, q: Floats, groups: Groups, n: int, g: int, k: int
) -> tuple[float, float, float]:
    """Return γ*, inside the g-th group or between this and the one before, with slope and offset of
    the piece; NaN without room for the group.
    """
    ends = groups.ends
    left, right = 0.0, ends[LOW, g - 1] if g > 0 else np.inf
    slope, offset, is_first = ends[ABOVE_P, g], ends[BELOW_Q, g], g == 0
    if g < n:
        count = open_group(p, q, groups, g)
        if count < 0:
            return np.nan, slope, offset
        mass, target, above = groups.opened[0], groups.opened[1], groups.opened[2]
        # Q after each token takes the place of Q up to it, which nothing asks for any more.
        below, before, rest = groups.opened[3], ends[BELOW_Q, g + 1], 0.0
        for t in range(count - 1, -1, -1):
            below[t] = before + rest
            rest += (before - (before + target[t])) + target[t]
            before += target[t]
        low, high = 0, count
        while low < high:
            t = (low + high) // 2
            is_beyond = _beyond(_ratio(mass[t], target[t]), above[t], below[t], k)
            low, high = (t + 1, high) if is_beyond else (low, t)
        left = _ratio(mass[low], target[low]) if low < count else ends[LOW, g]
        if low > 0:
            right, is_first = _ratio(mass[low - 1], target[low - 1]), False
            slope, offset = above[low - 1], below[low - 1]
    left = max(left, 1.0)
    if is_first:
        return left, slope, 1.0  # no ratio exceeds γ*, p = q: every draft is accepted
    return _solve(left, max(left, min(right, float(k))), slope, offset, k), slope, offset


@compile_once(types.float64(ROW, ROW, GROUPS, types.int64, types.float64), inside=True)
def excess_above(p: Floats, q: Floats, groups: Groups, n: int, level: float) -> float:
    """Return Σ (q − t p)₊: Q − t P of the groups with q > t p, and term by term in the group where
    that ends, which is listed.
    """
    tokens, starts, ends = groups.tokens, groups.starts, groups.ends
    low, high = 0, n
    while low < high:
        g = (low + high) // 2
        low, high = (g + 1, high) if ends[HIGH, g] > level else (low, g)
    if low == 0:
        return 0.0
    excess = 0.0
    for start in range(starts[low - 1], starts[low], BLOCK):
        block = 0.0
        for j in range(start, min(start + BLOCK, starts[low])):
            i = np.uint64(tokens[j])
            block += max(q[i] - level * p[i], 0.0)
        excess += block
    above = ends[ABOVE_Q, low - 1] - level * ends[ABOVE_P, low - 1]
    return float(max(above + excess, 0.0))


@part()
def recursive_rejection(
    p: Floats, q: Floats, groups: Groups, n: int, ks: Integers, values: Floats
) -> None:
    """Fill 1 − m_k from m_i = Σ (q − (m_0 + … + m_{i−1}) p)₊
    (`otm.verifiers.recursive_rejection.rejection_levels`).
    """
    rejected, used, drawn = 1.0, 0.0, 0
    for i, k in enumerate(ks):
        while drawn < k:
            used += rejected
            rejected = min(excess_above(p, q, groups, n, used), rejected)
            drawn += 1
        values[i] = 1.0 - rejected


@part()
def _cut_merge(ratios: Integers, levels: Integers, n: int, steps: int) -> tuple[int, int]:
    """Return the numbers of levels and of ratios that the first steps of a merge take."""
    low, high = max(steps - n, 0), min(steps, n)
    while low < high:
        y = (low + high) // 2
        low, high = (y + 1, high) if ratios[y] >= levels[steps - y - 1] else (low, y)
    return steps - low, low


@part()
def _merge(ratios: Integers, levels: Integers, place: Integers, x: int, y: int) -> tuple[int, int]:
    """Take the next ratio if it is at least the next level, else the level; a jump would be
    guessed wrong as a rule.
    """
    place[np.uint64(x)] = y
    taken = 0 + (ratios[np.uint64(y)] >= levels[np.uint64(x)])
    return x + 1 - taken, y + taken


@part()
def _count_above(ratios: Integers, levels: Integers, n: int, place: Integers) -> None:
    """Fill, for each of n descending levels, how many of n descending ratios are at least as large.

    Both have room for one number more.
    """
    ratios[n], levels[n] = -1, -2  # a list that is through waits for the other
    length = n // 2
    # Four stretches of the merge side by side: a step waits for the one before it.
    x1, y1 = first = _cut_merge(ratios, levels, n, length)
    x2, y2 = second = _cut_merge(ratios, levels, n, 2 * length)
    x3, y3 = third = _cut_merge(ratios, levels, n, 3 * length)
    x0 = y0 = 0
    for _ in range(length):
        x0, y0 = _merge(ratios, levels, place, x0, y0)
        x1, y1 = _merge(ratios, levels, place, x1, y1)
        x2, y2 = _merge(ratios, levels, place, x2, y2)
        x3, y3 = _merge(ratios, levels, place, x3, y3)
    # The end of a stretch has written where the next one starts.
    for x, y in first, second, third:
        end = min(x + 1, n)
        while x < end:
            x, y = _merge(ratios, levels, place, x, y)
    while x3 < n:
        x3, y3 = _merge(ratios, levels, place, x3, y3)


@part(FAST)
def _add_matches(
    target: Floats,
    level: Integers,
    place: Integers,
    above_p: Floats,
    above_q: Floats,
    whole: float,
    k: int,
) -> float:
    """Return the Σ q (1 − (1 − h)^k) of a piece."""
    total = 0.0
    for j in range(len(target)):
        at = np.uint64(place[j] - 1)  # a token is above its own level
        hit = 1.0 / (number(level[j]) * max(whole - above_p[at], 0.0) + above_q[at])
        share = target[j] * (hit if k == 1 else accept(hit, k))
        total += share if share == share else 0.0  # NaN: ∞·0, where p is 0 or subnormal
    return total


@compile_once(types.void(TABLE, INTEGERS, types.int64, *SIZES, types.float64[::1]), inside=True)
def late_matches(
    opened: Floats, ratios: Integers, n: int, cs: Floats, ks: Integers, values: Floats
) -> None:
    """Fill Σ q (1 − (1 − h)^k) for each size, c at least 1, over n tokens with mass in order
    (`sort_row`, `lay_out`).

    h = 1/(t P(tokens with a ratio below t) + Q(tokens with at least t)) at t = q/(c p)
    (`otm.races`): for each c the tokens are merged with themselves at c times less.
    """
    target, above_p, above_q = opened[1], opened[2], opened[3]
    level, place = np.empty(n + 1, dtype=np.int64), np.empty(n + 1, dtype=np.int64)
    for i, c in enumerate(cs):
        inverse = 1.0 / c
        for j in range(n):
            level[j] = bits(number(ratios[j]) * inverse)
        _count_above(ratios, level, n, place)
        matched = lost = 0.0
        for start in range(0, n, PIECE):
            end = min(start + PIECE, n)
            piece = target[start:end], level[start:end], place[start:end], above_p, above_q
            share = _add_matches(*piece, above_p[n - 1], ks[i])
            matched, lost = add(matched, lost, share)
        values[i] = matched + lost
