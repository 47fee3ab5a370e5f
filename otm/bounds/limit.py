"""What no number of drafts can exceed: the target's mass on tokens that the draft model can produce
at all.
"""

from __future__ import annotations

from otm._arrays import Array, as_scalar_or_array, by_rows, clip, namespace, total
from otm.bounds.outward import up
from otm.problem import Problem, check_problem


def support_limit_upper(problem: Problem) -> Array:
    """Return lim_{k→∞} α*_k, which every α*_k approaches from below.

    α*_k ≤ lim_k α*_k = Q(supp p).

    Args:
        problem: any batch `(..., V)`, any law; for different drafters supp p is the union of their
            supports.

    Returns:
        A float, or `(...)` in float64, in [0, 1].

    Raises:
        InvalidParameter: if this is no problem; every problem has a limit.

    Cost: O(V). Accuracy: rounded up, by (3ν + 4) u of the value (`otm.bounds.outward`). Reference:
        SpecTr, Lemma 1.

    >>> round(
    ...     support_limit_upper(otm.Problem(draft=[1.0, 0.0], target=[0.25, 0.75], law=otm.IID(9))),
    ...     12,
    ... )
    0.25
    """

    def covered(p: Array, q: Array) -> Array:
        xp = namespace(p, q)
        return clip(
            up(total(xp.where(p > 0, q, xp.zeros_like(q))), p.shape[-1], units=4), 0.0, 1.0
        )[None]

    draft = check_problem(problem).draft
    if draft.ndim > problem.target.ndim:  # different drafters: what any of them can produce
        draft = namespace(draft).max(draft, axis=-2)
    return as_scalar_or_array(by_rows(covered, draft, problem.target)[0])
