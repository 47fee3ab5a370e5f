"""Optimal acceptances that a formula gives: the examples behind SpecTr's Figures 1 to 3."""

from __future__ import annotations

import math

from otm.pmf import check_count, check_real


def uniform_optimum(*, ratio: float, k: int) -> float:
    """Return the optimal acceptance of k i.i.d. drafts from U(d) for the target U(d/r).

    α*_k = 1 − (1 − 1/r)^k: some draft falls among the d/r tokens. K-SEQ attains it with γ* = r (1 − (1 − 1/r)^k).

    Args:
        ratio: r ≥ 1, with d/r an integer for the formula to describe two uniform laws.
        k: number of drafts ≥ 1.

    Returns:
        α*_k, in [0, 1].

    Raises:
        InvalidParameter: outside these ranges.

    Cost: O(1). Reference: SpecTr, appendix B.2 and D.1.

    >>> uniform_optimum(ratio=2, k=3)
    0.875
    """
    r = check_real(ratio, name="ratio", low=1.0)
    count = check_count(k, name="k")
    return -math.expm1(count * math.log1p(-1.0 / r)) if r > 1 else 1.0


def two_token_optimum(*, draft: float, target: float, k: int) -> float:
    """Return the optimal acceptance of k i.i.d. drafts on two tokens.

    α*_k = min(q, 1 − (1−p)^k) + min(1 − q, 1 − p^k).

    Args:
        draft: p, the draft's mass of token 1, in [0, 1].
        target: q, the target's mass of token 1, in [0, 1].
        k: number of drafts ≥ 1.

    Returns:
        α*_k, in [0, 1].

    Raises:
        InvalidParameter: outside these ranges.

    Cost: O(1). Reference: SpecTr, appendix B.2.

    >>> two_token_optimum(draft=0.25, target=0.5, k=2)
    0.9375
    """
    p = check_real(draft, name="draft", low=0.0, high=1.0)
    q = check_real(target, name="target", low=0.0, high=1.0)
    count = check_count(k, name="k")
    return min(q, 1.0 - (1.0 - p) ** count) + min(1.0 - q, 1.0 - p**count)
