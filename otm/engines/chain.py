"""How long a chain of drafts should be: Leviathan's formulas for independent acceptance at every
position.
"""

from __future__ import annotations

import math

import array_api_compat
import numpy as np

from otm._arrays import (
    Array,
    as_scalar_or_array,
    namespace,
    quiet,
    tracks_gradient,
    untracked,
    with_gradient,
)
from otm.errors import InvalidDistribution, InvalidParameter
from otm.pmf import check_count, check_real, plain_array


def chain_expected_tokens(acceptance: Array | float, *, length: int) -> Array:
    """Return the expected tokens per target call of a chain of drafts that are accepted
    independently with probability a.

    E[tokens] = 1 + a + … + a^γ = (1 − a^{γ+1})/(1 − a).

    Args:
        acceptance: a, in [0, 1], a number or an array of any shape `(...)`; Σ min(p, q) for
            speculative sampling.
        length: γ ≥ 0 drafts.

    Returns:
        Tokens per target call, in [1, γ + 1], a float or `(...)` in float64. A tensor's gradient is
        passed on.

    Raises:
        InvalidParameter: if an argument is out of its range.

    Cost: O(1), with a gradient O(log γ). Accuracy: a few units in the last place, also near a = 1.
    Reference: Leviathan et al. 2023, (1).

    >>> chain_expected_tokens(0.5, length=2)
    1.75
    """
    gamma = check_count(length, name="length", minimum=0)
    if isinstance(acceptance, np.generic) or not array_api_compat.is_array_api_obj(acceptance):
        a = check_real(acceptance, name="acceptance", low=0.0, high=1.0)
        return (
            1.0 + a * gamma
            if a in (0.0, 1.0)
            else -math.expm1((gamma + 1) * math.log(a)) / (1.0 - a)
        )
    given = _probabilities(acceptance)
    xp, a = namespace(given), untracked(given)
    with quiet():
        inside = -xp.expm1((gamma + 1) * xp.log(a)) / (1.0 - a)
        values = xp.where((a > 0.0) & (a < 1.0), inside, 1.0 + a * gamma)
    if tracks_gradient(given):
        values = with_gradient(values, _slope(a, gamma) * given)
    return as_scalar_or_array(values)


def _probabilities(acceptance: Array) -> Array:
    """Return an array of probabilities in float64, or raise `InvalidParameter`."""
    try:
        array = plain_array(acceptance, "acceptance", gradients=True)
    except InvalidDistribution as error:
        raise InvalidParameter(str(error)) from error
    xp, plain = namespace(array), untracked(array)
    if not bool(xp.all((plain >= 0) & (plain <= 1))):
        raise InvalidParameter(
            "acceptance must lie in [0, 1]; some entries do not. Check how they were measured."
        )
    return xp.astype(array, xp.float64)


def _slope(a: Array, length: int) -> Array:
    """Return Σ_{i ≤ γ} i a^{i−1}, by doubling the number of terms: S_{2m} = S_m (1 + a^m), no
    difference anywhere.
    """
    terms, slope = 0.0 * a, 0.0 * a
    power, before = terms + 1.0, terms  # a^m and its derivative
    for bit in f"{length + 1:b}":
        slope = slope * (1.0 + power) + terms * before
        terms = terms * (1.0 + power)
        power, before = power * power, 2.0 * power * before
        if bit == "1":
            terms, slope = 1.0 + a * terms, terms + a * slope
            power, before = a * power, power + a * before
    return slope


def chain_speedup(acceptance: Array | float, *, length: int, cost_ratio: float) -> Array:
    """Return the expected wall-time improvement over decoding without drafts.

    E[tokens]/(γ c + 1) = (1 − a^{γ+1})/((1 − a)(γ c + 1)).

    Args:
        acceptance: a, in [0, 1], a number or an array of any shape `(...)`.
        length: γ ≥ 0 drafts.
        cost_ratio: c ≥ 0, the time of one draft step over that of one target call; a target call is
            taken to cost the same for any number of tokens.

    Returns:
        A factor, a float or `(...)`; below 1 speculation is slower. A tensor's gradient is passed
        on.

    Raises:
        InvalidParameter: if an argument is out of its range.

    Cost: O(1). Reference: Leviathan et al. 2023, Theorem 3.8.

    >>> chain_speedup(0.8, length=5, cost_ratio=0.05).__round__(6)
    2.951424
    """
    c = _finite_ratio(cost_ratio)
    return chain_expected_tokens(acceptance, length=length) / (length * c + 1.0)


def optimal_chain_length(acceptance: float, *, cost_ratio: float, max_length: int = 10_000) -> int:
    """Return the number of drafts with the largest wall-time improvement, the smallest of them on
    ties.

    The improvement is a concave sequence over an affine one, so it rises up to a point and falls
    beyond: γ → γ + 1 pays as long as a^{γ+1} (γ c + 1) > c E[tokens at γ].

    Args:
        acceptance: a, in [0, 1].
        cost_ratio: c ≥ 0; a ≤ c means that no draft pays.
        max_length: the longest chain considered; the answer where drafts are free, or never
            rejected and cheaper than the target.

    Returns:
        γ in [0, max_length].

    Raises:
        InvalidParameter: if an argument is out of its range.

    Cost: O(log max_length). Reference: Leviathan et al. 2023, section 3.5; that the optimum is
        unique: docs/theory.md, "Cost".

    >>> optimal_chain_length(0.8, cost_ratio=0.05)
    8
    """
    a = check_real(acceptance, name="acceptance", low=0.0, high=1.0)
    c = _finite_ratio(cost_ratio)
    low, high = 0, check_count(max_length, name="max_length", minimum=0)
    while low < high:
        middle = (low + high) // 2
        pays = a ** (middle + 1) * (middle * c + 1.0) > c * chain_expected_tokens(a, length=middle)
        low, high = (middle + 1, high) if pays else (low, middle)
    return low


def _finite_ratio(cost_ratio: float) -> float:
    c = check_real(cost_ratio, name="cost_ratio", low=0.0)
    if math.isinf(c):
        raise InvalidParameter(
            "cost_ratio must be finite; got inf. Pass draft seconds over target seconds."
        )
    return c
