"""Distances between a draft and a target, batched over leading axes.

And the terms that sum to a relative entropy.
"""

from __future__ import annotations

from otm._machine.arrays import (
    Array,
    as_scalar_or_array,
    by_rows,
    is_on_host,
    namespace,
    quiet,
    total,
    tracks_gradient,
    untracked,
)
from otm.overlap.gradient import attach_curve_gradient
from otm.pmf import align_pair, as_pmfs, check_real
from otm.problem import keyword_only

_LEAST_RATIO = 1e-300  # a quotient below it may be subnormal and have few digits


@keyword_only("otm.divergences.total_variation(draft=p, target=q)")
def total_variation(*, draft: object, target: object) -> Array:
    """Return the total variation distance, 1 minus the best single-draft acceptance.

    TV(p, q) = ½ Σ|p − q| = 1 − Σ min(p, q). (Leviathan's D_LK is this.)

    Args:
        draft, target: probabilities `(..., V)`.

    Returns:
        A float, or `(...)` in float64; in [0, 1]. A tensor's gradient is passed on.

    Raises:
        InvalidDistribution, ShapeMismatch: see `otm.Problem`.

    Cost: O(V). Accuracy: (3ν + 16) u (docs/theory.md, "Plain sums"). Reference: SpecTr, section 2.

    >>> total_variation(draft=[0.75, 0.25], target=[0.5, 0.5])
    0.25
    """
    p, q = _pair(draft, target, gradients=True)
    value = by_rows(
        lambda p, q: _at_most_one(0.5 * total(abs(p - q)))[None], untracked(p), untracked(q)
    )
    return as_scalar_or_array(_rejected_above(1.0, value, p, q))


@keyword_only("otm.divergences.kl_divergence(draft=p, target=q)")
def kl_divergence(*, draft: object, target: object) -> Array:
    """Return the relative entropy of the target with respect to the draft, in nats.

    D(q‖p) = Σ q log(q/p), +∞ where q > 0 = p.

    Args:
        draft, target: probabilities `(..., V)`.

    Returns:
        A float, or `(...)` in float64; in [0, ∞].

    Raises:
        InvalidDistribution, ShapeMismatch: see `otm.Problem`.

    Cost: O(V). Accuracy: terms q log(q/p) − q + p ≥ 0 are summed, each with a relative error of
        1e-14 (`divergence_term`), so the result keeps its digits when p is close to q.
    Reference: Kullback & Leibler 1951; what it bounds: ERSD [Kobus & Gündüz 2025], (6) to (8).

    >>> round(kl_divergence(draft=[0.5, 0.5], target=[0.75, 0.25]), 6)  # log 2 − H(1/4)
    0.130812
    """
    p, q = _pair(draft, target)
    return as_scalar_or_array(by_rows(lambda p, q: total(divergence_term(q, p))[None], p, q)[0])


@keyword_only("otm.divergences.harmonic_mean_distance(draft=p, target=q)")
def harmonic_mean_distance(*, draft: object, target: object) -> Array:
    """Return one minus the summed harmonic means of the masses.

    d_HM(p, q) = 1 − Σ 2 p q/(p + q). The Poisson matching lemma bounds the race's acceptance below
    by ½(1 − d_HM).

    Args:
        draft, target: probabilities `(..., V)`.

    Returns:
        A float, or `(...)` in float64; in [0, 1], 0 exactly at p = q, and at least TV².

    Raises:
        InvalidDistribution, ShapeMismatch: see `otm.Problem`.

    Cost: O(V). Accuracy: evaluated as ½ Σ (p − q)²/(p + q), free of cancellation.
    Reference: ERSD [Kobus & Gündüz 2025], (2) and Lemma 3.1.

    >>> round(harmonic_mean_distance(draft=[0.75, 0.25], target=[0.25, 0.75]), 12)
    0.25
    """
    p, q = _pair(draft, target)
    return as_scalar_or_array(by_rows(lambda p, q: _harmonic(p, q)[None], p, q)[0])


@keyword_only("otm.divergences.hockey_stick(draft=p, target=q, level=t)")
def hockey_stick(*, draft: object, target: object, level: float) -> Array:
    """Return the hockey-stick divergence of the target from the draft at one level.

    E_t(q‖p) = Σ (q − t p)₊ = 1 − H(t), H the overlap curve; E_1 is the total variation, and
    recursive rejection of i.i.d. drafts rejects with probabilities E at levels 1, 1 + E_1, … All
    f-divergences are integrals of E over t (docs/theory.md, "The overlap curve").
    `otm.overlap.OverlapCurve` answers for many levels from one sort.

    Args:
        draft, target: probabilities `(..., V)`.
        level: t ≥ 0.

    Returns:
        A float, or `(...)` in float64; in [0, 1], non-increasing in t. A tensor's gradient is
        passed on.

    Raises:
        InvalidDistribution, ShapeMismatch: see `otm.Problem`. InvalidParameter: if `level` is
            negative or not a number.

    Cost: O(V). Accuracy: summed from non-negative terms, so that small values keep their digits.
    Reference: Polyanskiy, Poor & Verdú 2010, E_γ; Dwork & Roth 2014 (differential privacy).

    >>> hockey_stick(draft=[0.75, 0.25], target=[0.5, 0.5], level=1.5)  # 1/2 − 3/8
    0.125
    """
    p, q = _pair(draft, target, gradients=True)
    t = check_real(level, name="level", low=0.0, high=1e300)

    def values(p: Array, q: Array) -> Array:
        xp = namespace(p, q)
        return _at_most_one(
            total(xp.clip(xp.astype(q, xp.float64) - t * xp.astype(p, xp.float64), 0.0, None))
        )[None]

    return as_scalar_or_array(_rejected_above(t, by_rows(values, untracked(p), untracked(q)), p, q))


def _rejected_above(level: float, value: Array, draft: Array, target: Array) -> Array:
    """Return 1 − H(level) with the gradient of H, from the value `(1, ...)`."""
    if tracks_gradient(draft, target):
        value = attach_curve_gradient(value, draft, target, levels=level, weights=-1.0)
    return value[0, ...]


def divergence_term(q: Array, mass: Array) -> Array:
    """Return q log(q/m) − q + m ≥ 0 elementwise in float64; m where q = 0, ∞ where m = 0 < q.

    Where Σ m = Σ q the terms sum to the relative entropy of q with respect to m, none of them
    negative: nothing cancels. With d = (m − q)/q a term is q (d − log(1 + d)), whose two parts
    cancel for small d. There log(1 + d) = 2 artanh s at s = d/(2 + d), and d − 2s = d s, so that
    the term is q s (d − 2s² (1/3 + s²/5 + …)); at |d| < 1/4 eight terms leave 3e-17.

    Args:
        q, mass: non-negative masses of one shape.

    Returns:
        An array of that shape.

    Cost: O(1) per entry. Accuracy: m − q is exact where m is near q, so a relative 1e-14 at worst,
        however close the two are.

    >>> import numpy as np
    >>> divergence_term(np.array([0.0, 0.5, 0.5]), np.array([0.25, 0.5, 0.0])).tolist()
    [0.25, 0.0, inf]
    """
    xp = namespace(q, mass)
    q, mass = xp.astype(q, xp.float64, copy=False), xp.astype(mass, xp.float64, copy=False)
    with quiet():
        ratio, d = mass / q, (mass - q) / q
        logarithm = xp.log(ratio)
        lost = (ratio < _LEAST_RATIO) & (mass > 0)
        # asking a device takes longer than two logarithms
        if not is_on_host(q) or bool(xp.any(lost)):
            logarithm = xp.where(lost, xp.log(mass) - xp.log(q), logarithm)
        # d is not finite where q = 0, or next to nothing beside m
        far = xp.where(d < xp.inf, q * (d - logarithm), mass)
        s = d / (d + 2.0)
        square = s * s
        tail = xp.zeros_like(d)
        for power in range(17, 1, -2):
            tail *= square
            tail += 1.0 / power
        return xp.where(abs(d) < 0.25, q * s * (d - 2.0 * square * tail), far)


def _pair(draft: object, target: object, *, gradients: bool = False) -> tuple[Array, Array]:
    return align_pair(*as_pmfs({"draft": draft, "target": target}, gradients=gradients))


def _harmonic(p: Array, q: Array) -> Array:
    xp = namespace(p, q)
    p, q = xp.astype(p, xp.float64), xp.astype(q, xp.float64)
    with quiet():
        terms = xp.where(p + q > 0, (p - q) ** 2 / (p + q), xp.zeros_like(p))
        return _at_most_one(0.5 * total(terms))


def _at_most_one(distance: Array) -> Array:
    """Cut off rounding: masses that sum to 1 + 2u on disjoint supports are 1 + 2u apart."""
    return namespace(distance).clip(distance, None, 1.0)
