"""The largest acceptance of any scheme whose output law is near the target.

In total variation every bit of distance buys exactly as much acceptance. In relative entropy,
KL(q‖π) ≤ D, the best output law π is a taut string (`otm.divergences.taut_string`).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import Array, as_scalar_or_array, at_least_one, namespace, quiet
from otm.divergences import divergence_term
from otm.divergences.taut_string import Hull, by_ratio, string_law, upper_hull
from otm.drafts.iid import IID
from otm.drafts.successive_cut import prefix_containment
from otm.drafts.without_replacement import WithoutReplacement
from otm.errors import TooLarge
from otm.pmf import check_real
from otm.problem import Problem, check_problem, require_law
from otm.results.statistics import Certified

MAX_PREFIXES = 4096
"""Largest number of tokens for the cone program, and for drafts without replacement."""


def tv_frontier(problem: Problem, *, tv: float) -> Array:
    """Return the largest acceptance of any scheme within a total variation `tv` of the target.

    max over π with TV(π, q) ≤ ε of α*(π) = min(1, α*(q) + ε), for every draft law: α* changes by at
    most TV, since each cut's 1 + π(T) − b(T) does; and moving ε of the rejected mass onto drafted
    tokens attains the bound (docs/theory.md, "Lossy frontiers").

    Args:
        problem: any batch `(..., V)`, any law.
        tv: ε in [0, 1].

    Returns:
        A float, or `(...)` in float64.

    Raises:
        InvalidParameter: if `tv` is out of range. TooLarge: as `otm.optimal_acceptance`.

    Cost and accuracy: one optimal acceptance. Reference: docs/theory.md, "Lossy frontiers".

    >>> import otm
    >>> tv_frontier(otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(1)), tv=0.125)
    0.875
    """
    check_problem(problem)
    distance = check_real(tv, name="tv", low=0.0, high=1.0)
    best = problem.law.optimal_value(problem.draft, problem.target)
    return as_scalar_or_array(namespace(best).clip(best + distance, None, 1.0))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class KlFrontier(Certified):
    """A point of the acceptance–divergence frontier between two certificates.

    Attributes:
        lower: α* of `law`, evaluated by the cut formula: this much is reached.
        upper: a dual bound that no output law within the budget exceeds.
        law: the best output law π `(V,)`.
        kl: KL(q‖π) in nats, at most the budget up to rounding.
    """

    law: NDArray[np.float64]
    kl: float


def kl_frontier(problem: Problem, *, kl: float) -> KlFrontier:
    """Return the largest acceptance with KL(target‖output) ≤ `kl`, and a maximising output law.

    max { α*_k(p, π) : Σ q log(q/π) ≤ D }, concave and increasing in D from α*(p, q) to 1 (at D =
    KL(q‖p) for one draft).

    Args:
        problem: one pair of distributions `(V,)`; law `IID(k)` or `WithoutReplacement(k)`.
        kl: the budget D ≥ 0 in nats; infinity is allowed.

    Returns:
        KlFrontier; lower = upper up to rounding, by proof (`otm.divergences.taut_string`). The
        certificates do not rely on it.

    Raises:
        Unsupported: for other laws. TooLarge: without replacement, beyond 4,096 tokens.
        InvalidParameter: if `kl` is negative. ShapeMismatch: if the problem has leading axes.

    Cost: O(V log V) for i.i.d. drafts, with a Python loop over the tokens; without replacement
        O(V·k·nodes) besides. Accuracy: about 1e-13.
    Reference: k = 1: mentored decoding [Tran-Thien 2023]; k > 1: docs/theory.md, "Lossy frontiers".

    >>> import otm
    >>> problem = otm.Problem(draft=[0.5, 0.3, 0.2], target=[0, 0.5, 0.5], law=otm.IID(1))
    >>> round(kl_frontier(problem, kl=0.3).value, 6)
    0.759182
    """
    budget = check_real(kl, name="kl", low=0.0)
    single = _supported(problem, "otm.lossy.kl_frontier")
    order, rises = _containment_rises(single)
    none = int(np.count_nonzero(single.target[order] == 0))  # tokens with q = 0 come first
    q, b, b_of_none = single.target[order[none:]], rises[none:], rises[:none]
    block_q, block_b, block_of = upper_hull(q, b)
    hull = Hull.of(block_q, block_b, float(b_of_none.sum()))
    rejected = hull.solve(budget)
    alone = np.bincount(block_of, minlength=len(block_q))[block_of] == 1
    with quiet():
        contact = np.where(alone, b, q / block_q[block_of] * block_b[block_of])
    # Among the tokens with q = 0 the string stays on the obstacle max(0, b_j − e).
    reach = np.maximum(np.cumsum(b_of_none) - rejected, 0.0)
    law = np.zeros(single.num_tokens)
    law[order[:none]] = np.diff(reach, prepend=0.0)
    law[order[none:]] = string_law(hull, block_of, q, contact, rejected)[0]
    law /= law.sum()
    lower = float(single.law.optimal_value(single.draft, law))
    spent = float(divergence_term(single.target, law).sum())
    return KlFrontier(lower=lower, upper=_dual_upper(hull, rejected, budget), law=law, kl=spent)


@dataclasses.dataclass(frozen=True, eq=False)
class KlProgram:
    """The frontier as a cone program in cvxpy, open to additional constraints.

    Attributes:
        law: variable π `(V,)`.
        acceptance: scalar variable a, the acceptance.
        constraints: a ≤ 1 + π(T) − b(T) on prefixes T, Σπ = 1, Σ q log(q/π) ≤ D.
    """

    law: Any
    acceptance: Any
    constraints: tuple[Any, ...]

    def problem(self, *extra: Any) -> Any:
        """Return the maximisation of the acceptance, under any extra constraints."""
        import cvxpy as cp  # noqa: PLC0415  # takes a second to load: not before a program is asked for

        return cp.Problem(cp.Maximize(self.acceptance), [*self.constraints, *extra])


def kl_frontier_program(problem: Problem, *, kl: float) -> KlProgram:
    """State the Kullback–Leibler frontier as an exponential-cone program over the prefix cuts.

    max a subject to a ≤ 1 + π(T_j) − b(T_j) for every prefix T_j in the order of q/p, Σπ = 1, π ≥
    0, Σ q log(q/π) ≤ D.

    Exact, since the prefix cuts are the decisive ones at the optimum. Solve with solver="CLARABEL".

    Args:
        problem: one pair of distributions `(V,)` with law `IID(k)` or `WithoutReplacement(k)`, at
            most 4,096 tokens.
        kl: the budget D ≥ 0 in nats, finite.

    Returns:
        KlProgram; `program.problem().solve(solver="CLARABEL")` returns the frontier to the solver's
        1e-8.

    Raises:
        As `otm.lossy.kl_frontier`.

    Cost: one interior-point solution, about 0.1 s at V = 3,000.
    Reference: docs/theory.md, "Lossy frontiers".

    >>> import otm
    >>> problem = otm.Problem(draft=[0.5, 0.3, 0.2], target=[0, 0.5, 0.5], law=otm.IID(1))
    >>> value = kl_frontier_program(problem, kl=0.3).problem().solve(solver="CLARABEL")
    >>> round(float(value), 5)
    0.75918
    """
    import cvxpy as cp  # noqa: PLC0415

    budget = check_real(kl, name="kl", low=0.0, high=1e300)
    single = _supported(problem, "otm.lossy.kl_frontier_program")
    _check_size(single.num_tokens, "The cone program of the frontier")
    order, containment = _prefix_containment(single)
    q = single.target[order]
    # The distribution function along the order keeps the constraints sparse: π is its difference.
    reach = cp.Variable(len(order), name="F")
    law_sorted = cp.hstack([reach[:1], cp.diff(reach)]) if len(order) > 1 else reach
    acceptance = cp.Variable(name="a")
    live = np.flatnonzero(q > 0)
    spent = float(np.sum(q[live] * np.log(q[live]))) - q[live] @ cp.log(law_sorted[live])
    constraints = (
        law_sorted >= 0,
        reach[-1] == 1,
        acceptance <= 1 + reach - containment,
        acceptance <= 1,
        spent <= budget,
    )
    position = np.full(single.num_tokens, len(order))
    position[order] = np.arange(len(order))
    law = cp.hstack([law_sorted, np.zeros(1)])[position]
    return KlProgram(law=law, acceptance=acceptance, constraints=constraints)


def _dual_upper(hull: Hull, rejected: float, budget: float) -> float:
    """Evaluate the Lagrangian dual at the string's multipliers, always an upper bound."""
    # With any non-decreasing v ≥ 0 along the order, λ = 1/(v_last − v_first) and cut weights μ_j =
    # λ (v_{j+1} − v_j), weak duality gives α ≤ 1 − Σ μ_j b_j + λ (v_last + D − 1 − Σ q log v). The
    # optimum has v = q/π. Cuts inside a block or a flat have weight 0: the sums run over blocks.
    if rejected == 0.0:
        return 1.0
    pinsker = min(1.0, 1.0 - hull.most_rejected + math.sqrt(0.5 * budget))
    v_first, v = _multipliers(hull, rejected)
    spread = float(v[-1]) - v_first
    if not 1e-12 <= spread < math.inf:
        # For tiny budgets v is constant up to rounding, and the frontier in total variation, at
        # Pinsker's TV ≤ √(D/2), is as good.
        return pinsker
    below = hull.vertical + np.cumsum(hull.b) - hull.b
    cuts = np.diff(v, prepend=v_first) @ below
    return float(min(pinsker, 1.0 + (v[-1] - 1.0 + budget - hull.q @ np.log(v) - cuts) / spread))


def _multipliers(hull: Hull, rejected: float) -> tuple[float, NDArray[np.float64]]:
    """Return v = q/π at the string's start, 0 where tokens with q = 0 carry mass, and by block."""
    first, q_first, mass_first, last, q_last, mass_last = hull.flats(rejected)
    with quiet():
        v = hull.q / hull.b
        if first:
            v[:first] = q_first / mass_first
        if last:
            v[-last:] = q_last / mass_last
    v = np.maximum.accumulate(v)
    return 0.0 if not first and mass_first > 0 else float(v[0]), v


def _prefix_containment(single: Problem) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the tokens with p + q > 0 in ascending order of q/p, and b of each prefix `(n,)`."""
    p, q = single.draft, single.target
    live = np.flatnonzero(p + q > 0)
    order = live[by_ratio(p[live], q[live])]
    if isinstance(single.law, IID):
        return order, np.minimum(np.cumsum(p[order]), 1.0) ** single.num_drafts
    _check_size(len(order), "The frontier without replacement")
    return order, prefix_containment(p[order], single.num_drafts)


def _containment_rises(single: Problem) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the tokens in order as `_prefix_containment`, and the increments of b."""
    order, containment = _prefix_containment(single)
    p, k = single.draft[order], single.num_drafts
    if not isinstance(single.law, IID):
        return order, np.maximum(np.diff(containment, prepend=0.0), 0.0)
    if k == 1:
        return order, p
    # P_j^k (1 − (1 − p_j/P_j)^k), which differences of powers would round away
    prefix = np.cumsum(p)
    with quiet():
        share = np.where(prefix > 0, p / prefix, 0.0)
    return order, np.minimum(prefix, 1.0) ** k * at_least_one(share, k)


def _supported(problem: Problem, name: str) -> Problem:
    require_law(
        problem,
        IID,
        WithoutReplacement,
        message=f"{name} needs a law whose decisive cuts are prefixes in the order of q/p, IID(k) "
        "or WithoutReplacement(k); the problem has {law!r}. Use otm.lossy.tv_frontier, which holds "
        "for every law.",
    )
    return problem.single(purpose=name)


def _check_size(num_tokens: int, what: str) -> None:
    if num_tokens > MAX_PREFIXES:
        raise TooLarge(
            f"{what} is limited to {MAX_PREFIXES:,} tokens; there are {num_tokens:,}. Call "
            "otm.lossy.kl_frontier with i.i.d. drafts, which has no limit, or restrict both "
            "distributions to the likeliest tokens."
        )
