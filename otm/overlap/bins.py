r"""The overlap curve without a sort, compiled: exact masses of 4,096 bins, and an order of those
few tokens that matter.

A row's tokens fall into bins by the leading bits of q/p read as an integer: the exponent and five
bits of the mantissa, 32 bins to an octave, from 2⁻⁶⁴ to 2⁶⁴ (what lies beyond joins the first and
the last bin). One pass adds p and q up, prefix sums over the bins give H exactly at every edge, and
each question then needs the order inside one or two bins only:

*The optimum* is a maximum of (1 − C)^k + D over prefixes of the descending order with masses C and
D. Inside a bin with ratios in [a, b], from (C₀, D₀) to (C₁, D₁), D lies below the lines of slope b
through its first and of slope a through its last point, and (1 − C)^k is convex, so that there the
sum is at most max(edges, (1 − C₁)^k + D₀ + b (C₁ − C₀)) and at most max(edges, (1 − C₀)^k + D₁ − a
(C₁ − C₀)). Bins whose bound is below the best edge are passed over.

*K-SEQ's γ\** lies in the bin at whose edges H(γ) − p_acc(γ) changes sign.

A row in which more than a quarter of the tokens would have to be ordered (all ratios alike to five
bits but not equal, or many minima) is left to the caller, who sorts it; that costs it one pass
more. Every sum keeps what its additions round off, so that the values are more accurate than those
of running sums, and do not depend on V.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numba import types
from numpy.typing import NDArray

from otm._numba import compile_once

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

_BINS = 4096
_SHIFT = 47  # what is left of 52 bits of mantissa once five are kept
_LOWEST = (1023 - 64) * 32  # the bin of 2⁻⁶⁴, before it is called 0
_BLOCK = 512
_MOST_IN_ORDER = 4  # at most one in so many tokens is put in order
_NEGLIGIBLE = 2.0**-56  # a bound that exceeds the best edge by less is rounding
_LARGEST_MULTIPLIED_POWER = 64  # as in otm.drafts.iid_cut


# Read-only arrays, such as a `Problem` may hold, are another type to numba; what takes these takes
# writable ones too.
_ROWS = types.Array(types.float64, 2, "C", readonly=True)
_QUESTION = (_ROWS, _ROWS, types.int64[::1])
# Signatures for what is called from here and from Python, so that it is compiled once.
_ROW = types.Array(types.float64, 1, "C", readonly=True)
_TABLE = types.float64[:, ::1]


def try_out() -> None:
    """Compute one row of one token: what is compiled is loaded or made now."""
    one = np.ones((1, 1))
    optimum(one, one, [1])
    kseq_pieces(one, one, [1])
    Bins.of(one[0], one[0]).steps(one[0], one[0], np.zeros(0, dtype=np.int64))


def optimum(p: Floats, q: Floats, ks: Sequence[int]) -> tuple[Floats, Mask]:
    """Return α*_k and then, in as many rows again, P of the tokens outside a minimising set, and
    which rows are left to the caller.

    Rows are `(rows, V)`, answers `(2 len(ks), rows)`.
    """
    ascending, of_k = np.unique(np.asarray(ks, dtype=np.int64), return_inverse=True)
    values, left = np.empty((2 * len(ascending), len(p))), np.zeros(len(p), dtype=np.bool_)
    _optimum(p, q, ascending, values, left)
    return values[np.concatenate([of_k, len(ascending) + of_k])], left


def kseq_pieces(p: Floats, q: Floats, ks: Sequence[int]) -> tuple[Floats, Mask]:
    """Return the piece of each curve on which γ*_k lies, and which rows are left to the caller.

    Returns:
        `(5, len(ks), rows)`: a number that is 0 where no token lies beyond γ*, two levels on the
        piece that enclose γ*, the piece's slope and its offset (`otm.overlap.Piece`).
    """
    pieces, left = np.empty((5, len(ks), len(p))), np.zeros(len(p), dtype=np.bool_)
    _kseq_pieces(p, q, np.asarray(ks, dtype=np.int64), pieces, left)
    return pieces, left


@dataclasses.dataclass(frozen=True, eq=False)
class Bins:
    """One row's tokens in bins.

    Attributes:
        place: the bin of each token, `(V,)`.
        number: the bins with mass, in descending order, `(n,)`.
        mass: their P and Q, `(n, 2)`.
    """

    place: NDArray[np.int32]
    number: Integers
    mass: Floats

    @classmethod
    def of(cls, p: Floats, q: Floats) -> Bins:
        """Fill the bins of a row `(V,)`: one pass."""
        place, sums = np.empty(len(p), dtype=np.int32), np.empty((4, _BINS, 4))
        number, edges = np.empty(_BINS, dtype=np.int64), np.empty((_BINS + 1, 2))
        number = number[: _fill(p, q, place, sums, number, edges)]
        return cls(place, number, np.ascontiguousarray(sums[0, number, :2]))

    def steps(self, p: Floats, q: Floats, chosen: Integers) -> tuple[Floats, Integers] | None:
        """Return the row with the chosen bins, numbers of `number`, replaced by their tokens in
        order.

        Returns:
            In descending order of q/p: P, Q, the largest and the smallest ratio of each step `(4,
            steps)`, and its bin, −1 for a token `(steps,)`; None if more than a quarter of the row
            would have to be put in order.
        """
        flags = np.zeros(_BINS, dtype=np.bool_)
        flags[chosen] = True
        tokens, starts = (
            np.empty(len(p) // _MOST_IN_ORDER + 1, dtype=np.int64),
            np.zeros(len(self.number) + 1, dtype=np.int64),
        )
        ratio = np.empty(len(tokens))
        count = _collect(self.place, flags, tokens)
        if count < 0:
            return None
        if count > 0:
            _put_in_order(
                p, q, tokens, count, ratio, self.place, self.number, len(self.number), starts
            )
        steps = np.empty((4, len(self.number) - len(chosen) + count))
        of_bin = np.empty(steps.shape[1], dtype=np.int64)
        _lay_out(p, q, self.number, self.mass, flags, tokens, ratio, starts, steps, of_bin)
        return steps, of_bin


@compile_once()
def _beyond(gamma: float, slope: float, offset: float, k: int) -> bool:
    """Whether γ > γ*: H(γ) > p_acc(γ), H(γ) = slope·γ + offset (`otm.verifiers.kseq`)."""
    if gamma > k:
        return True
    beta = min(max(slope + offset / gamma, 0.0), 1.0)
    return bool(gamma > 1.0 and gamma * slope + offset > -math.expm1(k * math.log1p(-beta)))


@compile_once()
def _edge(number: int) -> float:
    """Return the smallest ratio of a bin."""
    number += _LOWEST
    return float((1.0 + (number & 31) / 32.0) * 2.0 ** ((number >> 5) - 1023))


@compile_once()
def _integer_power(base: float, exponent: int) -> float:
    value = 1.0
    while exponent > 0:
        if exponent & 1:
            value *= base
        base *= base
        exponent >>= 1
    return value


@compile_once(
    types.int64(_ROW, _ROW, types.int32[::1], types.float64[:, :, ::1], types.int64[::1], _TABLE)
)
def _fill(
    p: Floats, q: Floats, place: NDArray[np.int32], sums: Floats, used: Integers, edges: Floats
) -> int:
    """Fill each token's bin, the bins' masses (p, q) in `sums[0]`, the bins with mass in descending
    order, and running sums.

    Four sums for each bin: consecutive tokens of one bin would wait for each other's store. Beside
    each sum stands what its additions have rounded off (p, q, rest of p, rest of q), which makes it
    as accurate as the sum of a few numbers, however many tokens are alike.
    """
    sums[:] = 0.0
    quotient = np.empty(_BLOCK)
    bits = quotient.view(np.int64)
    for start in range(0, len(p), _BLOCK):
        n = min(_BLOCK, len(p) - start)
        for i in range(n):
            quotient[i] = q[start + i] / p[start + i]
        for i in range(
            n
            # 0/0, which has no mass, has a sign and goes to the first bin, or no sign and goes to the
            # last
        ):
            place[start + i] = min(max((bits[i] >> _SHIFT) - _LOWEST, 0), _BINS - 1)
        for i in range(start, start + n):
            into = sums[i & 3, place[i]]
            mass, target = into[0] + p[i], into[1] + q[i]
            into[2] += (into[0] - mass) + p[i]
            into[3] += (into[1] - target) + q[i]
            into[0], into[1] = mass, target
    count = 0
    edges[0, 0] = edges[0, 1] = 0.0
    before, before_of_target, rest, rest_of_target = 0.0, 0.0, 0.0, 0.0
    for b in range(_BINS - 1, -1, -1):
        mass = (sums[0, b, 0] + sums[1, b, 0]) + (sums[2, b, 0] + sums[3, b, 0])
        target = (sums[0, b, 1] + sums[1, b, 1]) + (sums[2, b, 1] + sums[3, b, 1])
        if mass > 0 or target > 0:
            mass += (sums[0, b, 2] + sums[1, b, 2]) + (sums[2, b, 2] + sums[3, b, 2])
            target += (sums[0, b, 3] + sums[1, b, 3]) + (sums[2, b, 3] + sums[3, b, 3])
            sums[0, b, 0], sums[0, b, 1] = mass, target
            used[count] = b
            count += 1
            after, after_of_target = before + mass, before_of_target + target
            rest += (before - after) + mass
            rest_of_target += (before_of_target - after_of_target) + target
            before, before_of_target = after, after_of_target
            edges[count, 0], edges[count, 1] = before + rest, before_of_target + rest_of_target
    return count


@compile_once(types.int64(types.int32[::1], types.boolean[::1], types.int64[::1]))
def _collect(place: NDArray[np.int32], chosen: Mask, tokens: Integers) -> int:
    """List the tokens of the chosen bins and return their number, −1 if there are too many."""
    is_any = False
    for b in range(len(chosen)):
        is_any |= chosen[b]
    if not is_any:
        return 0
    count = 0
    for i in range(len(place)):
        if chosen[place[i]]:
            if count == len(tokens):
                return -1
            tokens[count] = i
            count += 1
    return count


@compile_once(
    types.void(
        *(_ROW, _ROW, types.int64[::1], types.int64, types.float64[::1]),
        *(types.int32[::1], types.int64[::1], types.int64, types.int64[::1]),
    )
)
def _put_in_order(
    p: Floats,
    q: Floats,
    tokens: Integers,
    count: int,
    ratio: Floats,
    place: NDArray[np.int32],
    used: Integers,
    n: int,
    starts: Integers,
) -> None:
    """Sort the listed tokens by descending q/p, and find where each bin's begin, `starts[j]` to
    `starts[j + 1]`.

    Within a bin ratios are put into as many equal steps as there are tokens, and each step, which
    holds one as a rule, is sorted.
    """
    # Loops, not slices: an assignment to a slice compiles what it could complain with, a second's
    # work, and a sort as much.
    listed, place_of = np.empty(count, dtype=np.int64), np.empty(_BINS, dtype=np.int64)
    for t in range(count):
        listed[t] = tokens[t]
    for j in range(n + 1):
        starts[j] = 0
    for j in range(n):
        place_of[used[j]] = j
    for t in range(count):
        starts[place_of[place[listed[t]]] + 1] += 1
    for j in range(n):
        starts[j + 1] += starts[j]
    after = np.empty(n, dtype=np.int64)
    for j in range(n):
        after[j] = starts[j]
    for t in range(count):
        j = place_of[place[listed[t]]]
        tokens[after[j]] = listed[t]
        after[j] += 1
    longest = 0
    for j in range(n):
        longest = max(longest, starts[j + 1] - starts[j])
    ends, moved, values = (
        np.empty(longest + 2, dtype=np.int64),
        np.empty(longest, dtype=np.int64),
        np.empty(longest),
    )
    for j in range(n):
        first, m = starts[j], starts[j + 1] - starts[j]
        if m == 0:
            continue
        least, most = np.inf, 0.0
        for t in range(first, first + m):
            i = tokens[t]
            ratio[t] = q[i] / p[i] if p[i] > 0 or q[i] > 0 else 0.0
            least, most = min(least, ratio[t]), max(most, ratio[t])
        if least == most:
            continue
        scale = (m - 1) / (most - least)
        if not 0.0 < scale < np.inf:
            scale = 0.0  # the last bin, of unlimited ratios: one step
        for b in range(m + 1):
            ends[b] = 0
        for t in range(first, first + m):
            ends[(int((most - ratio[t]) * scale) if scale > 0 else 0) + 1] += 1
        for b in range(m):
            ends[b + 1] += ends[b]
        for t in range(first, first + m):
            b = int((most - ratio[t]) * scale) if scale > 0 else 0
            moved[ends[b]], values[ends[b]] = tokens[t], ratio[t]
            ends[b] += 1
        begin = 0
        for b in range(m):  # ends[b] is now where step b ends
            gap = max((ends[b] - begin) // 2, 1)
            while gap > 0:  # Shell's sort, of one or two as a rule
                for t in range(begin + gap, ends[b]):
                    value, token, u = values[t], moved[t], t
                    while u >= begin + gap and values[u - gap] < value:
                        values[u], moved[u] = values[u - gap], moved[u - gap]
                        u -= gap
                    values[u], moved[u] = value, token
                gap = gap * 5 // 11 if gap > 2 else gap - 1
            begin = ends[b]
        for t in range(m):
            tokens[first + t], ratio[first + t] = moved[t], values[t]


@compile_once(
    types.void(
        *(_ROW, _ROW, types.int64[::1], _TABLE, types.boolean[::1]),
        *(types.int64[::1], types.float64[::1], types.int64[::1], _TABLE, types.int64[::1]),
    )
)
def _lay_out(
    p: Floats,
    q: Floats,
    number: Integers,
    mass: Floats,
    chosen: Mask,
    tokens: Integers,
    ratio: Floats,
    starts: Integers,
    steps: Floats,
    of_bin: Integers,
) -> None:
    """Fill the steps: the chosen bins' tokens as they are listed, the other bins as a whole."""
    at = 0
    for j in range(len(number)):
        if chosen[number[j]]:
            for t in range(starts[j], starts[j + 1]):
                steps[0, at], steps[1, at] = p[tokens[t]], q[tokens[t]]
                steps[2, at] = steps[3, at] = ratio[t]
                of_bin[at] = -1
                at += 1
        else:
            steps[0, at], steps[1, at] = mass[j, 0], mass[j, 1]
            steps[2, at] = _edge(number[j] + 1) if number[j] < _BINS - 1 else np.inf
            steps[3, at] = _edge(number[j]) if number[j] > 0 else 0.0
            of_bin[at] = number[j]
            at += 1


@compile_once(types.void(*_QUESTION, types.float64[:, ::1], types.boolean[::1]))
def _optimum(p: Floats, q: Floats, ks: Integers, values: Floats, left: Mask) -> None:
    width, num_ks = p.shape[1], len(ks)
    place, sums = np.empty(width, dtype=np.int32), np.empty((4, _BINS, 4))
    used, edges = np.empty(_BINS, dtype=np.int64), np.empty((_BINS + 1, 2))
    power, inside = np.empty(_BINS + 1), np.empty(_BINS + 1)
    wanted, tokens = (
        np.empty((num_ks, _BINS), dtype=np.bool_),
        np.empty(width // _MOST_IN_ORDER + 1, dtype=np.int64),
    )
    chosen, starts = np.empty(_BINS, dtype=np.bool_), np.empty(_BINS + 1, dtype=np.int64)
    ratio = np.empty(width // _MOST_IN_ORDER + 1)
    for r in range(p.shape[0]):
        n = _fill(p[r], q[r], place, sums, used, edges)
        for j in range(n + 1):
            inside[j], power[j] = max(1.0 - edges[j, 0], 0.0), 1.0
        reached = 0
        chosen[:] = False
        for i, k in enumerate(ks):
            if k <= _LARGEST_MULTIPLIED_POWER:
                for j in range(n + 1):
                    power[j] *= _integer_power(inside[j], k - reached)
                reached = k
            else:
                for j in range(n + 1):
                    power[j] = math.exp(k * math.log1p(-min(edges[j, 0], 1.0)))
            best, outside = 1.0, 0.0  # T = Ω: b − Q = 0
            for j in range(n + 1):
                value = power[j] + edges[j, 1]
                if value > best:
                    best, outside = value, edges[j, 0]
            values[i, r], values[num_ks + i, r] = best, outside
            for j in range(n):
                mass = edges[j + 1, 0] - edges[j, 0]
                low, high = _edge(used[j]), _edge(used[j] + 1)
                bound = power[j] + edges[j + 1, 1] - (low * mass if used[j] > 0 else 0.0)
                if used[j] < _BINS - 1:
                    bound = min(bound, power[j + 1] + edges[j, 1] + high * mass)
                wanted[i, j] = bound > best + _NEGLIGIBLE
                if wanted[i, j]:
                    chosen[used[j]] = True
        count = _collect(place, chosen, tokens)
        if count < 0:
            left[r] = True
            continue
        if count > 0:
            _put_in_order(p[r], q[r], tokens, count, ratio, place, used, n, starts)
            for i, k in enumerate(ks):
                for j in range(n):
                    if wanted[i, j]:
                        before, before_of_target = edges[j, 0], edges[j, 1]
                        rest, rest_of_target = 0.0, 0.0
                        for t in range(starts[j], starts[j + 1]):
                            after = before + p[r, tokens[t]]
                            after_of_target = before_of_target + q[r, tokens[t]]
                            rest += (before - after) + p[r, tokens[t]]
                            rest_of_target += (before_of_target - after_of_target) + q[r, tokens[t]]
                            before, before_of_target = after, after_of_target
                            above, target = before + rest, before_of_target + rest_of_target
                            if k <= _LARGEST_MULTIPLIED_POWER:
                                contained = _integer_power(max(1.0 - above, 0.0), k)
                            else:
                                contained = math.exp(k * math.log1p(-min(above, 1.0)))
                            if contained + target > values[i, r]:
                                values[i, r], values[num_ks + i, r] = contained + target, above
        for i in range(num_ks):
            values[i, r] = 1.0 - min(max(values[i, r] - 1.0, 0.0), 1.0)


@compile_once(types.void(*_QUESTION, types.float64[:, :, ::1], types.boolean[::1]))
def _kseq_pieces(p: Floats, q: Floats, ks: Integers, pieces: Floats, left: Mask) -> None:
    width = p.shape[1]
    most = width // _MOST_IN_ORDER + 1
    place, sums = np.empty(width, dtype=np.int32), np.empty((4, _BINS, 4))
    used, edges, below = (
        np.empty(_BINS, dtype=np.int64),
        np.empty((_BINS + 1, 2)),
        np.empty(_BINS + 1),
    )
    chosen, starts, at = (
        np.empty(_BINS, dtype=np.bool_),
        np.empty(_BINS + 1, dtype=np.int64),
        np.empty(len(ks), dtype=np.int64),
    )
    tokens, ratio, slope, offset = (
        np.empty(most, dtype=np.int64),
        np.empty(most),
        np.empty(most),
        np.empty(most),
    )
    for r in range(p.shape[0]):
        n = _fill(p[r], q[r], place, sums, used, edges)
        below[n] = before = rest = 0.0
        for j in range(n - 1, -1, -1):  # Q of the bins from the j-th on, from the small end
            mass = sums[0, used[j], 1]
            rest += (before - (before + mass)) + mass
            before += mass
            below[j] = before + rest
        chosen[:] = False
        for i, k in enumerate(ks):
            low, high = 0, n  # so many bins lie beyond γ* as a whole
            while low < high:
                j = (low + high) // 2
                whole = used[j] > 0 and _beyond(_edge(used[j]), edges[j + 1, 0], below[j + 1], k)
                low, high = (j + 1, high) if whole else (low, j)
            at[i] = low
            if low < n:
                chosen[used[low]] = True
        count = _collect(place, chosen, tokens)
        if count < 0:
            left[r] = True
            continue
        _put_in_order(p[r], q[r], tokens, count, ratio, place, used, n, starts)
        for j in range(n):
            if starts[j] < starts[j + 1]:
                before, rest = edges[j, 0], 0.0
                for t in range(starts[j], starts[j + 1]):  # P of this token and those before it
                    mass = p[r, tokens[t]]
                    rest += (before - (before + mass)) + mass
                    before += mass
                    slope[t] = before + rest
                before, rest = below[j + 1], 0.0
                for t in range(starts[j + 1] - 1, starts[j] - 1, -1):  # Q of the tokens after it
                    offset[t] = before + rest
                    mass = q[r, tokens[t]]
                    rest += (before - (before + mass)) + mass
                    before += mass
        for i, k in enumerate(ks):
            j = at[i]
            first, last = (starts[j], starts[j + 1]) if j < n else (0, 0)
            low, high = first, last
            while low < high:
                t = (low + high) // 2
                low, high = (t + 1, high) if _beyond(ratio[t], slope[t], offset[t], k) else (low, t)
            # Where the piece ends outside the bin, the bin's own ends enclose γ* as well.
            pieces[0, i, r] = (
                j + low - first
            )  # 0 where nothing lies beyond; else a number of bins and tokens
            pieces[1, i, r] = (
                ratio[low] if low < last else (_edge(used[j]) if j < n and used[j] > 0 else 0.0)
            )
            if low > first:
                pieces[2, i, r], pieces[3, i, r], pieces[4, i, r] = (
                    ratio[low - 1],
                    slope[low - 1],
                    offset[low - 1],
                )
            else:
                pieces[2, i, r], pieces[3, i, r], pieces[4, i, r] = (
                    _edge(used[j - 1]) if j > 0 else np.inf,
                    edges[j, 0],
                    below[j],
                )
