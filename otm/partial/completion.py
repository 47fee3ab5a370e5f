"""The closest and the furthest completion of two partly known distributions.

Everything asked here of a pair (p, q) depends on it through its *overlap curve* H(t) = Σ_x
min(q(x), t p(x)), t ≥ 0, and is monotone in it: Σ min = H(1), the optimum α*_k, K-SEQ at γ*, every
f-divergence. Among all completions of two lists of top tokens one has the highest curve everywhere
and one the lowest (docs/theory.md, "Partial knowledge"), so two completions answer every question
at once, and both ends of every interval are attained.

*Closest.* One level ρ: a token known only to the draft gets q = min(ρp, cap), one known only to the
target p = min(q/ρ, cap), and the tokens known to neither share what is left of both tails at the
ratio ρ. Where they cannot, because V leaves too few of them or one tail is used up, the two kinds
of tokens stop at levels of their own.

*Furthest.* The tails avoid each other: p's tail takes as few tokens as its cap permits, q's tail
others. Only if V leaves too few tokens do they overlap: first on tokens known to neither, then p's
tail on the target's tokens of least q, and q's on the draft's.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from otm._machine.arrays import Floats, quiet
from otm.drafts.base import Law
from otm.errors import InvalidParameter
from otm.partial.top import (
    ListedSide,
    ListedTokens,
    Mask,
    TopTokens,
    check_pair_sizes,
    match_lists,
)
from otm.problem import Problem

# Twelve halvings of the exponent's range 2^±1000 leave a factor 2; 54 halvings of that leave the
# last place.
_EXPONENT_STEPS, _MANTISSA_STEPS = 12, 54
_LOWEST, _HIGHEST = 2.0**-1000, 2.0**1000
_DUST = 2.0**-52
# A tail that passes a whole number of caps by less than this part of a cap fills that many: its
# sum is rounded.
_TIE = 2.0**-40


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Completion:
    """One completion, in which unlisted tokens of one ratio form a lump.

    Attributes:
        draft, target: `(..., W)`, distributions on the listed tokens (the draft's, then the
            target's; a token in both lists stands at its place in the draft's) followed by lumps.
        count: `(..., W)`, how many tokens share the entry's mass equally; 0 for entries without
            meaning.
        is_extreme: `(...)`, whether its overlap curve bounds those of all completions and is one of
            them. Always for the closest; for the furthest unless tokens ran out in a row that lists
            tokens less likely than the cap.
    """

    draft: Floats
    target: Floats
    count: Floats
    is_extreme: Mask

    def __repr__(self) -> str:
        return f"Completion(shape={self.draft.shape}, is_extreme={self.is_extreme!s})"

    def problem(self, law: Law) -> Problem:
        """Return the completion as a problem under a draft law, with lumps as tokens."""
        return Problem(draft=self.draft, target=self.target, law=law)


@dataclasses.dataclass(frozen=True, eq=False, init=False, repr=False)
class PartialPair:
    """A draft and a target with only the likely tokens known, at the same positions.

    Args:
        draft, target: what is known of p and of q, of the same batch shape; the listed tokens may
            differ.
        num_tokens: V if known. It limits how disjoint the tails can be, which raises lower ends on
            flat distributions; with None there may be any number of further tokens.

    Raises:
        ShapeMismatch: if the batch shapes differ.
        InvalidParameter: if V is not above every listed token, or below the number of listed
            tokens.
        InvalidDistribution: if V tokens cannot hold a tail under its cap.

    Cost: O(m log m) per row. NumPy only.

    >>> draft = TopTokens(tokens=[0, 1], probabilities=[0.5, 0.25])
    >>> target = TopTokens(tokens=[0, 2], probabilities=[0.25, 0.25])
    >>> pair = PartialPair(draft=draft, target=target)
    >>> pair.batch_shape
    ()
    """

    draft: TopTokens
    target: TopTokens
    num_tokens: int | None
    layout: ListedTokens

    def __init__(
        self, *, draft: TopTokens, target: TopTokens, num_tokens: int | None = None
    ) -> None:
        for name, side in (("draft", draft), ("target", target)):
            if not isinstance(side, TopTokens):
                raise InvalidParameter(
                    f"{name} must be an otm.partial.TopTokens; got {type(side).__name__}. Call "
                    "otm.partial.TopTokens.of."
                )
        size = check_pair_sizes(draft, target, num_tokens)
        layout = match_lists(draft, target, size)
        vars(self).update(draft=draft, target=target, num_tokens=size, layout=layout)

    def __repr__(self) -> str:
        return f"PartialPair(shape={self.batch_shape}, num_tokens={self.num_tokens})"

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The leading axes; `()` for one position."""
        return self.draft.batch_shape

    @property
    def shifts(self) -> tuple[Floats, Floats]:
        """Bounds on the total variation of both models to the nearest completion, `(...)`."""
        draft, target = (
            side.shift.reshape(self.batch_shape) for side in (self.layout.draft, self.layout.target)
        )
        return draft, target

    @functools.cached_property
    def closest(self) -> Completion:
        """The completion with the highest overlap curve: most acceptance, least divergence.

        Cost: O(m) per row and step, 66 steps, once.
        Accuracy: its level ρ to the last place.
        """
        known = self.layout
        apart = _shares(known)
        listed, needed = [], []
        with quiet():
            for (own, other), mass in zip(known.sides, apart, strict=True):
                listed.append(own.mass + _fill(other.mass, other.alone, own.cap, own.tail - mass))
                needed.append(np.where(mass > 0, np.ceil(mass / own.cap), 0.0))
        count = np.where(np.isfinite(known.spare), known.spare, np.maximum(*needed))
        lump = np.stack([*apart, count], axis=1)[:, None]
        return _completion(self.batch_shape, listed, lump, np.ones(len(count), dtype=bool))

    @functools.cached_property
    def furthest(self) -> Completion:
        """The completion with the lowest overlap curve: least acceptance, most divergence.

        Where tokens run out in a row that lists tokens below the cap (the sampled token, say),
        those are forgotten first: the curve is then a lower bound that need not be attained. Cost:
        O(m log m) per row, once.
        """
        with quiet():
            crowded = _tokens_needed(self.layout) > self.layout.spare
            whole = ~(crowded & _below_cap(self.layout).any(axis=1))
            known = _forget(self.layout, crowded)
            crowded = _tokens_needed(known) > known.spare
            lumps = np.where(crowded[:, None, None], _crowded_lumps(known), _free_lumps(known))
            return _completion(self.batch_shape, _spill(known, crowded), lumps, whole)


def _completion(
    shape: tuple[int, ...], listed: list[Floats], lumps: Floats, extreme: Mask
) -> Completion:
    """Join listed masses and lumps `(rows, n, 3)` of p, q and count, and restore the batch."""
    p, q = (np.concatenate([mass, lumps[..., i]], axis=1) for i, mass in enumerate(listed))
    count = np.concatenate([np.ones(listed[0].shape), lumps[..., 2]], axis=1)
    count = np.where((p > 0) | (q > 0), count, 0.0)
    wide = (*shape, p.shape[1])
    p, q = p / p.sum(axis=1, keepdims=True), q / q.sum(axis=1, keepdims=True)
    return Completion(p.reshape(wide), q.reshape(wide), count.reshape(wide), extreme.reshape(shape))


def _shares(known: ListedTokens) -> tuple[Floats, Floats]:
    """Bisect for the masses P, Q of the spare tokens at the level ρ where Q = ρP."""
    # ρP − Q never decreases in ρ.
    # Where masses of 1e-300 meet others of 1/4, the float next to ρ can be too far: P and Q are
    # then taken between their values at both ends of the last step, in the ratio ρ.
    low, high = np.full(len(known.spare), _LOWEST), np.full(len(known.spare), _HIGHEST)
    for step in range(_EXPONENT_STEPS + _MANTISSA_STEPS):
        middle = np.sqrt(low) * np.sqrt(high) if step < _EXPONENT_STEPS else 0.5 * (low + high)
        p, q = _on_spare(known, middle)
        enough = middle * p >= q
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    (least_p, most_q), (most_p, least_q) = _on_spare(known, low), _on_spare(known, high)
    p = np.minimum(np.maximum(most_q / high, least_p), most_p)
    return p, np.minimum(np.maximum(high * p, least_q), most_q)


def _on_spare(known: ListedTokens, level: Floats) -> tuple[Floats, Floats]:
    """Return the masses of p and q left for the spare tokens at level ρ `(rows,)`."""
    implied = known.target.mass / level[:, None], level[:, None] * known.draft.mass
    left = []
    for (own, other), masses in zip(known.sides, implied, strict=True):
        taken = np.minimum(masses, own.cap[:, None]).sum(axis=1, where=other.alone)
        room = np.where(own.cap > 0, known.spare * np.where(own.cap > 0, own.cap, 1.0), 0.0)
        left.append(np.minimum(np.maximum(own.tail - taken, 0.0), room))
    return left[0], left[1]


def _fill(other: Floats, free: Mask, cap: Floats, mass: Floats) -> Floats:
    """Spread `mass` as min(λ·other, cap) over the free tokens, λ from the total."""
    # What is left goes to those with other = 0.
    weights = np.where(free, other, 0.0)
    order = np.argsort(weights, axis=1)
    ascending = np.take_along_axis(weights, order, axis=1)
    smaller = np.cumsum(ascending, axis=1)  # Σ of this weight and the smaller ones
    # after a cap for each larger one
    left = np.maximum(mass[:, None] - np.arange(weights.shape[1])[::-1] * cap[:, None], 0.0)
    # Σ min(λ·w, cap) is the least, over j, of j caps and λ times the weights behind the j largest:
    # λ is the largest root. It can be beyond the largest float: roots are compared by their
    # logarithms, and the weights behind take their shares of what is left.
    level = np.where((smaller > 0) & (left > 0), np.log(left) - np.log(smaller), -np.inf)
    best = level.argmax(axis=1)[:, None]
    reached = np.take_along_axis(smaller, best, axis=1)
    share = np.where(reached > 0, ascending / reached, 0.0) * np.take_along_axis(left, best, axis=1)
    capped = (np.arange(weights.shape[1]) > best) & (mass[:, None] > 0)
    filled = np.zeros_like(weights)
    np.put_along_axis(
        filled, order, np.where(capped, cap[:, None], np.minimum(share, cap[:, None])), axis=1
    )
    filled = np.where(weights > 0, filled, 0.0)
    idle = free & (weights == 0)
    over = np.maximum(mass - filled.sum(axis=1), 0.0)
    # rounding must not put mass where the other has none
    over = np.where(over > weights.shape[1] * _DUST * mass, over, 0.0)
    share = np.where(idle.any(axis=1), over / np.maximum(idle.sum(axis=1), 1), 0.0)
    return np.where(idle, share[:, None], filled)


def _tokens_needed(known: ListedTokens) -> Floats:
    """Return the number of tokens for both tails without overlap among the unlisted, `(rows,)`."""
    return _fewest(known.draft) + _fewest(known.target)


def _fewest(side: ListedSide) -> Floats:
    """Return the least number of tokens that hold the tail under the cap, `(rows,)`."""
    return np.where(side.tail > 0, np.maximum(np.ceil(side.tail / side.cap - _TIE), 1.0), 0.0)


def _below_cap(known: ListedTokens) -> Mask:
    """Mark tokens listed by one model only, with a mass below that model's cap."""
    low_p, low_q = (side.alone & (side.mass < side.cap[:, None]) for side, _ in known.sides)
    return low_p | low_q


def _forget(known: ListedTokens, rows: Mask) -> ListedTokens:
    """Drop the listed tokens below the cap in the given rows, which widens the bounds."""
    drop = _below_cap(known) & rows[:, None]
    draft, target = (
        dataclasses.replace(
            side,
            mass=side.mass * ~drop,
            alone=side.alone & ~drop,
            tail=side.tail + side.mass.sum(axis=1, where=drop),
        )
        for side, _ in known.sides
    )
    return ListedTokens(draft=draft, target=target, spare=known.spare + drop.sum(axis=1))


def _free_lumps(known: ListedTokens) -> Floats:
    """Put each tail on separate tokens: `(rows, 5, 3)` of p-mass, q-mass, number of tokens."""
    lumps = np.zeros((len(known.spare), 5, 3))
    for i, (side, _) in enumerate(known.sides):
        lumps[:, i, i] = side.tail
        lumps[:, i, 2] = _fewest(side)
    return lumps


def _crowded_lumps(known: ListedTokens) -> Floats:
    """Fill the spare tokens with p's tail from the front and q's from the back."""
    # Each tail gives runs of full, one partly filled and empty tokens: five runs of constant (p, q)
    # between six cut points. Rows with spare tokens enough do not come here.
    spare = np.where(np.isfinite(known.spare), known.spare, 0.0)
    full_p, full_q = (
        np.where(side.tail > 0, np.floor(side.tail / side.cap), 0.0) for side, _ in known.sides
    )
    cuts = np.stack(
        [0 * spare, full_p, full_p + 1, spare - full_q - 1, spare - full_q, spare], axis=1
    )
    cuts = np.sort(np.clip(cuts, 0.0, spare[:, None]), axis=1)
    start, count = cuts[:, :-1], np.diff(cuts, axis=1)
    p = _left_after(start, known.draft.tail, known.draft.cap)
    q = _left_after(spare[:, None] - 1.0 - start, known.target.tail, known.target.cap)
    return np.stack([p * count, q * count, count], axis=2)


def _left_after(number: Floats, tail: Floats, cap: Floats) -> Floats:
    """Return the rest of a tail beyond `number` full tokens, `(rows, n)`; 0 on a tie."""
    left = np.clip(tail[:, None] - number * cap[:, None], 0.0, cap[:, None])
    return np.where((number > 0) & (left < _TIE * cap[:, None]), 0.0, left)


def _spill(known: ListedTokens, rows: Mask) -> list[Floats]:
    """Move the mass beyond the spare tokens' room to the least likely tokens of the other model."""
    spare = np.where(rows, known.spare, 0.0)
    listed = []
    for own, other in known.sides:
        over = np.where(rows, np.maximum(own.tail - spare * own.cap, 0.0), 0.0)
        over = np.where((spare > 0) & (over < _TIE * own.cap), 0.0, over)
        order = np.argsort(np.where(other.alone, other.mass, np.inf), axis=1, kind="stable")
        rank = np.argsort(order, axis=1, kind="stable").astype(np.float64)
        listed.append(own.mass + np.where(other.alone, _left_after(rank, over, own.cap), 0.0))
    return listed
