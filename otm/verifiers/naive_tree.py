"""Single-draft rejection on the first draft; other drafts may equal the residual's token."""

from __future__ import annotations

import dataclasses

import numpy as np

from otm._machine.arrays import Array, at_least_one, by_rows, namespace, total
from otm.drafts.iid import IID
from otm.problem import Problem
from otm.results import Definition
from otm.verifiers.base import Verifier
from otm.verifiers.rules import AcceptOneOrCatch, single_draft_rejection


@dataclasses.dataclass(frozen=True)
class NaiveTree(Verifier):
    """Couple Y maximally with the first draft, and accept if Y equals any draft.

    Accept x₁ with probability min(1, q/p), else draw Y ∝ (q − p)₊; Y counts as accepted if it is
    any of the drafts.

        α = Σ min(p, q) + Σ (q − p)₊ [1 − (1 − p)^{k−1}].

    The rule accepts what is among the drafts, so rule and membership agree. Lossless. Law: IID(k).

    Cost: O(V).
    Accuracy: (3ν + 2 min(k, 64) + 16) u (docs/theory.md, "Plain sums").
    Reference: the naive tree baseline of Dynamic Delayed Tree Expansion 2026 (arXiv 2602.16994);
        Leviathan et al. 2023 for k = 1.

    >>> import otm
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))
    >>> otm.acceptance(NaiveTree(), problem)  # 3/4 + (1/4)(1/4)
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
