"""Naive verification: sample the target and accept a token that was drafted, without coupling."""

from __future__ import annotations

import dataclasses

import numpy as np

from otm._machine.arrays import Array, total, unit_rows
from otm.drafts.base import Law
from otm.problem import Problem
from otm.results import Definition
from otm.verifiers.base import Verifier
from otm.verifiers.rules import AcceptOneOrCatch


@dataclasses.dataclass(frozen=True)
class Naive(Verifier):
    """Draw Y from the target, independently of the drafts, and accept if Y was drafted.

        α = Σ_y q(y)·Pr(y ∈ S),

    for i.i.d. drafts Σ q [1 − (1 − p)^k]. Rule and membership agree. Lossless. Law: any; for `TopK`
    it is optimal.

    Cost: that of the law's inclusion probabilities: O(V), without replacement O(V·k·nodes).
    Accuracy: theirs, and (3ν + 16) u (docs/theory.md, "Plain sums").
    Reference: naive sampling, SpecInfer [Miao et al. 2024], the baseline of multi-step speculative
        sampling.

    >>> import otm
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))
    >>> otm.acceptance(Naive(), problem)  # (15/16 + 7/16)/2
    0.6875
    """

    title = "naive"
    summary = (
        "samples the target and looks whether a draft hit it; with top-k drafts nothing "
        "lossless does better"
    )
    lossless = True
    laws = (Law,)
    nested_in_k = True
    table_columns = ("naive_iid", "naive_greedy", "naive_top_k")

    def prepare(self, problem: Problem) -> AcceptOneOrCatch:
        """Accept no draft by itself: the draw from the target accepts any draft hit."""
        q = problem.target
        return AcceptOneOrCatch(problem=problem, position=0, keep=np.zeros(len(q) + 1), residual=q)

    def acceptance(self, problem: Problem, by: Definition) -> Array:
        """Sum the target's mass times the inclusion probabilities."""
        return total(problem.law.inclusion(problem.draft) * unit_rows(problem.target))
