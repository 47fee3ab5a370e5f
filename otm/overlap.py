"""The optimal acceptance as a minimum cut, found by one sort and one scan.

For every draft law, the best acceptance of any coupling is α* = 1 + min_T [Q(T) − b(T)] over sets T of tokens, where b(T) is the
probability that all drafts fall into T (max-flow/min-cut on the graph from drafted sets to their tokens; docs/theory.md, "The
cut formula"). For k i.i.d. drafts b(T) = P(T)^k, and a minimising T is a *prefix* of supp p in ascending order of q/p: tokens
that the draft model overrates most come first.

The scan runs over the complements of the prefixes, from the other end of the order: with C = P(Tᶜ) accumulated from the small
side, b(T) = exp(k·log1p(−C)) keeps full accuracy where P(T) is close to 1, which is where k in the thousands looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._arrays import Array, by_rows, gather, integer_power, namespace, quiet, reserve, running_sum

# Below this exponent (1 − C)^k by multiplication costs a tenth of exp/log and loses at most k/2 units in the last place.
_LARGEST_MULTIPLIED_POWER = 64

_LONG_ROW = 256  # shorter rows gain nothing from packing
_POSITIVE = np.int64(2**63 - 1)


def iid_values(draft: Array, target: Array, ks: Sequence[int]) -> Array:
    """Return α*_k = 1 + min_j [Q(T_j) − P(T_j)^k] over prefixes T_j, for each k, shape `(len(ks), ...)` in float64.

    Cost: one sort, two running sums and one pass per k: O(V log V + V·len(ks)).
    Accuracy: about 1e-14 at V = 128,256 (running sums), for every k.
    """
    return by_rows(lambda p, q: _scan(p, q, ks), draft, target)


def iid_worst_set(draft: NDArray[Any], target: NDArray[Any], k: int) -> NDArray[np.bool_]:
    """Return the minimising prefix T as a mask `(V,)`; ties go to the largest complement."""
    with quiet():
        order = descending_ratio_order(draft, target)
        outside = np.minimum(np.cumsum(draft[order]), 1.0)
        loss = -np.cumsum(target[order]) - np.exp(k * np.log1p(-outside))
    members = np.ones(len(draft), dtype=bool)
    best = int(np.argmin(loss))
    # The empty complement (T = Ω) has Q − b = 0, which in these terms is −1.
    if loss[best] < -1.0:
        members[order[: best + 1]] = False
    return members


def descending_ratio_order(draft: Array, target: Array) -> Array:
    """Return the token order by descending q/p along the last axis, `(..., V)`.

    Sorting p/q ascending gives it at once: q = 0 goes last (∞), p = 0 < q first (0), and tokens with p = q = 0 (NaN, which every
    namespace sorts last) change no sum. The order of ties changes no minimum, so the sort need not be stable: NumPy's unstable
    sort is vectorised.
    """
    xp = namespace(draft, target)
    ratio = draft / target
    if isinstance(ratio, np.ndarray) and ratio.dtype == np.float64 and ratio.ndim == 2 and ratio.shape[-1] >= _LONG_ROW:
        return _sort_packed(ratio)
    return xp.argsort(ratio, axis=-1, stable=False)


def _sort_packed(ratio: NDArray[Any]) -> NDArray[np.int64]:
    """Return an ascending order of each row of non-negative numbers `(rows, V)`, in half the time of an argsort.

    Read as integers, non-negative floats keep their order, so the index can ride in the last bits of the mantissa through a plain
    sort. Numbers that differ in those bits only may come out in the wrong order: such rows, which are rare, are sorted again.
    """
    bits = np.int64((1 << (ratio.shape[-1] - 1).bit_length()) - 1)
    packed = ratio.view(np.int64) & (_POSITIVE & ~bits)  # NaN, 0/0, loses its sign and stays last
    packed |= np.arange(ratio.shape[-1])
    packed.sort(axis=-1)
    packed &= bits
    ordered = gather(ratio, packed)
    for row in np.flatnonzero((ordered[:, 1:] < ordered[:, :-1]).any(axis=-1)):
        packed[row] = np.argsort(ratio[row])
    return packed


def _scan(draft: Array, target: Array, ks: Sequence[int]) -> Array:
    if isinstance(draft, np.ndarray):
        reserve(8 * draft.size)
    with quiet():
        order = descending_ratio_order(draft, target)
        outside = running_sum(gather(draft, order))  # P(Tᶜ)
        rejected = running_sum(gather(target, order))  # Q(Tᶜ)
        return values_in_order(outside, rejected, ks)


def values_in_order(outside: Array, rejected: Array, ks: Sequence[int]) -> Array:
    """Return α*_k for each k, `(len(ks), ...)`, from running sums in descending order of q/p; call in `quiet()`."""
    xp = namespace(outside)
    gains = _worst_gains(outside, rejected, sorted(set(ks)))
    return xp.stack([1.0 - xp.clip(gains[k], 0.0, 1.0) for k in ks], axis=0)


def _worst_gains(outside: Array, rejected: Array, ks: Sequence[int]) -> dict[int, Array]:
    """Return, for each k of the ascending `ks`, max_T [b_k(T) − Q(T)]: the rejection probability of the optimum.

    With Tᶜ on the prefixes of the order, b(T) − Q(T) = (1 − C)^k + Q(Tᶜ) − 1. Arrays of 100,000 entries cost more to allocate
    than to fill (page faults), so the loop over k works in three arrays that it overwrites.
    """
    xp = namespace(outside)
    inside = 1.0 - outside
    contained, power = None, 0  # (1 − C)^power
    log_inside = None
    work = xp.empty_like(outside)
    gains = {}
    for k in ks:
        if k <= _LARGEST_MULTIPLIED_POWER:
            if contained is not None and k == power + 1:
                contained *= inside
            else:
                step = integer_power(inside, k - power)
                contained = step if contained is None else _times(contained, step)
            power = k
            gains[k] = xp.max(_sum_into(work, contained, rejected), axis=-1) - 1.0
        else:
            if log_inside is None:
                log_inside = xp.log1p(-xp.minimum(outside, xp.ones_like(outside)))
            work[...] = log_inside
            work *= k
            work = xp.exp(work)
            work += rejected
            gains[k] = xp.max(work, axis=-1) - 1.0
    return gains


def _sum_into(work: Array, left: Array, right: Array) -> Array:
    if isinstance(work, np.ndarray):
        return np.add(left, right, out=work)
    work[...] = left
    work += right
    return work


def _times(accumulator: Array, factor: Array) -> Array:
    accumulator *= factor
    return accumulator
