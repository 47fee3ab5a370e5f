"""Single-draft rejection against rational arithmetic."""

from __future__ import annotations

from hypothesis import given, settings

import otm
from otm import KSeq, Maximal, Problem, RecursiveRejection
from tests import exact, strategies
from tests.tolerance import rounding


@settings(max_examples=150)
@given(strategies.iid_problems(max_tokens=6, max_k=1))
def test_maximal_is_one_minus_total_variation(problem: Problem) -> None:
    p, q = exact.exact(problem.draft), exact.exact(problem.target)
    wanted = float(sum(min(a, b) for a, b in zip(p, q, strict=True)))
    tolerance = rounding(problem.num_tokens, 1)
    assert abs(otm.acceptance(Maximal(), problem) - wanted) <= tolerance
    assert (
        abs(
            1 - otm.divergences.total_variation(draft=problem.draft, target=problem.target) - wanted
        )
        <= tolerance
    )
    # With one draft every exact scheme is the same: the optimum, K-SEQ (γ* = 1) and recursive
    # rejection.
    assert abs(otm.optimal_acceptance(problem) - wanted) <= tolerance
    assert abs(otm.acceptance(KSeq(), problem) - wanted) <= tolerance
    assert abs(otm.acceptance(RecursiveRejection(), problem) - wanted) <= tolerance
