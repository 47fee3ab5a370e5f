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

from otm._arrays import Array, clip, gather, namespace, quiet, tracks_gradient, untracked
from otm.overlap import OverlapCurve
from otm.overlap.curve import powers_of_rest
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
    return _values_and_outside(draft, target, ks)[: len(ks), ...]


def iid_values_and_levels(draft: Array, target: Array, ks: Sequence[int]) -> tuple[Array, Array]:
    """Return α*_k and the level of a cut that attains it, λ_k = k P(T)^{k−1}, for each k, both
    `(len(ks), ...)`.

    T = {q < λ p} is minimising (docs/theory.md, "The prefix property"), so the level is all that
    one needs of the search to evaluate the optimum again on fixed sets of tokens, and so its
    gradient (docs/theory.md, "Gradients").
    """
    n, found = len(ks), _values_and_outside(draft, target, ks)
    inside = clip(1.0 - found[n:, ...], 0.0, 1.0)
    levels = [k * inside[i, ...] ** (k - 1) for i, k in enumerate(ks)]
    return found[:n, ...], namespace(found).stack(levels, axis=0)


def _values_and_outside(draft: Array, target: Array, ks: Sequence[int]) -> Array:
    """Return α*_k and then, in as many rows again, P of the tokens outside a minimising set."""

    def in_bins(bins: Any, p: Array, q: Array) -> tuple[Array, Array]:
        found: tuple[Array, Array] = bins.optimum(p, q, ks)
        return found

    return dispatch_by_length(in_bins, lambda curve: optimum_on_curve(curve, ks), draft, target)


def optimum_on_curve(curve: OverlapCurve, ks: Sequence[int]) -> Array:
    """Return α*_k and then, in as many rows again, P of the tokens outside a minimising set, `(2
    len(ks), ...)`.

    With Tᶜ on the prefixes of the order and C = P(Tᶜ): b(T) − Q(T) = (1 − C)^k + Q(Tᶜ) − 1.
    """
    xp, most, place = namespace(curve.above_draft), {}, {}
    height = xp.empty_like(curve.above_draft)  # a new array costs more than to fill it
    with quiet():
        for k, contained in powers_of_rest(curve.above_draft, sorted(set(ks))):
            height[...] = contained
            height += curve.above_target
            place[k] = xp.argmax(height, axis=-1)
            most[k] = gather(height, place[k][..., None])[..., 0]
    values = xp.stack([most[k] for k in ks], axis=0)
    outside = gather(curve.above_draft, xp.stack([place[k] for k in ks], axis=-1))
    # T = Ω has b − Q = 0 and nothing outside
    outside = xp.where(values > 1.0, xp.moveaxis(outside, -1, 0), xp.zeros_like(values))
    return xp.concat([1.0 - clip(values - 1.0, 0.0, 1.0), outside], axis=0)


def iid_worst_set(draft: NDArray[Any], target: NDArray[Any], k: int) -> NDArray[np.bool_]:
    """Return the minimising prefix T as a mask `(V,)`; ties go to the smallest complement."""
    curve = OverlapCurve.of(draft, target)
    with quiet():
        ((_, contained),) = powers_of_rest(curve.above_draft, [k])
    gain = contained + curve.above_target
    members, best = np.ones(len(draft), dtype=bool), int(np.argmax(gain))
    # The empty complement (T = Ω) has b − Q = 0, which in these terms is 1.
    if gain[best] > 1.0:
        members[curve.tokens[: best + 1]] = False
    return members
