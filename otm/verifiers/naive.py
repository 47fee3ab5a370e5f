"""Verification by looking whether what was drawn is drafted: naive sampling, the naive tree."""

from __future__ import annotations

import dataclasses

import numpy as np

from otm._arrays import Array, at_least_one, by_rows, namespace, total, unit_rows
from otm.drafts.base import Law
from otm.drafts.iid import IID
from otm.problem import Problem
from otm.results import Definition
from otm.verifiers.base import Verifier
from otm.verifiers.rules import AcceptOneOrCatch, single_draft_rejection


@dataclasses.dataclass(frozen=True)
class Naive(Verifier):
    """Draw Y from the target, independently of the drafts, and accept it if it is among them.

        α = Σ_y q(y)·Pr(y ∈ S),

    for i.i.d. drafts Σ q [1 − (1 − p)^k]. Rule and membership agree. Lossless. Law: any; for `TopK`
    it is optimal.

    Cost: that of the law's inclusion probabilities: O(V), without replacement O(V·k·nodes).
    Accuracy: theirs, and (3ν + 16) u (docs/theory.md, "Plain sums").
    Reference: naive sampling, SpecInfer [Miao et al. 2024], the baseline of multi-step speculative
        sampling.

    >>> import otm
    >>> otm.acceptance(
    ...     Naive(), otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))
    ... )  # (15/16 + 7/16)/2
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
        """Accept no draft: the draw from the target catches whichever it hits."""
        q = problem.target
        return AcceptOneOrCatch(problem=problem, position=0, keep=np.zeros(len(q) + 1), residual=q)

    def acceptance(self, problem: Problem, by: Definition) -> Array:
        """Sum the target's mass times the inclusion probabilities."""
        return total(problem.law.inclusion(problem.draft) * unit_rows(problem.target))


@dataclasses.dataclass(frozen=True)
class NaiveTree(Verifier):
    """Couple Y maximally with the first draft, and accept it if it equals any of the drafts.

    Accept x₁ with probability min(1, q/p), else draw Y ∝ (q − p)₊; Y counts as accepted if it is
    any of the drafts.

        α = Σ min(p, q) + Σ (q − p)₊ [1 − (1 − p)^{k−1}].

    The rule accepts what is among the drafts, so rule and membership agree. Lossless. Law: IID(k).

    Cost: O(V).
    Accuracy: (3ν + 2 min(k, 64) + 16) u (docs/theory.md, "Plain sums").
    Reference: the naive tree baseline of Dynamic Delayed Tree Expansion 2026 (arXiv 2602.16994);
        Leviathan et al. 2023 for k = 1.

    >>> import otm
    >>> otm.acceptance(
    ...     NaiveTree(), otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))
    ... )  # 3/4 + (1/4)(1/4)
    0.8125
    """

    title = "naive tree"
    summary = "the maximal coupling on the first draft; its residual may hit the others"
    lossless = True
    laws = (IID,)
    nested_in_k = True
    table_columns = ("naive_tree_iid",)

    def prepare(self, problem: Problem) -> AcceptOneOrCatch:
        """Compute acceptance probabilities and residual of the first draft."""
        keep, residual = single_draft_rejection(problem.draft, problem.target)
        return AcceptOneOrCatch(
            problem=problem, position=0, keep=np.append(keep, 0.0), residual=residual
        )

    def acceptance(self, problem: Problem, by: Definition) -> Array:
        """Evaluate the closed form, batched."""
        return by_rows(
            lambda p, q: _acceptance(p, q, problem.num_drafts)[None], problem.draft, problem.target
        )[0]


def _acceptance(draft: Array, target: Array, k: int) -> Array:
    xp = namespace(draft, target)
    caught = at_least_one(draft, k - 1) if k > 1 else xp.zeros_like(draft)
    excess = xp.clip(target - draft, 0.0, None)
    return total(xp.minimum(draft, target)) + total(excess * caught)
