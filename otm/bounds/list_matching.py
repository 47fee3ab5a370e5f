"""The list matching bound: what k drafts are sure to give a list race, token by token."""

from __future__ import annotations

from otm._arrays import Array, as_scalar_or_array, by_rows, namespace, quiet, total
from otm.bounds.outward import down
from otm.drafts.iid import IID
from otm.drafts.without_replacement import WithoutReplacement
from otm.problem import Problem, require_law


def list_matching_lower(problem: Problem) -> Array:
    """Return the list matching lemma's lower bound on the acceptance of a list race, which the race
    with k arrivals meets too.

    Pr(Y ∈ S) ≥ Σ_{p>0} k p q/(k p + q).

    From the list race's exact acceptance by rule, Σ k q/(k + g), by g ≤ q/p. For k = 1 it is the
    Poisson matching lemma, at most ½; for k first arrivals it is the weakest of the three forms of
    `otm.bounds.poisson_matching_lower`.

    Args:
        problem: any batch `(..., V)` with law `IID(k)` (list race) or `WithoutReplacement(k)`
            (race).

    Returns:
        A float, or `(...)` in float64; at most k/(k + 1).

    Raises:
        Unsupported: for other laws.

    Cost: O(V). Accuracy: rounded down, by (3ν + 16) u of the value (`otm.bounds.outward`).
    Reference: Rowan, Phan & Khisti 2025 (2506.05632), list matching lemma.

    >>> round(
    ...     list_matching_lower(otm.Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=otm.IID(3))),
    ...     12,
    ... )
    0.75
    """
    law = require_law(
        problem,
        IID,
        WithoutReplacement,
        message="The list matching bound is about races, with IID(k) or WithoutReplacement(k) drafts; the problem has "
        "{law!r}. Use otm.optimal_acceptance, which is exact for every law.",
    )
    k = law.k
    return as_scalar_or_array(
        by_rows(lambda p, q: _list_matching(p, q, k)[None], problem.draft, problem.target)[0]
    )


def _list_matching(draft: Array, target: Array, k: int) -> Array:
    xp = namespace(draft, target)
    p, q = xp.astype(draft, xp.float64), xp.astype(target, xp.float64)
    with quiet():
        # p/(k p + q) first: the product p q of masses near 1e-300 underflows.
        matched = total(xp.where(p > 0, k * q * (p / (k * p + q)), xp.zeros_like(p)))
    return down(matched, p.shape[-1], units=16, weight=k)
