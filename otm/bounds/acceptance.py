"""Bounds on acceptances: a bracket of the optimum without a sort, the limit, K-SEQ's bound."""

from __future__ import annotations

import dataclasses
import math

from otm._machine.arrays import UNIT_ROUNDOFF, Array, as_scalar_or_array, clip, namespace, total
from otm.bounds.rounding import bound_by_row, round_down, round_up
from otm.drafts.iid import IID
from otm.pmf import check_count
from otm.problem import Problem, check_problem, keyword_only, require_law
from otm.results.statistics import Certified
from otm.verifiers.optimal.bins import bracket_ends, check_bins, require_curve


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Bracket(Certified):
    """Two sides of the optimum: some lossless verifier accepts `lower`, none more than `upper`.

    Attributes:
        lower, upper: floats or `(...)`.
    """


def optimal_bracket(problem: Problem, *, bins: int = 4096) -> Bracket:
    """Enclose the optimal acceptance by binning the tokens by q/p instead of sorting.

    The binned verifier attains the lower end, the optimum of the binned problem is the upper one:
    Σ_y min(p(y)·a_b, q(y)) ≤ α* ≤ 1 + min_{T a union of bins} [Q(T) − b(T)].

    Args:
        problem: any batch `(..., V)` with law `IID` or `ThresholdRace`, NumPy or torch.
        bins: number of bins ≥ 1.

    Returns:
        Bracket(lower, upper), floats or `(...)` in float64; `lower` is the rule acceptance of
        `otm.Optimal(bins=bins)`, rounded down.

    Raises:
        Unsupported: for other laws.
        InvalidParameter: unless bins is an integer ≥ 1.

    Cost: O(V + bins) per row, no sort. Accuracy: both ends are moved outward by 8 (V + bins) + 64
        units of roundoff, 1.2e-10 at V = 128,256, more than rounding can do to them. Width: `upper`
        misses α* by the square of a bin's width, `lower` by the width: 1e-4 to 3e-4 with 4,096 bins
        on language models, k = 2 to 64.
    Reference: the cut formula of Hu et al. 2025 on bins; both sides: docs/theory.md, "The binned
        form".

    >>> import otm
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))
    >>> bracket = optimal_bracket(problem, bins=64)  # two tokens in two bins: nothing is lost
    >>> round(bracket.lower, 12), round(bracket.upper, 12)
    (0.9375, 0.9375)
    """
    require_curve(problem)
    count = check_bins(bins)
    ends = bracket_ends(problem, count)
    # A bin adds up to V masses one by one, the scan as many bins; levels are quotients of such
    # sums, ends sums over levels.
    moved = (8.0 * (problem.num_tokens + count) + 64.0) * UNIT_ROUNDOFF
    lower, upper = clip(ends[0] - moved, 0.0, 1.0), clip(ends[1] + moved, 0.0, 1.0)
    return Bracket(lower=as_scalar_or_array(lower), upper=as_scalar_or_array(upper))


def support_limit_upper(problem: Problem) -> Array:
    """Return the target's mass on tokens that can be drafted, a bound for any number of drafts.

    α*_k ≤ lim_{k→∞} α*_k = Q(supp p).

    Args:
        problem: any batch `(..., V)`, any law; for different drafters supp p is the union of their
            supports.

    Returns:
        A float, or `(...)` in float64, in [0, 1].

    Raises:
        InvalidParameter: if this is no problem; every problem has a limit.

    Cost: O(V). Accuracy: rounded up, by (3ν + 4) u of the value (`otm.bounds.rounding`).
    Reference: SpecTr, Lemma 1.

    >>> import otm
    >>> problem = otm.Problem(draft=[1.0, 0.0], target=[0.25, 0.75], law=otm.IID(9))
    >>> round(support_limit_upper(problem), 12)
    0.25
    """
    draft = check_problem(problem).draft
    if draft.ndim > problem.target.ndim:  # different drafters: what any of them can produce
        draft = namespace(draft).max(draft, axis=-2)

    def covered(p: Array, q: Array) -> Array:
        xp = namespace(p, q)
        mass = total(xp.where(p > 0, q, xp.zeros_like(q)))
        return clip(round_up(mass, p.shape[-1], units=4), 0.0, 1.0)

    return bound_by_row(covered, draft, problem.target)


@keyword_only(
    "otm.bounds.kseq_lower(otm.Problem(draft=p, target=q, law=otm.IID(k)))",
    reason="A bound takes one problem, which holds draft, target and law",
)
def kseq_lower(problem: Problem) -> Array:
    """Return the proven lower bound on K-SEQ's acceptance for every γ in [γ*, k].

    p_acc(γ) ≥ p_acc(k) ≥ (1 − (1 − 1/k)^k) Σ_x min(k p(x), q(x)) ≥ (1 − 1/e) α*_k.

    Args:
        problem: any batch `(..., V)` with an `IID` law.

    Returns:
        The middle expression: a float, or `(...)` in float64.

    Raises:
        Unsupported: for a law other than IID.

    Cost: O(V). Accuracy: rounded down, by (3ν + 16) u of the value (`otm.bounds.rounding`).
    Reference: SpecTr, Theorem 2 and its proof in appendix C.1.

    >>> import otm
    >>> round(kseq_lower(otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))), 12)
    0.75
    """
    message = "K-SEQ verifies i.i.d. drafts; the problem has {law!r}. Use law=otm.IID({k})."
    k = require_law(problem, IID, message=message).k

    def guaranteed(p: Array, q: Array) -> Array:
        value = kseq_factor(k) * total(namespace(p, q).minimum(k * p, q))
        return clip(round_down(value, p.shape[-1], units=16, weight=k), 0.0, 1.0)

    return bound_by_row(guaranteed, problem.draft, problem.target)


def kseq_factor(k: int) -> float:
    """Return the fraction of the optimum that K-SEQ is sure to reach, 1 − (1 − 1/k)^k.

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
