"""Tolerances of float64 results against exact results, derived once from the rounding."""

from __future__ import annotations

UNIT_ROUNDOFF = 2.0**-53


def rounding(num_tokens: int, k: int) -> float:
    """Bound the rounding of an acceptance or an output marginal on V tokens and k drafts.

    Every such value is a sum of non-negative terms not exceeding 1 in total. A term is a product of
    at most k + 3 factors, each itself a running sum of at most V masses, so of relative error (V +
    2)u; powers x^k with x = 1 − C carry k·C·(1 − C)^{k−1} ≤ 1 times the relative error of C, plus
    k/2 units where they are multiplied out (k ≤ 64). Differences (q − s)₊ have the same error in
    absolute terms. Hence (V + min(k, 64) + O(1)) u per stage, and at most a handful of stages
    matter because later ones are weighted by the probability of reaching them. The factor 32 covers
    the handful.
    """
    return 32 * (num_tokens + min(k, 64) + 8) * UNIT_ROUNDOFF


CERTIFIED_GAP = 1e-9
"""Largest gap between the two certificates of `otm.optimum`."""

COLLECTED = 1e-9
"""For rules whose joint law is a quadrature (races): their stated accuracy is far better, a wrong
formula misses by 1e-3.
"""
