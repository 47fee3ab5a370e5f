"""Bounds on acceptances over every completion: the optimum, K-SEQ, recursive rejection.

The first two are monotone in the overlap curve, so the two extreme completions give their exact
range. Recursive rejection is not: a pair that agrees less at every level can be accepted more
(docs/theory.md, "Partial knowledge"), so its interval is certified but not tight beyond one draft.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from otm._machine.arrays import UNIT_ROUNDOFF, Array, Floats, quiet
from otm.drafts.curve_cut import CurveLaw, check_curve_law, curve_values
from otm.drafts.iid import IID
from otm.errors import InvalidParameter, Unsupported
from otm.overlap import overlap_at
from otm.partial.completion import Completion, PartialPair
from otm.partial.top import Mask
from otm.pmf import check_counts, check_instance, check_sequence
from otm.results.statistics import Certified
from otm.verifiers import KSeq, Maximal, Optimal, Race, RecursiveRejection, Verifier


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Interval(Certified):
    """Certified bounds of a quantity over every completion; floats or arrays of one shape.

    Attributes:
        lower, upper: no completion lies outside [lower, upper].
        lower_is_attained, upper_is_attained: whether some completion comes within `slack` of that
            end. With an unknown vocabulary size that completion may use as many tokens as it needs.
        slack: how far each end was moved outwards for the stated rounding of the input and for
            floating point; 0 on an end that is infinite or a natural limit of the quantity.
    """

    lower_is_attained: Array
    upper_is_attained: Array
    slack: Array

    def __repr__(self) -> str:
        return f"Interval(lower={self.lower!s}, upper={self.upper!s}, is_tight={self.is_tight!s})"

    @property
    def is_tight(self) -> Array:
        """True where both ends are attained, up to `slack`: no narrower interval is always true."""
        return self.lower_is_attained & self.upper_is_attained

    def contains(self, value: Any) -> Array:
        """Return True where lower ≤ value ≤ upper."""
        return (self.lower <= value) & (value <= self.upper)


def optimal_acceptance(
    pair: PartialPair, *, k: float | Sequence[float], law: type[CurveLaw] = IID
) -> Interval:
    """Bound the optimal acceptance of k drafts over every completion, for each k.

    α* = 1 + min_T [Q(T) − b(T)], b(T) = P(T)^k of i.i.d. drafts; for one draft this is Σ min(p, q),
    the acceptance of single-draft rejection.

    Args:
        pair: what is known of both models.
        k: numbers of drafts, at least one; c of threshold races.
        law: what draws them, `otm.IID` or `otm.ThresholdRace`.

    Returns:
        An interval of shape `(len(k), ...)`; both ends attained (the lower one see
        `PartialPair.furthest` for the exception), by the same two completions for every k.

    Raises:
        InvalidParameter: unless every k is one that the law takes, and the law one of these.

    Cost: both completions and two sorts of 2m tokens serve every k. Slack: k·shift(draft) +
        shift(target), and rounding.
    Reference: docs/theory.md, "Partial knowledge" and "The prefix property".

    >>> import otm
    >>> one = otm.partial.TopTokens(tokens=[0, 1], probabilities=[0.5, 0.25])
    >>> two = otm.partial.TopTokens(tokens=[0, 2], probabilities=[0.25, 0.25])
    >>> ends = optimal_acceptance(otm.partial.PartialPair(draft=one, target=two), k=[1])
    >>> # token 0 gives ¼; tokens 1, 2 at most ¼ each, but the draft has only ¼ left
    >>> ends.lower.round(9), ends.upper.round(9)
    (array([0.25]), array([0.75]))
    """
    check_instance(pair, PartialPair, name="pair")
    sizes = [each.contained for each in _laws(law, k)]
    lowest, highest = (curve_values(end.draft, end.target, sizes) for end in _extremes(pair))
    return _interval(pair, lowest, highest, _slack(pair, [size.steepest for size in sizes]))


def _laws(law: type[CurveLaw], k: float | Sequence[float]) -> list[CurveLaw]:
    """Return the laws with given numbers of drafts, or raise `InvalidParameter`."""
    return [check_curve_law(law).of_size(size) for size in check_sequence(k, name="k")]


def _race(pair: PartialPair, ks: Sequence[float], law: type[CurveLaw]) -> Interval:
    """Bound Σ q/(1 + t − H(t)) at t = q/(c p) by a lower bound and the optimum."""
    best, (far, _) = optimal_acceptance(pair, k=ks, law=law), _extremes(pair)
    weight, slack = _column(pair, ks)[..., None], _slack(pair, ks)
    with quiet():
        terms = weight * far.target * (far.draft / (weight * far.draft + far.target))
    lowest = np.where(far.draft > 0, terms, 0.0).sum(axis=-1)
    return _clipped(pair, lowest - slack, best.upper, slack, is_attained=np.False_)


def acceptance(
    verifier: Verifier, pair: PartialPair, *, k: float | Sequence[float], law: type[CurveLaw] = IID
) -> Interval:
    """Bound the acceptance of a verifier over every completion, for each k.

    Each is a functional of the overlap curve H, evaluated on the two extreme completions, or lies
    between two that are:

        `KSeq()`                1 − (1 − H(γ)/γ)^k by the rule, at each completion's own γ* or at
                                a given γ;
        `RecursiveRejection()`  H(t_k), t_1 = 1, t_{i+1} = t_i + 1 − H(t_i): t ↦ t + 1 − H(t) is
                                non-decreasing, so that t_i and then H(t_k) are enclosed;
        `Maximal()`             H(1);
        `Optimal()`             the optimum;
        `Race()`                of threshold races: Σ c p q/(c p + q), concave in (p, q), below, the
                                optimum above.

    Args:
        verifier: one of these five.
        pair: what is known of both models.
        k: numbers of drafts, at least one; c of threshold races.
        law: what draws them, `otm.IID`, or `otm.ThresholdRace` for the last two.

    Returns:
        An interval of shape `(len(k), ...)`, both ends attained; for recursive rejection attained
        for k = 1 only, and within those of the optimum above and of one draft below; for the race
        not attained.

    Raises:
        Unsupported: for other verifiers, and for k beyond what the verifier supports.
        InvalidParameter: unless every k is one that the law takes; if a given γ is below the upper
            end of `gamma_star`, where K-SEQ would not be lossless for every completion.

    Cost: as `optimal_acceptance`; O(m·max k) per row for recursive rejection.
    Reference: SpecTr, Algorithm 2; docs/theory.md, "Partial knowledge" and "Recursive rejection".

    >>> import otm
    >>> one = otm.partial.TopTokens(tokens=[0, 1], probabilities=[0.75, 0.25])
    >>> two = otm.partial.TopTokens(tokens=[0, 1], probabilities=[0.5, 0.5])
    >>> pair = otm.partial.PartialPair(draft=one, target=two)  # all is known
    >>> verifiers = otm.KSeq(), otm.RecursiveRejection()
    >>> [acceptance(each, pair, k=[2]).upper.round(6).tolist() for each in verifiers]
    [[0.847597], [0.8125]]
    """
    check_instance(pair, PartialPair, name="pair")
    laws = _laws(law, k)
    ks = [each.size for each in laws]
    if isinstance(verifier, Verifier) and all(map(verifier.supports, laws)):
        if isinstance(verifier, KSeq):
            return _kseq(pair, ks, verifier.gamma)
        if isinstance(verifier, RecursiveRejection):
            return _recursive_rejection(pair, ks)
        if isinstance(verifier, Maximal) or (
            isinstance(verifier, Optimal) and verifier.bins is None
        ):
            return optimal_acceptance(pair, k=ks, law=law)
        if isinstance(verifier, Race):
            return _race(pair, ks, law)
    raise Unsupported(
        "Certified intervals exist for KSeq, RecursiveRejection, Optimal() and, at k = [1], "
        "Maximal, whose acceptance depends on the overlap curve alone, and for Race() of threshold "
        f"races; got {verifier!r} for {law.__name__} at k = {ks}. Choose one of these, or bound it "
        "by otm.partial.optimal_acceptance."
    )


def gamma_star(pair: PartialPair, *, k: int | Sequence[int]) -> Interval:
    """Bound K-SEQ's smallest lossless division factor over every completion, for each k.

    γ* = α/(1 − (1 − α)^{1/k}), which decreases in α, the acceptance at γ*: k at α = 0 and 1 at α =
    1.

    Args:
        pair: what is known of both models.
        k: numbers of drafts, at least one.

    Returns:
        An interval of shape `(len(k), ...)`. A completion with disjoint supports, for which every γ
        ≥ 1 is lossless, counts with the limit k. So every γ at or above the upper end is lossless
        for every completion.

    Raises:
        InvalidParameter: unless every k is an integer ≥ 1.

    Cost: as `acceptance`.
    Reference: SpecTr, (6); docs/theory.md, "Partial knowledge".

    >>> import otm
    >>> one = otm.partial.TopTokens(tokens=[0, 1], probabilities=[0.75, 0.25])
    >>> two = otm.partial.TopTokens(tokens=[0, 1], probabilities=[0.5, 0.5])
    >>> round(float(gamma_star(otm.partial.PartialPair(draft=one, target=two), k=[2]).upper[0]), 6)
    1.390388
    """
    check_instance(pair, PartialPair, name="pair")
    ks = check_counts(k, name="k")
    alpha = _kseq(pair, ks, None)
    exponent = _column(pair, ks)

    def factor(value: Floats) -> Floats:
        with quiet():
            root = value / -np.expm1(np.log1p(-value) / exponent)
        return np.clip(np.where(value > 0, root, exponent), 1.0, exponent)

    lower, upper = factor(alpha.upper), factor(alpha.lower)
    slack = np.maximum(
        upper - factor(alpha.lower + alpha.slack),
        factor(np.maximum(alpha.upper - alpha.slack, 0.0)) - lower,
    )
    return Interval(lower, upper, alpha.upper_is_attained, alpha.lower_is_attained, np.abs(slack))


def _kseq(pair: PartialPair, ks: list[int], gamma: float | None) -> Interval:
    if gamma is None:
        lowest, highest = (KSeq().curve(end.problem(IID(1)), ks, "rule") for end in _extremes(pair))
        return _interval(pair, lowest, highest, 2.0 * _slack(pair, ks))
    highest = float(np.max(gamma_star(pair, k=ks).upper))
    if gamma < highest * (1.0 - 1e-12):
        raise InvalidParameter(
            f"gamma must be at least {highest:.9g}, the largest gamma* over all completions, for "
            "K-SEQ to be lossless whatever is "
            f"not known; got {gamma:g}. Leave gamma out to use each completion's own gamma*."
        )
    with quiet():
        lowest, highest = (
            -np.expm1(_column(pair, ks) * np.log1p(-_overlap(end, gamma) / gamma))
            for end in _extremes(pair)
        )
    return _interval(pair, lowest, highest, _slack(pair, ks))


def _recursive_rejection(pair: PartialPair, ks: list[int]) -> Interval:
    far, near = _extremes(pair)
    shift_p, shift_q = pair.shifts
    low = high = np.zeros(pair.batch_shape)
    most, least = {}, {}
    for stage in range(max(ks) + 1):
        # What the truth may lose or gain on its nearest completion at level t: shift(target) +
        # t·shift(draft).
        at_low, at_high = shift_q + low * shift_p, shift_q + high * shift_p
        most[stage] = 1.0 - np.maximum(1.0 - _overlap(near, high) - at_high, 0.0)
        least[stage] = 1.0 - np.minimum(1.0 - _overlap(far, low) + at_low, 1.0)
        low = low + np.maximum(1.0 - _overlap(near, low) - at_low, 0.0)
        high = high + np.minimum(1.0 - _overlap(far, high) + at_high, 1.0)
    best, first = optimal_acceptance(pair, k=ks), optimal_acceptance(pair, k=[1])
    upper = np.minimum(np.stack([most[k] for k in ks]) + _floating(pair, ks), best.upper)
    lower = np.maximum(np.stack([least[k] for k in ks]) - _floating(pair, ks), first.lower)
    return _clipped(pair, lower, upper, _slack(pair, ks), is_attained=_column(pair, ks) == 1)


def _extremes(pair: PartialPair) -> tuple[Completion, Completion]:
    """Return the completions of the lower and of the upper ends."""
    return pair.furthest, pair.closest


def _overlap(completion: Completion, level: Floats | float) -> Floats:
    """Evaluate H(t) of a completion at one level, or at one for each row, `(...)`."""
    return np.asarray(overlap_at(completion.draft, completion.target, level))


def _column(pair: PartialPair, ks: Sequence[float]) -> Floats:
    """Return the numbers of drafts in float64, `(len(ks), 1, ...)` over the batch."""
    return np.asarray(ks, dtype=np.float64).reshape(-1, *(1,) * len(pair.batch_shape))


def _slack(pair: PartialPair, ks: Sequence[float]) -> Floats:
    """Bound the effect of rounding on an acceptance, here and in the input, `(len(ks), ...)`."""
    # The truth is within the shifts of a completion in total variation, and every cut moves by at
    # most k·shift(draft) + shift(target).
    draft, target = pair.shifts
    bound: Floats = _floating(pair, ks) + _column(pair, ks) * draft + target
    return bound


def _floating(pair: PartialPair, ks: Sequence[float]) -> Floats:
    """Bound the rounding of these computations, `(len(ks), 1, ...)`."""
    width = pair.layout.draft.mass.shape[1] + 5
    bound: Floats = 32.0 * (width + np.minimum(_column(pair, ks), 64.0) + 8.0) * UNIT_ROUNDOFF
    return bound


def _interval(pair: PartialPair, lowest: Floats, highest: Floats, slack: Floats) -> Interval:
    """Move the values of the furthest and of the closest completion outward by the slack."""
    return _clipped(pair, lowest - slack, highest + slack, slack, is_attained=np.True_)


def _clipped(
    pair: PartialPair, lower: Floats, upper: Floats, slack: Floats, *, is_attained: Mask | np.bool_
) -> Interval:
    """Return the interval clipped to [0, 1], with flags for attained ends."""
    far, near = (np.broadcast_to(c.is_extreme & is_attained, slack.shape) for c in _extremes(pair))
    return Interval(np.clip(lower, 0.0, 1.0), np.clip(upper, 0.0, 1.0), far, near, slack)
