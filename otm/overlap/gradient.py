"""Gradients along the overlap curve, where H at a fixed level sums p and q over fixed tokens.

The optimum and most acceptances of i.i.d. drafts are functionals of H(t) = Σ min(q, t p), read at
levels that a search finds. To first order

    dH(t) = Σ_{q < t p} dq + t Σ_{q ≥ t p} dp + P(q ≥ t p) dt,

so that a gradient is a weighted sum of such terms at fixed levels, O(V) for each. Where the level
minimises (the optimum) dt counts nothing: that is the envelope theorem. Where it solves an equation
(K-SEQ) or follows from other levels (recursive rejection) dt is the implicit function theorem's or
the recursion's, a number for each row (docs/theory.md, "Gradients").

The search runs without gradients, as it does for any array. Nothing here is about one kind of
array: the sums are arithmetic, which a library that differentiates its arrays (torch)
differentiates by itself.

*Ties.* At q = t p the minimum has a kink. Here such a token counts with t p: a choice among the
derivatives from the two sides, and so a member of Clarke's generalised gradient.
"""

from __future__ import annotations

from otm._machine.arrays import Array, namespace, untracked, with_gradient


def attach_curve_gradient(
    values: Array,
    draft: Array,
    target: Array,
    *,
    levels: Array | float,
    weights: Array | float = 1.0,
) -> Array:
    """Return values with the gradient of weights · H(levels) at fixed levels and weights.

    Args:
        values: answers `(n, ...)`.
        draft, target: masses `(..., V)`.
        levels, weights: `(n, ...)` each; a number stands for all.

    Returns:
        `(n, ...)`.

    Cost: that of `height_and_slope`, n times.
    """
    xp = namespace(values)
    number, zeros = int(values.shape[0]), xp.zeros_like(values)
    at, times = levels + zeros, weights + zeros
    heights = [
        times[i, ...] * height_and_slope(draft, target, at[i, ...])[0] for i in range(number)
    ]
    return with_gradient(values, xp.stack(heights, axis=0))


def height_and_slope(draft: Array, target: Array, level: Array) -> tuple[Array, Array]:
    """Return H(t) at fixed levels, with gradients to draft and target, and H′(t) = P(q ≥ t p),
    without.

    Args:
        draft, target: masses `(..., V)`.
        level: t ≥ 0 `(...)`, finite; where they come from is not differentiated.

    Returns:
        `(...)` twice, in float64. The sums run in the precision of the masses: they are for
        gradients.

    Cost: a few passes, and one again for each gradient, which keeps an indicator of the tokens.

    >>> import numpy as np
    >>> height_and_slope(np.array([0.75, 0.25]), np.array([0.5, 0.5]), np.array(1.0))  # .5 + .25
    (np.float64(0.75), np.float64(0.25))
    """
    xp, p, q = namespace(draft, target), untracked(draft), untracked(target)
    t = xp.astype(untracked(level), p.dtype)
    above = q >= t[..., None] * p
    # Products with indicators: their gradients are these, times a number for each row.
    beyond = xp.sum(xp.astype(above, p.dtype) * draft, axis=-1)
    height = t * beyond + xp.sum(xp.astype(~above, p.dtype) * target, axis=-1)
    return xp.astype(height, xp.float64), xp.astype(untracked(beyond), xp.float64)
