"""The overlap curve of a draft and a target, from which all results on i.i.d. drafts are read off.

For masses p (draft) and q (target) on the same tokens

    H(t) = Σ_y min(q(y), t p(y)),      t ≥ 0.

H is concave and non-decreasing, from H(0) = 0 to H(∞) = Q(supp p), and linear between neighbouring
ratios q/p: at a level t the tokens with q/p > t give t p, the others q, so that H(t) = t·P(q/p > t)
+ Q(q/p ≤ t). 1 − H(t) = Σ (q − t p)₊ is the hockey-stick divergence of the two, and every
f-divergence is an integral of it (docs/theory.md, "The overlap curve"). What k i.i.d. drafts can do
is a functional of H:

    single-draft rejection     H(1) = 1 − TV
    the optimum                1 + min_j [Q(T_j) − P(T_j)^k], T_j the tokens beyond the j-th
    that of threshold races    the same with P/(P + c (1 − P)) for P^k
    matching those             Σ q/(1 + t − H(t)) at t = q/(c p), token by token
    K-SEQ                      β(γ) = H(γ)/γ;  γ* solves 1 − (1 − β)^k = H(γ)
    recursive rejection        t₁ = 1,  t_{i+1} = t_i + 1 − H(t_i),  acceptance H(t_k)
    lenience l                 H(l)/l
    what is partly known       the same of the highest and of the lowest curve that it permits

A value H(t) is one pass over the tokens and needs no order (`overlap_at`). Roots and minima along
the curve need the tokens in the order of q/p: `OverlapCurve` sorts once and answers all of them.
Long rows are asked without a sort (`otm.overlap.rows`): exact masses of bins, and an order of the
few tokens that matter.

**The order.** Tokens are ordered by q/p here, and by the compiled loops of `otm.table` as here:
always in *descending* order, so that running sums start where k drafts look: at the tokens outside
the decisive set T. A token with p = 0 < q has ratio ∞ and comes first; one with p = q = 0 has no
mass, and ratio 0; ties keep the order of their tokens.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import (
    Array,
    clip,
    device_of,
    gather,
    integer_power,
    is_on_host,
    namespace,
    quiet,
    reserve,
    running_sum,
    to_numpy,
    total,
)

ROOM = 2.0**64
"""A factor on draft masses where a ratio must be finite: q/(2⁶⁴ p) is finite for every float p > 0,
subnormal ones included, while q/p may overflow below 5.6e-309. Orders are the same, and where q/p
meets p again the factor cancels exactly.
"""

# Bins of the ratio: read as an integer, q/p begins with its exponent and its mantissa.
NUM_BINS = 4096
RATIO_SHIFT = 47  # what is left of 52 bits of mantissa once five are kept: 32 bins to an octave
LOWEST_BIN = (1023 - 64) * 32  # the bits of 2⁻⁶⁴, where the last bin ends

LARGEST_MULTIPLIED_POWER = 64
"""Largest exponent for which (1 − C)^k is multiplied out, at a tenth of the cost of exp and log and
a loss of at most k/2 units in the last place.
"""

NEGLIGIBLE = 2.0**-56
"""A bound that exceeds the best value known, of about 1, by less is rounding."""

# K-SEQ's root: this many of Newton's steps at most, then bisection, until it moves by less.
NEWTON_STEPS, BISECTIONS, SETTLED = 16, 60, 2.0**-52

# the bits of ∞, the largest of all non-negative floats read as integers
INFINITY = np.int64(0x7FF0 << 48)
_FANOUT = 16
_LONG_ROW = 256  # one shorter row gains nothing from packing


def overlap_at(draft: Array, target: Array, level: Array | float = 1.0) -> Array:
    """Return H(t) = Σ min(q, t p) at one level of each row, without an order.

    Args:
        draft, target: masses `(..., V)`, not checked.
        level: t ≥ 0, a number or `(...)`.

    Returns:
        `(...)` in float64; at t = 1 the acceptance of single-draft rejection.

    Cost: one pass. Accuracy: that of a sum of non-negative terms, O(log V) units in the last place.
    Reference: docs/theory.md, "The overlap curve".

    >>> import numpy as np
    >>> p, q = np.array([0.75, 0.25]), np.array([0.5, 0.5])
    >>> float(overlap_at(p, q, 2.0))  # min(.5, 1.5) + min(.5, .5)
    1.0
    """
    if isinstance(draft, np.ndarray):
        reserve(2 * draft.size)
        scaled = np.multiply(
            draft, np.asarray(level, dtype=np.float64)[..., None], dtype=np.float64
        )
        return np.minimum(scaled, target, out=scaled).sum(axis=-1)
    xp = namespace(draft, target)
    p, q = xp.astype(draft, xp.float64, copy=False), xp.astype(target, xp.float64, copy=False)
    return total(xp.minimum(xp.asarray(level, dtype=xp.float64, device=p.device)[..., None] * p, q))


def ratios(draft: Array, target: Array) -> Array:
    """Return q/p elementwise in float64: ∞ where p = 0 < q, 0 where both are 0."""
    if isinstance(draft, np.ndarray) and isinstance(target, np.ndarray):
        with quiet():
            quotient = np.divide(target, draft, dtype=np.float64)
            return np.fmax(quotient, 0.0, out=quotient)  # 0 where NaN
    xp = namespace(draft, target)
    quotient = xp.astype(target, xp.float64, copy=False) / xp.astype(draft, xp.float64, copy=False)
    if array_api_compat.is_torch_array(quotient):
        # a twentieth of the time of a where
        return quotient.nan_to_num(nan=0.0, posinf=float("inf"))
    return xp.where(xp.isnan(quotient), xp.zeros_like(quotient), quotient)


def descending(draft: Array, target: Array) -> Array:
    """Return the tokens `(..., V)` in descending order of q/p, by the module's convention for 0/0,
    ∞ and ties.
    """
    return _sort(ratios(ROOM * draft, target))


def ascending(draft: Array, target: Array) -> Array:
    """Return the tokens in ascending order of q/p: massless targets first, undraftable tokens
    last.
    """
    return namespace(draft, target).flip(descending(draft, target), axis=-1)


def drafted_ascending(
    draft: NDArray[np.floating], target: NDArray[np.floating]
) -> NDArray[np.int64]:
    """Return the tokens of supp p in ascending order of q/p; one row `(V,)` each."""
    if draft.min() > 0:
        return np.asarray(ascending(draft, target))
    drafted = np.flatnonzero(draft > 0)
    return np.asarray(drafted[ascending(draft[drafted], target[drafted])], dtype=np.int64)


@dataclasses.dataclass(frozen=True, eq=False)
class Piece:
    """A linear piece of each curve, H(t) = slope·t + offset for low ≤ t ≤ high; all of one shape.

    Attributes:
        num_beyond: how many tokens have q/p ≥ high.
        low, high: its ends, neighbouring ratios; 0 below the smallest, ∞ above the largest.
        slope: P of the tokens with q/p ≥ high.
        offset: Q of the tokens with q/p ≤ low.
    """

    num_beyond: Array
    low: Array
    high: Array
    slope: Array
    offset: Array


class Curve(abc.ABC):
    """The interface of curves H(t) for K-SEQ and recursive rejection, finite or not."""

    @property
    @abc.abstractmethod
    def total_target(self) -> Array:
        """Q(Ω) summed in floating point, `(...)`: 1 up to rounding."""

    @abc.abstractmethod
    def at(self, level: Array | float) -> Array:
        """Return H(t) at one level of each row `(...)`, or at several `(n, ...)`."""

    @abc.abstractmethod
    def piece(self, beyond: Callable[[Array, Array, Array], Array], *, like: Array) -> Piece:
        """Return the linear piece on which a condition ends that holds from some level up.

        Args:
            beyond: `beyond(level, slope, offset)` of arrays `(m, n, ...)`: whether the level lies
                beyond the place that is looked for. H(level) = slope·level + offset. It must hold
                for ∞ if for any level, and fail below a level where it fails; what it says at level
                ∞ must not depend on H, which is no number there if slope = 0.
            like: an array `(n, ...)`, n questions for each row: the shape of the answer.

        Returns:
            Piece of arrays `(n, ...)`.
        """


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class OverlapCurve(Curve):
    """The tokens of each row in descending order of q/p, with running sums from both ends.

    Args:
        draft, target: masses `(..., V)`, NumPy or torch, float32 or float64, not checked and not
            kept in order.
        quotient: q/p of each token, `(..., V)` in float64.
        tokens: `(..., V)` in descending order of q/p, ties in the order of tokens.

    Cost: one sort; each running sum one pass, when it is first asked for. Accuracy: a running sum
        of V masses errs by 256 + V/256 units of roundoff at worst (8.4e-14 at V = 128,256),
        relative to itself: its terms are non-negative (`otm._machine.arrays.running_sum`).

    >>> import numpy as np
    >>> curve = OverlapCurve.of(np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.3, 0.6]))
    >>> curve.tokens.tolist(), curve.at([0.0, 1.0, 3.0]).round(12).tolist()  # at 1: .1 + .3 + .2
    ([2, 1, 0], [0.0, 0.6, 1.0])
    """

    draft: Array
    target: Array
    quotient: Array
    tokens: Array

    @classmethod
    def of(cls, draft: Array, target: Array) -> OverlapCurve:
        """Sort the tokens of each row."""
        if isinstance(draft, np.ndarray):
            reserve(8 * draft.size)
        quotient = ratios(draft, target)
        return cls(draft, target, quotient, _sort(quotient))

    def in_order(self, masses: Array) -> Array:
        """Return an array over tokens `(..., V)` in the order of the curve, in float64."""
        picked = gather(masses, self.tokens)
        if isinstance(picked, np.ndarray):
            return picked.astype(np.float64, copy=False)
        return namespace(picked).astype(picked, namespace(picked).float64, copy=False)

    @functools.cached_property
    def ratio(self) -> Array:
        """q/p in the order of the curve, `(..., V)`, non-increasing."""
        return gather(self.quotient, self.tokens)

    @functools.cached_property
    def above_draft(self) -> Array:
        """P of the first j + 1 tokens of the order, `(..., V)`."""
        return running_sum(self.in_order(self.draft))

    @functools.cached_property
    def above_target(self) -> Array:
        """Q of the first j + 1 tokens of the order, `(..., V)`."""
        return running_sum(self.in_order(self.target))

    @functools.cached_property
    def below_target(self) -> Array:
        """Q of the tokens after the j-th, `(..., V)`, accumulated from the other end."""
        xp = namespace(self.target)
        backwards = running_sum(
            xp.astype(gather(self.target, xp.flip(self.tokens, axis=-1)), xp.float64, copy=False)
        )
        inclusive = xp.flip(backwards, axis=-1)
        return xp.concat([inclusive[..., 1:], xp.zeros_like(inclusive[..., :1])], axis=-1)

    @functools.cached_property
    def total_target(self) -> Array:
        """Q(Ω) summed in floating point, `(...)`: 1 up to rounding."""
        return total(self.target)

    def piece(self, beyond: Callable[[Array, Array, Array], Array], *, like: Array) -> Piece:
        """Return the piece between two ratios of tokens.

        Cost: log₁₆ V rounds on arrays of 15·n·rows elements.
        """
        return find_piece(
            self.ratio, self.above_draft, self.below_target, self.total_target, beyond, like=like
        )

    def at(self, level: Array | float) -> Array:
        """Return H(t) from the running sums, at one level of each row or at several.

        Args:
            level: `(...)`, or `(n, ...)` for n levels of each row; a number is for all rows.
        """
        xp, shape = namespace(self.ratio), tuple(self.ratio.shape[:-1])
        t = xp.asarray(level, dtype=xp.float64, device=device_of(self.ratio))
        several = t.ndim > len(shape)
        t = (
            t
            if several
            else (t + xp.zeros(shape, dtype=xp.float64, device=device_of(self.ratio)))[None, ...]
        )
        piece = self.piece(lambda ratio, _slope, _offset: ratio > t, like=t)
        height = piece.slope * t + piece.offset
        return height if several else height[0, ...]

    def __repr__(self) -> str:
        return f"OverlapCurve(shape={tuple(self.ratio.shape)})"


def find_piece(
    ratio: Array,
    above_draft: Array,
    below_target: Array,
    whole: Array,
    beyond: Callable[[Array, Array, Array], Array],
    *,
    like: Array,
) -> Piece:
    """Return the linear piece on which a condition ends, of tokens or of bins in descending order
    (`OverlapCurve.piece`).

    Args:
        ratio, above_draft, below_target: `(..., n)`: levels, non-increasing; P up to each, with it;
            Q after it.
        whole: Q(Ω), `(...)`.
        beyond, like: as there.
    """
    xp, width = namespace(ratio), int(ratio.shape[-1])
    sums = [xp.reshape(sums, (-1,)) for sums in (ratio, above_draft, below_target)]
    num_rows = int(sums[0].shape[0]) // width
    shape = tuple(like.shape[1:])
    rows = xp.reshape(
        xp.arange(num_rows, dtype=xp.int64, device=device_of(ratio)) * width, (1, *shape)
    )

    def look_up(token: Array) -> tuple[Array, Array, Array]:
        index = xp.reshape(clip(token, 0, width - 1) + rows, (-1,))
        level, slope, offset = (
            xp.reshape(xp.take(a, index, axis=0), tuple(token.shape)) for a in sums
        )
        return level, slope, offset

    count = xp.zeros(tuple(like.shape), dtype=xp.int64, device=device_of(ratio))
    # By digits: 15 places of every stretch at once instead of halving it; on scalars a call costs
    # more than its arithmetic.
    digits = xp.reshape(
        xp.arange(1, _FANOUT, dtype=xp.int64, device=device_of(ratio)),
        (-1, *(1,) * len(count.shape)),
    )
    stretch = _FANOUT ** len(f"{width:x}")
    with quiet():
        while stretch > 1:
            stretch //= _FANOUT
            last = count[None, ...] + stretch * digits - 1
            count = count + stretch * xp.sum(
                xp.astype((last < width) & beyond(*look_up(last)), xp.int64), axis=0
            )
        low = look_up(count)[0]
        high, slope, offset = look_up(count - 1)
    nothing = xp.zeros_like(slope)
    return Piece(
        num_beyond=count,
        low=xp.where(count < width, low, nothing),
        high=xp.where(count > 0, high, nothing + xp.inf),
        slope=xp.where(count > 0, slope, nothing),
        offset=xp.where(count > 0, offset, nothing + whole),
    )


class Containment(NamedTuple):
    """The containment b(C) = ((1 − C)/(1 + (c − 1) C))^k, Pr(all drafts lie in a set) with mass C
    outside.

    k i.i.d. drafts have c = 1, a threshold race has k = 1. b is convex in C.
    """

    c: float = 1.0
    k: int = 1

    @property
    def steepest(self) -> float:
        """The slope of b in the mass inside at C = 0, the largest slope."""
        return self.c * self.k

    def of(self, outside: Array) -> Array:
        """Return b(C) for masses C in [0, 1]."""
        return ((1.0 - outside) / (1.0 + (self.c - 1.0) * outside)) ** self.k

    def logarithm(self, outside: Array) -> Array:
        """Return log b(C) for masses C in [0, 1], −∞ at C = 1; both terms have one sign."""
        xp = namespace(outside)
        return self.k * (xp.log1p(-outside) - xp.log1p((self.c - 1.0) * outside))

    def gained(self, outside: Array, mass: Array) -> Array:
        """Return the fall of b when `mass` more is outside, up to 1 in all."""
        xp, late = namespace(outside), (self.c - 1.0) * mass / (1.0 + (self.c - 1.0) * outside)
        left = 1.0 - outside
        share = xp.where(left > mass, mass / left, xp.ones_like(left))
        fall = -xp.expm1(self.k * (xp.log1p(-share) - xp.log1p(late)))
        return xp.where(left > 0, xp.exp(self.logarithm(outside)) * fall, xp.zeros_like(left))

    def slope(self, outside: Array) -> Array:
        """Return the slope of b in the mass inside."""
        at_once = self.c / (1.0 + (self.c - 1.0) * outside) ** 2
        return self.k * Containment(self.c, self.k - 1).of(outside) * at_once


def containments(
    outside: Array, sizes: Sequence[Containment]
) -> Iterator[tuple[Containment, Array]]:
    """Yield each distinct size with b(C) of the masses C outside, up to rounding.

    Each yielded array is overwritten on the next step.
    """
    ascending = sorted(set(sizes))
    for k, power in powers_of_rest(outside, [size.k for size in ascending if size.c == 1.0]):
        yield Containment(k=k), power
    for size in ascending:
        if size.c > 1.0:
            yield size, size.of(clip(outside, 0.0, 1.0))


def powers_of_rest(mass: Array, ks: Sequence[int]) -> Iterator[tuple[int, Array]]:
    """Yield (k, (1 − C)^k) for ascending k from masses C in [0, 1] up to rounding, each power made
    from the one before.

    Multiplied out, k/2 units in the last place are lost at most. What is yielded is overwritten on
    the next step.
    """
    xp, rest = namespace(mass), clip(1.0 - mass, 0.0, 1.0)
    power, reached = rest + 0.0, 1
    for k in ks:
        if k > LARGEST_MULTIPLIED_POWER:
            yield k, xp.exp(k * xp.log1p(-clip(mass, 0.0, 1.0)))
        else:
            if k > reached:
                power *= rest if k == reached + 1 else integer_power(rest, k - reached)
                reached = k
            yield k, power


def _sort(ratio: Array) -> Array:
    """Return the descending order of each row of ratios."""
    if isinstance(ratio, np.ndarray):
        return (
            _sort_packed(ratio)
            if ratio.ndim > 1 or len(ratio) >= _LONG_ROW
            else (-ratio).argsort(kind="stable")
        )
    xp = namespace(ratio)
    if is_on_host(ratio):  # NumPy's sort is several times as fast as others on the host
        return xp.asarray(_sort_packed(np.ascontiguousarray(to_numpy(ratio))))
    return xp.argsort(ratio, axis=-1, descending=True, stable=True)


def _sort_packed(ratio: NDArray[np.float64]) -> NDArray[np.int64]:
    """Sort rows of non-negative numbers in descending order, in half the time of an argsort.

    Read as integers, non-negative floats keep their order, so the index can ride in the last bits
    of the mantissa through a plain sort. Numbers that differ in those bits only may come out in the
    wrong order: rows in which they do are sorted again.
    """
    width = ratio.shape[-1]
    bits = np.int64((1 << (width - 1).bit_length()) - 1)
    packed = INFINITY - ratio.view(np.int64)
    packed &= ~bits
    packed |= np.arange(width)
    packed.sort(axis=-1)
    rows, keys = ratio.reshape(-1, width), packed.reshape(-1, width)
    # neighbours that differ in the index alone
    close = np.flatnonzero(((keys[:, 1:] ^ keys[:, :-1]) <= bits).any(axis=-1))
    packed &= bits
    for row in close:
        ordered = rows[row][keys[row]]
        if (ordered[1:] > ordered[:-1]).any():
            keys[row] = (-rows[row]).argsort(kind="stable")
    return packed
