"""The optimal acceptance of i.i.d. drafts as a minimum along the overlap curve.

For every draft law, the best acceptance of any coupling is α* = 1 + min_T [Q(T) − b(T)] over sets T
of tokens, where b(T) is the probability that all drafts fall into T (max-flow/min-cut on the graph
from drafted sets to their tokens; docs/theory.md, "The cut formula"). For k i.i.d. drafts b(T) =
P(T)^k, and a minimising T is a *prefix* of supp p in ascending order of q/p: tokens that the draft
model overrates most come first.

The scan runs over the complements of the prefixes, from the other end of the order: with C = P(Tᶜ)
accumulated from the small side, b(T) = exp(k·log1p(−C)) keeps full accuracy where P(T) is close to
1, which is where k in the thousands looks. It looks at every prefix: in terms of the curve's level
there may be several local minima (docs/theory.md, "The overlap curve").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._arrays import (
    Array,
    clip,
    gather,
    integer_power,
    namespace,
    quiet,
    tracks_gradient,
    untracked,
)
from otm.overlap import OverlapCurve
from otm.overlap.curve import LARGEST_MULTIPLIED_POWER
from otm.overlap.gradient import attach_curve_gradient
from otm.overlap.rows import dispatch_by_length


def iid_values(draft: Array, target: Array, ks: Sequence[int]) -> Array:
    """Return α*_k = 1 + min_j [Q(T_j) − P(T_j)^k] over prefixes T_j, for each k, shape `(len(ks),
    ...)` in float64.

    Cost: on long rows three passes (`otm.overlap.rows`), else one sort, two running sums and one
    pass per k. Accuracy: that of the running sums, for every k.
    """
    if tracks_gradient(draft, target):
        # α*_k = 1 + min_λ [H(λ) − λ + (k − 1)(λ/k)^{k/(k−1)}], so that at the minimum dα* = dH at
        # fixed λ.
        values, levels = iid_values_and_levels(untracked(draft), untracked(target), ks)
        return attach_curve_gradient(values, draft, target, levels=levels)
    n = len(ks)

    def in_bins(way: Any, p: Array, q: Array) -> tuple[Array, Array]:
        found, left = way.optimum(p, q, ks)
        return found[:n, :], left

    return dispatch_by_length(in_bins, lambda curve: optimum_on_curve(curve, ks), draft, target)


def iid_values_and_levels(draft: Array, target: Array, ks: Sequence[int]) -> tuple[Array, Array]:
    """Return α*_k and the level of a cut that attains it, λ_k = k P(T)^{k−1}, for each k, both
    `(len(ks), ...)`.

    T = {q < λ p} is minimising (docs/theory.md, "The prefix property"), so the level is all that
    one needs of the search to evaluate the optimum again on fixed sets of tokens, and so its
    gradient (docs/theory.md, "Gradients").
    """
    n = len(ks)

    def in_bins(way: Any, p: Array, q: Array) -> tuple[Array, Array]:
        found, left = way.optimum(p, q, ks)
        return namespace(found).concat([found[:n, :], _levels(found[n:, :], ks)], axis=0), left

    def by_sort(curve: OverlapCurve) -> Array:
        return namespace(curve.ratio).concat(
            [optimum_on_curve(curve, ks), levels_on_curve(curve, ks)], axis=0
        )

    found = dispatch_by_length(in_bins, by_sort, draft, target)
    return found[:n, ...], found[n:, ...]


def levels_on_curve(curve: OverlapCurve, ks: Sequence[int]) -> Array:
    """Return the level λ_k = k P(T)^{k−1} of a minimising cut T for each k, `(len(ks), ...)`."""
    xp, outside = namespace(curve.above_draft), clip(curve.above_draft, 0.0, 1.0)
    chosen = []
    with quiet():
        for k in ks:
            height = xp.exp(k * xp.log1p(-outside)) + curve.above_target
            best = xp.argmax(height, axis=-1)[..., None]
            # else T = Ω
            chosen.append(xp.where(gather(height, best) > 1.0, gather(outside, best), 0.0)[..., 0])
    return _levels(xp.stack(chosen, axis=0), ks)


def _levels(outside: Array, ks: Sequence[int]) -> Array:
    """Return k P(T)^{k−1} from P of what is outside T, `(len(ks), ...)`."""
    xp = namespace(outside)
    with quiet():
        log_inside = xp.log1p(-clip(outside, 0.0, 1.0))
        return xp.stack(
            [
                k * xp.exp((k - 1) * log_inside[i, ...]) if k > 1 else xp.ones_like(outside[i, ...])
                for i, k in enumerate(ks)
            ],
            axis=0,
        )


def iid_worst_set(draft: NDArray[Any], target: NDArray[Any], k: int) -> NDArray[np.bool_]:
    """Return the minimising prefix T as a mask `(V,)`; ties go to the largest complement."""
    curve = OverlapCurve.of(draft, target)
    with quiet():
        loss = -curve.above_target - np.exp(k * np.log1p(-np.minimum(curve.above_draft, 1.0)))
    members = np.ones(len(draft), dtype=bool)
    best = int(np.argmin(loss))
    # The empty complement (T = Ω) has Q − b = 0, which in these terms is −1.
    if loss[best] < -1.0:
        members[curve.tokens[: best + 1]] = False
    return members


def optimum_on_curve(curve: OverlapCurve, ks: Sequence[int]) -> Array:
    """Return α*_k for each k, `(len(ks), ...)`."""
    xp = namespace(curve.above_draft)
    with quiet():
        gains = _worst_gains(curve.above_draft, curve.above_target, sorted(set(ks)))
    return xp.stack([1.0 - clip(gains[k], 0.0, 1.0) for k in ks], axis=0)


def _worst_gains(outside: Array, rejected: Array, ks: Sequence[int]) -> dict[int, Array]:
    """Return, for each k of the ascending `ks`, max_T [b_k(T) − Q(T)]: the rejection probability of
    the optimum.

    With Tᶜ on the prefixes of the order, C = `outside` and Q(Tᶜ) = `rejected`: b(T) − Q(T) = (1 −
    C)^k + Q(Tᶜ) − 1. Arrays of 100,000 entries cost more to allocate than to fill (page faults), so
    the loop over k works in three arrays that it overwrites.
    """
    xp = namespace(outside)
    inside = 1.0 - outside
    contained, power = None, 0  # (1 − C)^power
    log_inside = None
    work = xp.empty_like(outside)
    gains = {}
    for k in ks:
        if k <= LARGEST_MULTIPLIED_POWER:
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
