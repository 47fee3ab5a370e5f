"""Single-draft rejection on the first draft; the other drafts may catch the residual by luck."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._arrays import Array, by_rows, inverse_cdf, namespace, quiet, total
from otm.drafts.base import Law
from otm.drafts.iid import IID
from otm.problem import Problem
from otm.results import Definition, is_member
from otm.verifiers.base import Conditional, Verifier, members
from otm.verifiers.maximal import single_draft_rejection


@dataclasses.dataclass(frozen=True)
class NaiveTree(Verifier):
    """Couple Y maximally with the first draft, then walk on in the tree wherever Y happens to have been drafted.

    Accept x₁ with probability min(1, q/p), else draw Y ∝ (q − p)₊; Y counts as accepted if it is any of the drafts.

        α = Σ min(p, q) + Σ (q − p)₊ [1 − (1 − p)^{k−1}].

    The rule accepts what is among the drafts, so rule and membership agree. Lossless. Law: IID(k).

    Cost: O(V). Reference: the naive tree baseline of Dynamic Delayed Tree Expansion 2026 (arXiv 2602.16994); Leviathan et al. 2023
    for k = 1.

    >>> otm.acceptance(NaiveTree(), otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2)))  # 3/4 + (1/4)(1/4)
    0.8125
    """

    @property
    def lossless(self) -> bool:
        """Always."""
        return True

    def supports(self, law: Law) -> bool:
        """Any number of i.i.d. drafts."""
        return isinstance(law, IID)

    def prepare(self, problem: Problem) -> NaiveTreeRule:
        """Compute acceptance probabilities and residual of the first draft."""
        keep, residual = single_draft_rejection(problem.draft, problem.target)
        return NaiveTreeRule(problem=problem, keep=keep, residual=residual)

    def acceptance(self, problem: Problem, by: Definition) -> Array:
        """Evaluate the closed form, batched."""
        return by_rows(lambda p, q: _acceptance(p, q, problem.law.k)[None], problem.draft, problem.target)[0]


def _acceptance(draft: Array, target: Array, k: int) -> Array:
    xp = namespace(draft, target)
    p, q = xp.astype(draft, xp.float64), xp.astype(target, xp.float64)
    caught = xp.zeros_like(p)
    if k > 1:
        with quiet():
            caught = -xp.expm1((k - 1) * xp.log1p(-xp.clip(p, 0.0, 1.0)))
    return total(xp.minimum(p, q)) + total(xp.clip(q - p, 0.0, None) * caught)


@dataclasses.dataclass(frozen=True, eq=False)
class NaiveTreeRule(Conditional):
    """Acceptance probabilities of the first draft `(V,)` and the normalised residual `(V,)`."""

    keep: NDArray[np.float64]
    residual: NDArray[np.float64]

    @property
    def num_uniforms(self) -> int:
        """One for the accept step, one for the residual draw."""
        return 2

    def split(self, drafts: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Put min(1, q/p) on the first draft and the rest on the residual; what lies on a draft is accepted."""
        keep = self.keep[drafts[:, 0]]
        law = (1.0 - keep)[:, None] * self.residual
        law[np.arange(len(drafts)), drafts[:, 0]] += keep
        accepted = np.where(members(drafts, self.problem.num_tokens), law, 0.0)
        return accepted, law - accepted

    def verify(
        self, drafts: NDArray[np.int64], uniforms: NDArray[np.float64], state: NDArray[Any] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Accept the first draft where η < q(x)/p(x), otherwise draw from the residual; then look among the drafts."""
        first = uniforms[:, 0] < self.keep[drafts[:, 0]]
        output = np.where(first, drafts[:, 0], inverse_cdf(self.residual, uniforms[:, 1]))
        return output, is_member(output, drafts)
