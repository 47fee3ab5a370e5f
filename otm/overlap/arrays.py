r"""The overlap curve without a sort, as array operations: for devices, or without numba.

As in the compiled form (`otm.overlap.compiled`) the leading bits of q/p, read as an integer, are a
bin's number: the exponent and five bits of the mantissa. One pass adds p and q up by bin, and
running sums over the bins give H exactly at every edge. A question is then open inside one or two
bins only; their tokens are listed, put in order, and join the masses of the bins before them:

* the optimum is a maximum over the edges and over every prefix that ends inside a bin which a bound
  does not rule out;
* K-SEQ's γ* lies in the bin at whose edges its condition changes, and there between two
  neighbouring ratios.

**Shapes do not depend on the data**, so that nothing here waits for a device: a row has room for
`V // _MOST_IN_ORDER` tokens in order. A row that needs more (all ratios alike to five bits but not
equal, or many minima) is marked, and left to the caller.

**Accuracy.** Each bin is summed in `_STRANDS` strands of every row, so that no sum has more than
V/16 terms one after another; in strands a device's atomic additions hardly wait for each other,
too. docs/theory.md, "Accuracy", has the bound.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np

from otm._machine.arrays import (
    Array,
    clip,
    device_of,
    gather,
    histogram,
    namespace,
    quiet,
    running_sum,
    total,
    true_places,
)
from otm.overlap.curve import (
    LOWEST_BIN,
    NEGLIGIBLE,
    NUM_BINS,
    RATIO_SHIFT,
    Containment,
    Piece,
    containments,
    find_piece,
    ratios,
)

_HIGHEST = LOWEST_BIN + NUM_BINS - 1  # bins are counted from the largest ratios
_STRANDS = 16
_MOST_IN_ORDER = 8  # at most one in so many tokens is put in order


def optimum(p: Array, q: Array, sizes: Sequence[Containment]) -> tuple[Array, Array]:
    """Return α* and then, in as many rows again, P of the tokens outside a minimising set, and a
    mask of the rows left to the caller.

    Args:
        p, q: rows `(rows, V)` in float64.
        sizes: how many drafts.

    Returns:
        `(2 len(sizes), rows)` and `(rows,)`.
    """
    xp, bins = namespace(p, q), _Bins.of(p, q)
    low, high = _ends(p)
    wanted = xp.zeros(bins.draft.shape, dtype=xp.bool, device=device_of(p))
    best: dict[Containment, tuple[Array, Array]] = {}
    with quiet():
        for size, power in containments(bins.above_draft, sizes):
            edges = power + bins.above_target
            # Within a bin D lies below the lines through its two ends, and b is convex. No cut is
            # at a ratio beyond k or c, so none ends inside the first bin.
            line = xp.where(xp.isfinite(high), high * bins.draft, bins.target)
            from_above = power[:, 1:] + bins.above_target[:, :-1] + line
            from_below = edges[:, :-1] + bins.target - low * bins.draft
            # the first edge is T = Ω: 1, and nothing outside
            best[size] = _largest(edges, bins.above_draft)
            wanted = wanted | (
                xp.minimum(from_above, from_below) > (best[size][0] + NEGLIGIBLE)[:, None]
            )
        some = bins.in_order(wanted)
        for size, power in containments(some.above_draft, sizes):
            inside = xp.where(some.live, power + some.above_target, 0.0)
            (value, outside), other = best[size], _largest(inside, some.above_draft)
            best[size] = xp.maximum(value, other[0]), xp.where(other[0] > value, other[1], outside)
    values = [1.0 - clip(best[size][0] - 1.0, 0.0, 1.0) for size in sizes]
    return xp.stack(values + [best[size][1] for size in sizes], axis=0), some.left


def _largest(values: Array, beside: Array) -> tuple[Array, Array]:
    """Return the largest value of each row, and the entry of another array at the same place."""
    at = namespace(values).argmax(values, axis=-1)[..., None]
    return gather(values, at)[..., 0], gather(beside, at)[..., 0]


def piece(
    p: Array, q: Array, beyond: Callable[[Array, Array, Array], Array], *, like: Array
) -> tuple[Piece, Array]:
    """Return the piece of each curve on which a condition ends (`OverlapCurve.piece`), and a mask
    of the rows left to the caller.

    Of `num_beyond` it is right whether it is 0.
    """
    xp, bins, whole = namespace(p, q), _Bins.of(p, q), total(q)
    low, _ = _ends(p)
    edges = low + xp.zeros_like(bins.draft)
    coarse = find_piece(edges, bins.above_draft[:, 1:], bins.below_target, whole, beyond, like=like)
    numbers = xp.arange(NUM_BINS, dtype=xp.int64, device=device_of(p))
    some = bins.in_order(xp.any(coarse.num_beyond[..., None] == numbers, axis=0))
    fine = find_piece(some.ratio, some.above_draft, some.below_target, whole, beyond, like=like)
    nearer = fine.high < coarse.high
    beyond_edge = gather(
        bins.above_draft + bins.above_target, xp.permute_dims(coarse.num_beyond, (1, 0))
    )
    found = Piece(
        num_beyond=xp.astype((xp.permute_dims(beyond_edge, (1, 0)) > 0) | nearer, xp.int64),
        low=xp.maximum(coarse.low, fine.low),
        high=xp.minimum(coarse.high, fine.high),
        slope=xp.where(nearer, fine.slope, coarse.slope),
        offset=xp.where(nearer, fine.offset, coarse.offset),
    )
    return found, some.left


@dataclasses.dataclass(frozen=True, eq=False)
class _Listed:
    """The tokens of chosen bins in descending order of q/p, `(rows, room)`, with the masses up to
    and beyond each.

    Attributes:
        live: whether the place holds a token; those that do come first.
        ratio: q/p, −1 where no token is.
        above_draft, above_target: P and Q of this token and all before it, listed or not.
        below_target: Q of all after it.
        left: `(rows,)`: the row had no room for all.
    """

    live: Array
    ratio: Array
    above_draft: Array
    above_target: Array
    below_target: Array
    left: Array


@dataclasses.dataclass(frozen=True, eq=False)
class _Bins:
    """Rows in bins, from the largest ratios to the smallest.

    Attributes:
        ratio: q/p of each token `(rows, V)`.
        place: its bin.
        draft, target: P and Q of each bin, `(rows, bins)`.
    """

    p: Array
    q: Array
    ratio: Array
    place: Array
    draft: Array
    target: Array

    @classmethod
    def of(cls, p: Array, q: Array) -> _Bins:
        """Sort the tokens into bins and sum each bin."""
        xp, ratio = namespace(p, q), ratios(p, q)
        bits = ratio.view(xp.int64) >> RATIO_SHIFT
        bits *= -1
        bits += _HIGHEST
        place = clip(bits, 0, NUM_BINS - 1)
        return cls(p, q, ratio, place, *(_sums(place, masses) for masses in (p, q)))

    @functools.cached_property
    def above_draft(self) -> Array:
        """P of the first j bins, `(rows, bins + 1)`."""
        return _edges(self.draft)

    @functools.cached_property
    def above_target(self) -> Array:
        """Q of the first j bins, `(rows, bins + 1)`."""
        return _edges(self.target)

    @functools.cached_property
    def below_target(self) -> Array:
        """Q of the bins after the j-th, `(rows, bins)`, accumulated from the other end."""
        return _after(self.target)

    def in_order(self, chosen: Array) -> _Listed:
        """List the tokens of the chosen bins `(rows, bins)` in order."""
        xp, width = namespace(self.p), int(self.p.shape[-1])
        flags = gather(chosen, self.place)
        places, left = true_places(flags, width // _MOST_IN_ORDER)
        ratio = xp.where(places < width, gather(self.ratio, clip(places, 0, width - 1)), -1.0)
        order = xp.argsort(-ratio, axis=-1, stable=True)
        places, ratio = gather(places, order), gather(ratio, order)
        live, places = places < width, clip(places, 0, width - 1)
        draft, target = (xp.where(live, gather(masses, places), 0.0) for masses in (self.p, self.q))
        place = gather(self.place, places)
        # The tokens listed, and all bins beside theirs: sums of non-negative terms both.
        beside_draft, beside_target = (
            xp.where(chosen, 0.0, masses) for masses in (self.draft, self.target)
        )
        return _Listed(
            live=live,
            ratio=ratio,
            above_draft=running_sum(draft + 0.0) + gather(_edges(beside_draft), place),
            above_target=running_sum(target + 0.0) + gather(_edges(beside_target), place),
            below_target=_after(target) + gather(_after(beside_target), place),
            left=left,
        )


def _sums(place: Array, masses: Array) -> Array:
    """Return the sum of each bin, `(rows, bins)`, from `_STRANDS` sums."""
    xp, (rows, width) = namespace(masses), masses.shape
    whole = width - width % _STRANDS
    strands = [xp.reshape(a[:, :whole], (rows, _STRANDS, -1)) for a in (place, masses)]
    sums = xp.sum(histogram(strands[0], strands[1], NUM_BINS), axis=1)
    return (
        sums if whole == width else sums + histogram(place[:, whole:], masses[:, whole:], NUM_BINS)
    )


def _edges(sums: Array) -> Array:
    """Return 0 and the running sums, `(rows, bins + 1)`."""
    xp = namespace(sums)
    return xp.concat([xp.zeros_like(sums[:, :1]), running_sum(sums + 0.0)], axis=-1)


def _after(sums: Array) -> Array:
    """Return the sums of the later entries for each entry, from the other end."""
    xp = namespace(sums)
    return xp.flip(_edges(xp.flip(sums, axis=-1))[:, :-1], axis=-1)


def _ends(like: Array) -> tuple[Array, Array]:
    """Return the least and the largest ratio of each bin, `(bins,)`: the last bin begins at 0, the
    first ends at ∞.
    """
    xp = namespace(like)
    number = np.arange(_HIGHEST, _HIGHEST - NUM_BINS, -1)
    low = (1.0 + (number & 31) / 32.0) * 2.0 ** ((number >> 5) - 1023.0)
    ends = xp.asarray(
        np.stack([np.append(low[:-1], 0.0), np.append(np.inf, low[:-1])]), device=device_of(like)
    )
    return ends[0, :], ends[1, :]
