"""The optimum enclosed without a sort: one binned verifier attains the lower end, one binned cut
proves the upper.
"""

from __future__ import annotations

import dataclasses

from otm._arrays import UNIT_ROUNDOFF, as_scalar_or_array, clip
from otm.drafts.iid import IID
from otm.problem import Problem, require_law
from otm.statistics import Certified
from otm.verifiers.optimal.bins import bracket_ends, check_bins


@dataclasses.dataclass(frozen=True, eq=False)
class Bracket(Certified):
    """Two sides of the optimum: some lossless verifier accepts `lower`, none accepts more than
    `upper`; floats or `(...)`.
    """


def optimal_bracket(problem: Problem, *, bins: int = 4096) -> Bracket:
    """Enclose the optimal acceptance between that of the binned verifier and the optimum of the
    binned problem.

    lower = Σ_y min(p(y)·a_b, q(y)) ≤ α* ≤ upper = 1 + min_{T a union of bins} [Q(T) − P(T)^k].

    Args:
        problem: any batch `(..., V)` with an `IID` law, NumPy or torch.
        bins: number of bins ≥ 1.

    Returns:
        Bracket(lower, upper), floats or `(...)` in float64; `lower` is the rule acceptance of
        `otm.Optimal(bins=bins)`, rounded down.

    Raises:
        Unsupported: for other laws.
        InvalidParameter: unless bins is an integer ≥ 1.

    Cost: O(V + bins) per row, no sort. Accuracy: both ends are moved outward by 8 (V + bins) + 64
        units of roundoff, 1.2e-10 at
    V = 128,256, more than rounding can do to them. Width: `upper` misses α* by the square of a
    bin's width, `lower` by the width: 1e-4 to 3e-4 with 4,096 bins on language models, k = 2 to 64.
    Reference: the cut formula of Hu et al. 2025 on bins; both sides: docs/theory.md, "The binned
        form".

    >>> bracket = optimal_bracket(
    ...     otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2)), bins=64
    ... )
    >>> (
    ...     round(bracket.lower, 12),
    ...     round(bracket.upper, 12),
    ... )  # two tokens in two bins: nothing is lost
    (0.9375, 0.9375)
    """
    require_law(
        problem,
        IID,
        message="optimal_bracket bins i.i.d. drafts; the problem's law is {law!r}. Use otm.optimum.",
    )
    count = check_bins(bins)
    ends = bracket_ends(problem, count)
    # A bin adds up to V masses one by one, the scan as many bins; levels are quotients of such
    # sums, ends sums over levels.
    moved = (8.0 * (problem.num_tokens + count) + 64.0) * UNIT_ROUNDOFF
    lower, upper = clip(ends[0] - moved, 0.0, 1.0), clip(ends[1] + moved, 0.0, 1.0)
    return Bracket(lower=as_scalar_or_array(lower), upper=as_scalar_or_array(upper))
