"""The total variation frontier: every bit of distance buys exactly as much acceptance."""

from __future__ import annotations

from otm._arrays import Array, as_scalar_or_array, namespace
from otm.pmf import check_real
from otm.problem import Problem, check_problem


def tv_frontier(problem: Problem, *, tv: float) -> Array:
    """Return the largest acceptance of any scheme whose output law is within `tv` of the target in
    total variation.

    max over π with TV(π, q) ≤ ε of α*(π) = min(1, α*(q) + ε), for every draft law: α* changes by at
    most TV, since each cut's 1 + π(T) − b(T) does; and moving ε of the rejected mass onto drafted
    tokens attains it (docs/theory.md, "Lossy frontiers").

    Args:
        problem: any batch `(..., V)`, any law.
        tv: ε in [0, 1].

    Returns:
        A float, or `(...)` in float64.

    Raises:
        InvalidParameter: if `tv` is out of range. TooLarge: as `otm.optimal_acceptance`.

    Cost and accuracy: one optimal acceptance. Reference: docs/theory.md, "Lossy frontiers".

    >>> tv_frontier(otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(1)), tv=0.125)
    0.875
    """
    law = check_problem(problem).law
    distance = check_real(tv, name="tv", low=0.0, high=1.0)
    best = law.optimal_values(problem.draft, problem.target, [law.k])[0]
    return as_scalar_or_array(namespace(best).clip(best + distance, None, 1.0))
