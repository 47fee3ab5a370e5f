"""The transport problem stated in cvxpy, in the paper's notation, open to extra constraints."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import brief_repr
from otm.drafts.base import enumerate_drafts, members, readable
from otm.errors import TooLarge
from otm.problem import Problem, check_problem

MAX_ENTRIES = 1_000_000


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class TransportProgram:
    """SpecTr's program (4) as cvxpy objects.

    Attributes:
        plan: variable π `(n, V)`: row x is the draft sequence `drafts[x]`.
        acceptance: expression Pr(Y ∈ S(X)) = Σ π(x, y) 1{y ∈ S(x)}.
        constraints: both marginals (the likeliest token's follows from the others) and π ≥ 0;
            append to a copy for more.
        drafts: `(n, k)` the draft sequences.
        member: `(n, V)` the table 1{y ∈ S(x)}.
    """

    plan: Any
    acceptance: Any
    constraints: tuple[Any, ...]
    drafts: NDArray[np.int64]
    member: NDArray[np.bool_]

    __repr__ = brief_repr

    def problem(self, *extra: Any) -> Any:
        """Return the maximisation of the acceptance under these and any extra constraints."""
        import cvxpy as cp  # noqa: PLC0415  # a second to load: not before a program is asked for

        return cp.Problem(cp.Maximize(self.acceptance), [*self.constraints, *extra])


def optimum_program(problem: Problem) -> TransportProgram:
    """State the optimal transport problem with membership cost as a cvxpy program.

    max Σ_{x,y} π(x, y) 1{y ∈ S(x)} subject to Σ_y π(x, y) = P(x), Σ_x π(x, y) = q(y), π ≥ 0.

    Use it to ask what the fast solvers do not: a coupling that also satisfies constraints of your
    own (fairness between drafts, a bound on one token's acceptance, a monotone rule).

    Args:
        problem: one pair of distributions `(V,)`, any law that can be enumerated.

    Returns:
        TransportProgram; `program.problem().solve()` returns α*.

    Raises:
        TooLarge: beyond a million entries of π; `otm.optimum` goes further.
        ShapeMismatch: if the problem has leading axes.

    Cost: V · V^k variables and V^k + V equalities for i.i.d. drafts, before any solver starts.
    Reference: SpecTr, (4).

    >>> import otm
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))
    >>> round(float(optimum_program(problem).problem().solve(solver="HIGHS")), 9)
    0.9375
    """
    import cvxpy as cp  # noqa: PLC0415

    single = check_problem(problem).single(purpose="otm.transport.optimum_program")
    entries = single.law.num_sequences(single.num_tokens) * single.num_tokens
    if entries > MAX_ENTRIES:
        raise TooLarge(
            f"The cvxpy program is limited to {MAX_ENTRIES:,} entries of π; {single.law!r} over V "
            f"= {single.num_tokens} has {readable(entries)}. Call otm.optimum, which collapses "
            "draft sequences to sets."
        )
    table = enumerate_drafts(single.law, single.draft)
    member = members(table.tokens, single.num_tokens)
    plan = cp.Variable(member.shape, name="pi", nonneg=True)
    # The likeliest token's marginal follows from all others. Stated too, it would differ from what
    # follows by a rounding of the totals, and solvers call that infeasible.
    others = np.delete(np.arange(single.num_tokens), np.argmax(single.target))
    written: Any = cp.sum(plan, axis=0)
    constraints = (
        cp.sum(plan, axis=1) == table.mass,
        written[others] == single.target[others],
    )
    acceptance = cp.sum(cp.multiply(member.astype(np.float64), plan))
    return TransportProgram(
        plan=plan,
        acceptance=acceptance,
        constraints=constraints,
        drafts=table.tokens,
        member=member,
    )
