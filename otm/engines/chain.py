"""Lengths of chains of drafts: Leviathan's formulas, and the search for the fastest."""

from __future__ import annotations

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import (
    Array,
    as_scalar_or_array,
    namespace,
    quiet,
    tracks_gradient,
    untracked,
    with_gradient,
)
from otm.errors import InvalidDistribution, InvalidParameter, TooLarge
from otm.pmf import check_count, check_real, plain_array

MAX_LENGTH = 10_000
"""Longest chain that is planned."""

MAX_SECONDS = 1e12
"""Longest time, and largest ratio of times, that is believed."""


def chain_expected_tokens(acceptance: Array | float, *, length: int) -> Array:
    """Return the expected tokens per target call of a chain of independently accepted drafts.

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
        return float(_tokens(np.float64(a), gamma))
    given = _probabilities(acceptance)
    values = _tokens(untracked(given), gamma)
    if tracks_gradient(given):
        values = with_gradient(values, _slope(untracked(given), gamma) * given)
    return as_scalar_or_array(values)


def _tokens(a: Array, length: Array) -> Array:
    """Return 1 + a + … + a^γ by the closed form, in [1, γ + 1]; arrays of one shape, or numbers."""
    xp = namespace(a)
    with quiet():
        inside = -xp.expm1((length + 1) * xp.log(a)) / (1.0 - a)
    return xp.where((a > 0.0) & (a < 1.0), inside, 1.0 + a * length)


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
    """Return Σ_{i ≤ γ} i a^{i−1} without a difference."""
    # Doubling the number of terms: S_{2m} = S_m (1 + a^m), and its derivative beside it.
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
    """Return the expected wall-time improvement of a chain over decoding without drafts.

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
    c = check_real(cost_ratio, name="cost_ratio", low=0.0, high=MAX_SECONDS)
    return chain_expected_tokens(acceptance, length=length) / (length * c + 1.0)


def optimal_chain_length(acceptance: float, *, cost_ratio: float, max_length: int = 10_000) -> int:
    """Return the number of drafts with the largest wall-time improvement, the smallest on ties.

    argmax_γ (1 − a^{γ+1})/((1 − a)(γ c + 1)) over γ = 0..max_length.

    Args:
        acceptance: a, in [0, 1].
        cost_ratio: c ≥ 0; a ≤ c means that no draft pays.
        max_length: the longest chain considered, at most 10,000; the answer where drafts are free,
            or never rejected and cheaper than the target.

    Returns:
        γ in [0, max_length].

    Raises:
        InvalidParameter: if an argument is out of its range.
        TooLarge: if max_length is beyond 10,000.

    Cost: O(max_length). Reference: Leviathan et al. 2023, section 3.5; that the optimum is unique:
        docs/theory.md, "Cost".

    >>> optimal_chain_length(0.8, cost_ratio=0.05)
    8
    """
    a = check_real(acceptance, name="acceptance", low=0.0, high=1.0)
    c = check_real(cost_ratio, name="cost_ratio", low=0.0, high=MAX_SECONDS)
    most = check_count(max_length, name="max_length", minimum=0)
    if most > MAX_LENGTH:
        raise TooLarge(
            f"Chains of up to {MAX_LENGTH:,} drafts are planned; max_length={most:,} is more. Pass "
            "a smaller one."
        )
    if a and not c:
        return most  # every draft adds something, be it less than rounding shows
    lengths = np.arange(most + 1, dtype=np.float64)
    return fastest(_tokens(np.float64(a), lengths), lengths * c + 1.0)


def fastest(tokens: NDArray[np.float64], seconds: NDArray[np.float64]) -> int:
    """Return the index of the plan with the most tokens per second, the first on ties.

    This function is the one search behind every number of drafts: of chains, of plans from records,
    and of trees. Speeds within 4 units in the last place of the largest tie, as they differ by
    rounding.

    Args:
        tokens, seconds: `(n,)`, expected tokens and seconds of a round, plain decoding first.

    >>> import numpy as np
    >>> fastest(np.array([1.0, 1.8, 2.4]), np.array([1.0, 1.2, 1.6]))
    1
    """
    rates = tokens / seconds
    tied = rates >= rates.max() * (1.0 - 4 * np.finfo(np.float64).eps)
    return int(np.argmax(tied))
