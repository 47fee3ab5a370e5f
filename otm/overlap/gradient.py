"""Gradients along the overlap curve: once a level is found, H at that level is a sum of p and q over fixed sets of tokens.

What i.i.d. drafts can do is a functional of H(t) = Σ min(q, t p), read at levels that a search finds. To first order

    dH(t) = Σ_{q < t p} dq + t Σ_{q ≥ t p} dp + P(q ≥ t p) dt,

so that a gradient is a weighted sum of such terms at fixed levels, O(V) for each. Where the level minimises (the optimum) dt counts
nothing: that is the envelope theorem. Where it solves an equation (K-SEQ) or follows from other levels (recursive rejection) dt is
the implicit function theorem's or the recursion's, a number for each row (docs/theory.md, "Gradients").

The search runs without gradients, as it does for any array. Nothing here is about one kind of array: the sums are arithmetic, which
a library that differentiates its arrays (torch) differentiates by itself.

*Ties.* At q = t p the minimum has a kink. Here such a token counts with t p: a choice among the derivatives from the two sides, and
so a member of Clarke's generalised gradient.
"""

from __future__ import annotations

from otm._arrays import Array, namespace, total, untracked, with_gradient


def along_curve(values: Array, draft: Array, target: Array, *, levels: Array | float, weights: Array | float = 1.0) -> Array:
    """Return the values with the gradient to draft and target that weights · H(levels) has at fixed levels and weights.

    Args:
        values: answers `(n, ...)`.
        draft, target: masses `(..., V)`.
        levels, weights: `(n, ...)` each; a number stands for all.

    Returns:
        `(n, ...)`.

    Cost: that of `height_at`, n times.
    """
    xp = namespace(values)
    number, zeros = int(values.shape[0]), xp.zeros_like(values)
    levels, weights = levels + zeros, weights + zeros
    heights = [weights[i, ...] * height_at(draft, target, levels[i, ...]) for i in range(number)]
    return with_gradient(values, xp.stack(heights, axis=0))


def height_at(draft: Array, target: Array, level: Array) -> Array:
    """Return H(t) at fixed levels, with gradients to draft and target.

    Args:
        draft, target: masses `(..., V)`.
        level: t ≥ 0 `(...)`, finite; where they come from is not differentiated.

    Returns:
        `(...)` in float64, summed in the precision of the masses: it is for its gradient.

    Cost: a pass, and one again for the gradient, which keeps a byte for each token.

    >>> import numpy as np
    >>> float(height_at(np.array([0.75, 0.25]), np.array([0.5, 0.5]), np.array(1.0)))  # .5 + .25
    0.75
    """
    xp = namespace(draft, target)
    raised = xp.astype(untracked(level), draft.dtype)[..., None] * draft
    below = untracked(target) < untracked(raised)
    return xp.astype(xp.sum(xp.where(below, target, raised), axis=-1), xp.float64)


def slope_at(draft: Array, target: Array, level: Array) -> Array:
    """Return H′(t) = P(q ≥ t p) at levels `(...)`, without gradients; see `height_at`."""
    xp, p, q = namespace(draft, target), untracked(draft), untracked(target)
    below = q < xp.astype(untracked(level), p.dtype)[..., None] * p
    return total(xp.where(below, xp.zeros_like(p), p))
