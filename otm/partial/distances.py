"""Bounds on divergences over every completion, from the two extreme completions."""

from __future__ import annotations

import dataclasses

import numpy as np

from otm._machine.arrays import LEAST, UNIT_ROUNDOFF, Floats, as_scalar_or_array, quiet
from otm.divergences import harmonic_mean_distance, kl_divergence, total_variation
from otm.overlap import OverlapCurve
from otm.partial.completion import Completion, PartialPair
from otm.partial.top import Mask, TopTokens
from otm.partial.values import Interval
from otm.pmf import check_instance


@dataclasses.dataclass(frozen=True, eq=False)
class PartialDivergences:
    """Intervals of shape `(...)`.

    Attributes:
        total_variation: TV(p, q), in [0, 1].
        kl_target_draft: D(q‖p) in nats; the upper end is infinite as soon as q may have mass where
            p has none.
        kl_draft_target: D(p‖q) in nats; likewise.
        harmonic_mean: d_HM(p, q) = 1 − Σ 2pq/(p + q), in [0, 1].
    """

    total_variation: Interval
    kl_target_draft: Interval
    kl_draft_target: Interval
    harmonic_mean: Interval


def divergences(pair: PartialPair) -> PartialDivergences:
    """Bound TV, both relative entropies and the harmonic-mean distance over every completion.

    Args:
        pair: what is known of both models.

    Returns:
        Four intervals, every end attained (upper ones: see `PartialPair.furthest`). An input with
        rounding > 0, or a derived tail that cannot be told from rounding, leaves the upper ends of
        the relative entropies infinite (a token of mass 1e-9 may be missing from p) and lowers
        their lower ends to D ≥ ∫ (min(1, t) − H(t) − shift(target) − t·shift(draft))₊ dt/t, H being
        the curve of the closest completion.

    Cost: both completions, O(m log m).
    Reference: docs/theory.md, "Partial knowledge".

    >>> import otm
    >>> one = otm.partial.TopTokens(tokens=[0], probabilities=[0.5])
    >>> two = otm.partial.TopTokens(tokens=[0], probabilities=[0.75])
    >>> ends = divergences(otm.partial.PartialPair(draft=one, target=two))
    >>> kl = ends.kl_target_draft  # below, the tails are alike: ¾ log (3/2) + ¼ log (1/2)
    >>> round(kl.lower, 6), kl.upper
    (0.130812, inf)
    """
    check_instance(pair, PartialPair, name="pair")
    near, far = pair.closest, pair.furthest
    floating = 32.0 * (near.draft.shape[-1] + 16) * UNIT_ROUNDOFF
    shift = pair.shifts[0] + pair.shifts[1]
    rounded = _inexact(pair.draft, pair.num_tokens) | _inexact(pair.target, pair.num_tokens)
    pieces = {}
    for name, divergence, slack in (
        ("total_variation", total_variation, floating + shift),
        # The gradient of 2pq/(p + q) lies in [0, 2]², so moving mass ε changes the sum by at most
        # 2ε.
        ("harmonic_mean", harmonic_mean_distance, floating + 2.0 * shift),
    ):
        ends = [np.asarray(divergence(draft=c.draft, target=c.target)) for c in (near, far)]
        limits = np.clip(ends[0] - slack, 0.0, 1.0), np.clip(ends[1] + slack, 0.0, 1.0)
        pieces[name] = _packed(*limits, np.broadcast_to(slack, shift.shape), far.is_extreme)
    for name, turn in (("kl_target_draft", 1), ("kl_draft_target", -1)):
        sides = [(c.draft, c.target) if turn > 0 else (c.target, c.draft) for c in (near, far)]
        # What a tail leaves for a token may round to nothing, and then says no more than that it is
        # below its error.
        (p, q), side = sides[0], pair.layout.sides[0][::turn][0]
        at_most = _unlisted_errors(pair, near)[::turn][0] * (side.tail[:, None] > 0)
        sides[0] = np.where((p == 0) & (q > 0), at_most.reshape(p.shape), p), q
        ends = [np.asarray(kl_divergence(draft=p, target=q)) for p, q in sides]
        # Two logarithms of masses down to 5e-324 err by 746 units each, relative errors of masses
        # weigh as much.
        slack = 2.0 * floating * (1.0 + np.maximum(*(_log_size(*side) for side in sides)))
        (loss, _), (_, gain) = (_tail_rounding(pair, c, turn) for c in (near, far))
        lower, upper = np.maximum(ends[0] - slack - loss, 0.0), ends[1] + slack + gain
        slack, whole = slack + np.maximum(loss, gain), far.is_extreme & np.isfinite(gain)
        # Infinite by mass that rounding alone may have put where the other has none: as if both
        # were off by rounding.
        stray = np.isinf(ends[0]) & (
            np.where(sides[0][0] == 0, sides[0][1], 0.0).sum(axis=-1) <= floating + shift
        )
        if stray.any():
            at_least = np.broadcast_to(floating + shift, ends[0].shape)
            lower = np.where(stray, _shifted_kl(*sides[0], at_least, at_least), lower)
            slack = np.where(stray, np.inf, slack)
        if rounded.any():
            of_draft, of_target = pair.shifts[::turn]
            shifted = _shifted_kl(*sides[0], of_draft, of_target)
            lower = np.where(rounded, np.minimum(shifted, lower), lower)
            upper, whole = np.where(rounded, np.inf, upper), np.where(rounded, False, whole)
            # ∞ − ∞ where the closest completion has infinite divergence, all of which may be slack
            with quiet():
                slack = np.where(
                    rounded, np.where(np.isfinite(ends[0]), ends[0] - lower, np.inf), slack
                )
        pieces[name] = _packed(lower, upper, slack, whole)
    return PartialDivergences(**pieces)


def _unlisted_errors(pair: PartialPair, completion: Completion) -> tuple[Floats, Floats]:
    """Return the rounding errors of unlisted masses of p and of q, `(rows, W)` each."""
    # They are differences: of 1 and the listed ones, of a tail and its share elsewhere. They err
    # absolutely, by a small part of the tail and by the least float for each of its tokens.
    known, width = pair.layout, completion.draft.shape[-1]
    errors = []
    for given, side in ((pair.draft, known.draft), (pair.target, known.target)):
        least = np.where(side.tail > 0, (width + 4) * LEAST, 0.0)
        error = 4.0 * (width + 4) * UNIT_ROUNDOFF * side.tail + least + given.tail_error.reshape(-1)
        lumps = np.ones((len(error), width - side.mass.shape[1]), dtype=bool)
        unlisted = np.concatenate([side.mass == 0, lumps], axis=1)
        errors.append(np.where(unlisted, error[:, None], 0.0))
    return errors[0], errors[1]


def _tail_rounding(pair: PartialPair, completion: Completion, turn: int) -> tuple[Floats, Floats]:
    """Return bounds on the loss and gain of a relative entropy by rounding of the tails `(...)`."""
    # That is q log(1 ± ε/p) where p is such a mass, of error ε, and ε (1 + |log q| + |log p|) where
    # q is.
    p, q = (completion.draft, completion.target)[::turn]
    p_error, q_error = (
        error.reshape(p.shape) for error in _unlisted_errors(pair, completion)[::turn]
    )
    both = (p > 0) & (q > 0)
    with quiet():
        share = np.where(both, p_error / p, 0.0)
        size = np.where(both, q_error * (1.0 + np.abs(np.log(q)) + np.abs(np.log(p))), 0.0)
        loss = np.where(both, q * np.log1p(share), 0.0) + size
        gain = np.where(both, -q * np.log1p(-np.minimum(share, 1.0)), 0.0) + size
    return loss.sum(axis=-1), gain.sum(axis=-1)


def _inexact(side: TopTokens, num_tokens: int | None) -> Mask:
    """True where masses are rounded, or a tail is no larger than the rounding error."""
    full = num_tokens is not None and (side.tokens >= 0).sum(axis=-1) == num_tokens
    return np.asarray((side.rounding > 0) | (side.tail_unknown & ~np.asarray(full)))


def _packed(lower: Floats, upper: Floats, slack: Floats, upper_is_attained: Mask) -> Interval:
    low, high, moved = (as_scalar_or_array(np.asarray(end)) for end in (lower, upper, slack))
    return Interval(low, high, np.ones_like(upper_is_attained), upper_is_attained, moved)


def _log_size(draft: Floats, target: Floats) -> Floats:
    """Return Σ q (|log q| + |log p|) over p, q > 0, the factor of relative errors `(...)`."""
    with quiet():
        size = np.where(
            (target > 0) & (draft > 0),
            target * (np.abs(np.log(target)) + np.abs(np.log(draft))),
            0.0,
        )
    total: Floats = size.sum(axis=-1)
    return total


def _shifted_kl(draft: Floats, target: Floats, shift_draft: Floats, shift_target: Floats) -> Floats:
    """Integrate (min(1, t) − H(t) − shift_target − t·shift_draft)₊/t over t > 0, `(...)`."""
    # Parts that would diverge count 0.
    # Between neighbouring ratios H(t) = t·P(ratios above) + Q(ratios below), so that on either side
    # of 1 the bracket is linear.
    curve = OverlapCurve.of(draft, target)
    total = np.zeros(draft.shape[:-1])
    for lowest, highest, level, rise in ((0.0, 1.0, 0.0, 1.0), (1.0, np.inf, 1.0, 0.0)):
        start, stop = (
            np.clip(ends, lowest, highest) for ends in (curve.ratio[..., 1:], curve.ratio[..., :-1])
        )
        constant = level - curve.below_target[..., :-1] - shift_target[..., None]
        slope = rise - curve.above_draft[..., :-1] - shift_draft[..., None]
        with quiet():
            zero = -constant / slope
            left = np.where(slope > 0, np.maximum(start, zero), start)
            right = np.where(slope < 0, np.minimum(stop, zero), stop)
            piece = constant * (np.log(right) - np.log(left)) + slope * (right - left)
        usable = (right > left) & (left > 0) & np.isfinite(right)
        total += np.where(usable, np.maximum(piece, 0.0), 0.0).sum(axis=-1)
    return total
