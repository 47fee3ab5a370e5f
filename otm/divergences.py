"""Distances between a draft and a target, batched over leading axes."""

from __future__ import annotations

from otm._arrays import Array, as_scalar_or_array, by_rows, namespace, quiet, total
from otm.pmf import align_pair, as_pmf


def total_variation(*, draft: object, target: object) -> Array:
    """Return the total variation distance, 1 minus the best single-draft acceptance.

    TV(p, q) = ½ Σ|p − q| = 1 − Σ min(p, q). (Leviathan's D_LK is this.)

    Args:
        draft, target: probabilities `(..., V)`.

    Returns:
        A float, or `(...)` in float64; in [0, 1].

    Raises:
        InvalidDistribution, ShapeMismatch: see `otm.Problem`.

    Cost: O(V). Reference: SpecTr, section 2.

    >>> total_variation(draft=[0.75, 0.25], target=[0.5, 0.5])
    0.25
    """
    p, q = _pair(draft, target)
    return as_scalar_or_array(by_rows(lambda p, q: _at_most_one(0.5 * total(abs(p - q)))[None], p, q)[0])


def kl_divergence(*, draft: object, target: object) -> Array:
    """Return the relative entropy of the target with respect to the draft, in nats.

    D(q‖p) = Σ q log(q/p), +∞ where q > 0 = p.

    Args:
        draft, target: probabilities `(..., V)`.

    Returns:
        A float, or `(...)` in float64; in [0, ∞].

    Raises:
        InvalidDistribution, ShapeMismatch: see `otm.Problem`.

    Cost: O(V). Accuracy: terms q log(q/p) − q + p ≥ 0 are summed, so the result keeps its digits when p is close to q.

    >>> round(kl_divergence(draft=[0.5, 0.5], target=[0.75, 0.25]), 6)  # log 2 − H(1/4)
    0.130812
    """
    p, q = _pair(draft, target)
    return as_scalar_or_array(by_rows(lambda p, q: _kl(p, q)[None], p, q)[0])


def harmonic_mean_distance(*, draft: object, target: object) -> Array:
    """Return one minus the summed harmonic means of the masses.

    d_HM(p, q) = 1 − Σ 2 p q/(p + q). The Poisson matching lemma bounds the race's acceptance below by ½(1 − d_HM).

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


def _pair(draft: object, target: object) -> tuple[Array, Array]:
    return align_pair(as_pmf(draft, name="draft"), as_pmf(target, name="target"))


def _kl(p: Array, q: Array) -> Array:
    xp = namespace(p, q)
    p, q = xp.astype(p, xp.float64), xp.astype(q, xp.float64)
    with quiet():
        terms = xp.where(q > 0, q * (xp.log(q) - xp.log(p)), xp.zeros_like(q))
        return xp.clip(total(terms - q + p), 0.0, None)


def _harmonic(p: Array, q: Array) -> Array:
    xp = namespace(p, q)
    p, q = xp.astype(p, xp.float64), xp.astype(q, xp.float64)
    with quiet():
        terms = xp.where(p + q > 0, (p - q) ** 2 / (p + q), xp.zeros_like(p))
        return _at_most_one(0.5 * total(terms))


def _at_most_one(distance: Array) -> Array:
    """Cut off rounding: masses that sum to 1 + 2u on disjoint supports are 1 + 2u apart."""
    return namespace(distance).clip(distance, None, 1.0)
