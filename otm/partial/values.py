"""Acceptances over every completion: the optimum, K-SEQ, recursive rejection.

The first two are monotone in the overlap curve, so the two extreme completions give their exact range. Recursive rejection is not:
a pair that agrees less at every level can be accepted more (docs/theory.md, "Partial knowledge"), so its interval is certified but
not tight beyond one draft.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from otm._arrays import as_scalar_or_array, quiet
from otm.drafts.iid import IID
from otm.drafts.iid_cut import iid_values
from otm.errors import InvalidParameter
from otm.overlap import overlap
from otm.partial.completion import Completion
from otm.partial.interval import Interval
from otm.partial.known import Floats, Mask
from otm.partial.pair import PartialPair
from otm.pmf import check_real
from otm.problem import Problem
from otm.verbs import check_ks
from otm.verifiers.kseq import KSeq

_UNIT_ROUNDOFF = 2.0**-53


def partial_overlap(pair: PartialPair) -> Interval:
    """Bound Σ_x min(p(x), q(x)), the best single-draft acceptance, over every completion.

    Args:
        pair: what is known of both models.

    Returns:
        An interval of shape `(...)`, both ends attained (the lower one see `PartialPair.furthest` for the exception).

    Raises:
        Nothing: a pair that exists can be completed.

    Cost: both completions, O(m log m + 66 m) per row. Reference: docs/theory.md, "Partial knowledge".

    >>> one = otm.partial.TopTokens(tokens=[0, 1], probabilities=[0.5, 0.25])
    >>> two = otm.partial.TopTokens(tokens=[0, 2], probabilities=[0.25, 0.25])
    >>> ends = partial_overlap(otm.partial.PartialPair(draft=one, target=two))
    >>> round(ends.lower, 9), round(ends.upper, 9)  # token 0 gives ¼; tokens 1, 2 at most ¼ each, but the draft has only ¼ left
    (0.25, 0.75)
    """
    curve = partial_optimal_acceptance(pair, k=[1])
    low, high, moved = (as_scalar_or_array(end[0]) for end in (curve.lower, curve.upper, curve.slack))
    return Interval(low, high, curve.lower_is_attained[0], curve.upper_is_attained[0], moved)


def partial_optimal_acceptance(pair: PartialPair, *, k: Sequence[int]) -> Interval:
    """Bound the optimal acceptance of k i.i.d. drafts over every completion, for each k.

    α*_k = 1 + min_T [Q(T) − P(T)^k].

    Args:
        pair: what is known of both models.
        k: numbers of drafts, at least one.

    Returns:
        An interval of shape `(len(k), ...)`; both ends attained, by the same two completions for every k.

    Raises:
        InvalidParameter: unless every k is an integer ≥ 1.

    Cost: both completions and two sorts of 2m tokens serve every k. Slack: k·shift(draft) + shift(target), and rounding.
    Reference: docs/theory.md, "Partial knowledge" and "The prefix property".

    >>> one = otm.partial.TopTokens(tokens=[0, 1], probabilities=[0.75, 0.25])
    >>> two = otm.partial.TopTokens(tokens=[0, 1], probabilities=[0.5, 0.5])
    >>> round(float(partial_optimal_acceptance(otm.partial.PartialPair(draft=one, target=two), k=[2]).lower[0]), 9)  # all is known
    0.9375
    """
    ks = check_ks(k)
    ends = [iid_values(*_rows(completion), ks) for completion in _extremes(pair)]
    return _interval(pair, ends, _slack(pair, ks))


def partial_kseq(pair: PartialPair, *, k: Sequence[int], gamma: float | None = None) -> Interval:
    """Bound the rule acceptance of K-SEQ over every completion, for each k.

    1 − (1 − H(γ)/γ)^k with H(γ) = Σ min(γp, q), at each completion's own γ* or at a given γ.

    Args:
        pair: what is known of both models.
        k: numbers of drafts, at least one.
        gamma: division factor; None takes γ*, where rule and membership agree.

    Returns:
        An interval of shape `(len(k), ...)`, both ends attained.

    Raises:
        InvalidParameter: unless every k is an integer ≥ 1; if γ is below the upper end of `partial_gamma_star`, where K-SEQ would
            not be lossless for every completion.

    Cost: as `partial_optimal_acceptance`. Reference: SpecTr, Algorithm 2; docs/theory.md, "Partial knowledge".

    >>> one = otm.partial.TopTokens(tokens=[0, 1], probabilities=[0.75, 0.25])
    >>> two = otm.partial.TopTokens(tokens=[0, 1], probabilities=[0.5, 0.5])
    >>> round(float(partial_kseq(otm.partial.PartialPair(draft=one, target=two), k=[2]).upper[0]), 6)
    0.847597
    """
    ks = check_ks(k)
    if gamma is None:
        ends = []
        for completion in _extremes(pair):
            draft, target = _rows(completion)
            ends.append(KSeq().curve(Problem(draft=draft, target=target, law=IID(1)), ks, "rule"))
        return _interval(pair, ends, 2.0 * _slack(pair, ks))
    factor = check_real(gamma, name="gamma", low=1.0)
    highest = float(np.max(partial_gamma_star(pair, k=ks).upper))
    if factor < highest * (1.0 - 1e-12):
        raise InvalidParameter(
            f"gamma must be at least {highest:.9g}, the largest gamma* over all completions, for K-SEQ to be lossless whatever is "
            f"not known; got {factor:g}. Leave gamma out to use each completion's own gamma*."
        )
    exponent = np.asarray(ks, dtype=np.float64)[:, None]
    with quiet():
        ends = [-np.expm1(exponent * np.log1p(-_overlap(c, factor) / factor)) for c in _extremes(pair)]
    return _interval(pair, ends, _slack(pair, ks))


def partial_gamma_star(pair: PartialPair, *, k: Sequence[int]) -> Interval:
    """Bound K-SEQ's smallest lossless division factor over every completion, for each k.

    γ* = α/(1 − (1 − α)^{1/k}), which decreases in α, the acceptance at γ*: k at α = 0 and 1 at α = 1.

    Args:
        pair: what is known of both models.
        k: numbers of drafts, at least one.

    Returns:
        An interval of shape `(len(k), ...)`. A completion with disjoint supports, for which every γ ≥ 1 is lossless, counts with
        the limit k. So every γ at or above the upper end is lossless for every completion.

    Raises:
        InvalidParameter: unless every k is an integer ≥ 1.

    Cost: as `partial_kseq`. Reference: SpecTr, (6); docs/theory.md, "Partial knowledge".

    >>> one = otm.partial.TopTokens(tokens=[0, 1], probabilities=[0.75, 0.25])
    >>> two = otm.partial.TopTokens(tokens=[0, 1], probabilities=[0.5, 0.5])
    >>> round(float(partial_gamma_star(otm.partial.PartialPair(draft=one, target=two), k=[2]).upper[0]), 6)
    1.390388
    """
    ks = check_ks(k)
    alpha = partial_kseq(pair, k=ks)
    exponent = np.asarray(ks, dtype=np.float64).reshape(-1, *(1,) * (np.ndim(alpha.lower) - 1))

    def factor(value: Floats) -> Floats:
        with quiet():
            root = value / -np.expm1(np.log1p(-value) / exponent)
        return np.clip(np.where(value > 0, root, exponent), 1.0, exponent)

    lower, upper = factor(alpha.upper), factor(alpha.lower)
    slack = np.maximum(upper - factor(alpha.lower + alpha.slack), factor(np.maximum(alpha.upper - alpha.slack, 0.0)) - lower)
    return Interval(lower, upper, alpha.upper_is_attained, alpha.lower_is_attained, np.abs(slack))


def partial_recursive_rejection(pair: PartialPair, *, k: Sequence[int]) -> Interval:
    """Bound the acceptance of recursive rejection with k i.i.d. drafts over every completion, for each k.

    α = 1 − Φ(t_k) with Φ(t) = Σ (q − tp)₊, t_0 = 0, t_{i+1} = t_i + Φ(t_i), where t ↦ t + Φ(t) is non-decreasing: with Φ between
    the curves of the two extreme completions, t_i and then Φ(t_k) are enclosed.

    Args:
        pair: what is known of both models.
        k: numbers of drafts, at least one.

    Returns:
        An interval of shape `(len(k), ...)`, within those of the optimum above and of one draft below; attained for k = 1 only.

    Raises:
        InvalidParameter: unless every k is an integer ≥ 1.

    Cost: O(m·max k) per row. Reference: docs/theory.md, "Recursive rejection" and "Partial knowledge".

    >>> one = otm.partial.TopTokens(tokens=[0, 1], probabilities=[0.75, 0.25])
    >>> two = otm.partial.TopTokens(tokens=[0, 1], probabilities=[0.5, 0.5])
    >>> ends = partial_recursive_rejection(otm.partial.PartialPair(draft=one, target=two), k=[2])
    >>> round(float(ends.lower[0]), 9), round(float(ends.upper[0]), 9)
    (0.8125, 0.8125)
    """
    ks = check_ks(k)
    far, near = _extremes(pair)
    shifts = pair.layout.shift_draft, pair.layout.shift_target
    low, high = np.zeros_like(shifts[0]), np.zeros_like(shifts[0])
    most, least = {}, {}
    for stage in range(max(ks) + 1):
        # What the truth may lose or gain on its nearest completion at level t: shift(target) + t·shift(draft).
        near_rejects = np.maximum(1.0 - _overlap(near, high) - shifts[1] - high * shifts[0], 0.0)
        far_rejects = np.minimum(1.0 - _overlap(far, low) + shifts[1] + low * shifts[0], 1.0)
        most[stage], least[stage] = 1.0 - near_rejects, 1.0 - far_rejects
        low = low + np.maximum(1.0 - _overlap(near, low) - shifts[1] - low * shifts[0], 0.0)
        high = high + np.minimum(1.0 - _overlap(far, high) + shifts[1] + high * shifts[0], 1.0)
    best, first = iid_values(*_rows(near), ks), iid_values(*_rows(far), [1])
    slack = _slack(pair, ks)
    upper = np.minimum(np.stack([most[j] for j in ks]) + _floating(pair, ks), best + slack)
    lower = np.maximum(np.stack([least[j] for j in ks]) - _floating(pair, ks), first - _slack(pair, [1]))
    single = np.asarray(ks)[:, None] == 1
    return _shaped(pair, lower, upper, slack, (single & far.is_extreme.reshape(-1), single & near.is_extreme.reshape(-1)))


def _extremes(pair: PartialPair) -> tuple[Completion, Completion]:
    """Return the completions of the lower and of the upper ends."""
    return pair.furthest, pair.closest


def _rows(completion: Completion) -> tuple[Floats, Floats]:
    width = completion.draft.shape[-1]
    return completion.draft.reshape(-1, width), completion.target.reshape(-1, width)


def _overlap(completion: Completion, level: Floats | float) -> Floats:
    """Evaluate H(t) of a completion at one level, or one per row, `(rows,)`."""
    return np.asarray(overlap(*_rows(completion), level))


def _slack(pair: PartialPair, ks: Sequence[int]) -> Floats:
    """Bound, `(len(ks), rows)`, what rounding can do to an acceptance, here and in the given log-probabilities.

    The truth is within the shifts of a completion in total variation, and every cut moves by at most k·shift(draft) +
    shift(target).
    """
    known = pair.layout
    counts = np.asarray(ks, dtype=np.float64)[:, None]
    bound: Floats = _floating(pair, ks) + counts * known.shift_draft + known.shift_target
    return bound


def _floating(pair: PartialPair, ks: Sequence[int]) -> Floats:
    """Bound, `(len(ks), 1)`, our own rounding: sums of W + 5 masses and powers, 32 (W + min(k, 64) + 8) units of roundoff."""
    counts = np.asarray(ks, dtype=np.float64)[:, None]
    width = pair.layout.draft.shape[1] + 5
    bound: Floats = 32.0 * (width + np.minimum(counts, 64.0) + 8.0) * _UNIT_ROUNDOFF
    return bound


def _interval(pair: PartialPair, ends: Sequence[Floats], slack: Floats) -> Interval:
    far, near = _extremes(pair)
    attained = far.is_extreme.reshape(-1), near.is_extreme.reshape(-1)
    return _shaped(pair, ends[0] - slack, ends[1] + slack, slack, attained)


def _shaped(pair: PartialPair, lower: Floats, upper: Floats, slack: Floats, attained: tuple[Mask, Mask]) -> Interval:
    shape = (len(lower), *pair.batch_shape)
    flags = [np.broadcast_to(flag, lower.shape).reshape(shape) for flag in attained]
    low, high = np.clip(lower, 0.0, 1.0).reshape(shape), np.clip(upper, 0.0, 1.0).reshape(shape)
    return Interval(low, high, flags[0], flags[1], np.broadcast_to(slack, lower.shape).reshape(shape))
