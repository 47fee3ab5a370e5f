"""K-SEQ's guarantee: how much of the optimum sequential selection is sure to reach."""

from __future__ import annotations

import math

from otm._arrays import Array, as_scalar_or_array, by_rows, clip, namespace, total
from otm.bounds.outward import down
from otm.drafts.iid import IID
from otm.pmf import check_count
from otm.problem import Problem, require_law


def kseq_lower(problem: Problem) -> Array:
    """Return the proven lower bound on K-SEQ's acceptance for every γ in [γ*, k].

    p_acc(γ) ≥ p_acc(k) ≥ (1 − (1 − 1/k)^k) Σ_x min(k p(x), q(x)) ≥ (1 − 1/e) α*_k.

    Args:
        problem: any batch `(..., V)` with an `IID` law.

    Returns:
        The middle expression: a float, or `(...)` in float64.

    Raises:
        Unsupported: for a law other than IID.

    Cost: O(V). Accuracy: rounded down, by (3ν + 16) u of the value (`otm.bounds.outward`).
    Reference: SpecTr, Theorem 2 and its proof in appendix C.1.

    >>> round(kseq_lower(otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))), 12)
    0.75
    """
    message = "K-SEQ verifies i.i.d. drafts; the problem has {law!r}. Use law=otm.IID({law.k})."
    k = require_law(problem, IID, message=message).k
    factor = kseq_factor(k)

    def bound(p: Array, q: Array) -> Array:
        return clip(
            down(
                factor * total(namespace(p, q).minimum(k * p, q)), p.shape[-1], units=16, weight=k
            ),
            0.0,
            1.0,
        )[None]

    return as_scalar_or_array(by_rows(bound, problem.draft, problem.target)[0])


def kseq_factor(k: int) -> float:
    """Return 1 − (1 − 1/k)^k, the fraction of the optimum that K-SEQ is sure to reach; above 1 −
    1/e for every k.

    Args:
        k: number of drafts ≥ 1.

    Returns:
        The factor, in (1 − 1/e, 1], non-increasing in k.

    Raises:
        InvalidParameter: unless k is an integer ≥ 1.

    Cost: O(1). Accuracy: a few units in the last place, rounded down to at least 1 − 1/e, for every
        k.
    Reference: SpecTr, appendix C.1.

    >>> kseq_factor(2)
    0.75
    """
    count = check_count(k, name="k")
    if count == 1:
        return 1.0
    # 1 − 1/k loses the digits of 1/k that the k-th power asks for.
    return max(-math.expm1(count * math.log1p(-1.0 / count)), -math.expm1(-1.0))
