"""Recursive rejection sampling: single-draft rejection against the residual of the previous round, draft after draft."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._arrays import Array, by_rows, inverse_cdf, namespace, total
from otm.drafts.base import Law
from otm.drafts.iid import IID
from otm.drafts.without_replacement import WithoutReplacement
from otm.overlap import overlap
from otm.problem import Problem
from otm.results import Definition
from otm.verifiers.base import Conditional, CurvedVerifier, first_accepted
from otm.verifiers.maximal import single_draft_rejection
from otm.verifiers.rejection_without_replacement import RecursiveRejectionWithoutReplacementRule, exact_acceptance


@dataclasses.dataclass(frozen=True)
class RecursiveRejection(CurvedVerifier):
    """Try the drafts in turn, each by single-draft rejection with the residual left by the rejections before it.

    r₀ = q; draft i is accepted with probability min(1, r_{i−1}(x)/p(x)); on rejection r_i ∝ (r_{i−1} − p)₊. After k rejections the
    output is drawn from r_k.

        α = 1 − Π_i (1 − Σ_x min(p(x), r_{i−1}(x))).

    Without replacement p is renormalised at each stage over the tokens not drafted yet, and the residual depends on the drafts that
    were rejected: α is a sum over paths (`otm.verifiers.rejection_without_replacement`).

    Rule and membership agree: a rejected token has no mass in any later residual. Lossless. Law: IID(k), WithoutReplacement(k).

    Cost: O(k V) for i.i.d. drafts; without replacement V!/(V − k + 1)! paths, at most ten million (else `TooLarge`; intervals from
    `otm.verifiers.rao_blackwell_acceptance`). Accuracy: each residual is normalised by its own sum, so the rejection
    probability keeps relative accuracy.
    Reference: RRS, SpecInfer [Miao et al. 2024, multi-step speculative sampling]; without replacement RSD [Jeon et al. 2024],
    Sequoia [Chen et al. 2024], and the batch of ERSD's generalised speculative decoding [Kobus & Gündüz 2025, Algorithm 4].

    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))
    >>> otm.acceptance(RecursiveRejection(), problem)  # 1 − (1/4)(3/4)
    0.8125
    """

    @property
    def lossless(self) -> bool:
        """Always."""
        return True

    def supports(self, law: Law) -> bool:
        """Any number of drafts, i.i.d. or without replacement."""
        return isinstance(law, IID | WithoutReplacement)

    def prepare(self, problem: Problem) -> RecursiveRejectionRule | RecursiveRejectionWithoutReplacementRule:
        """Compute the k acceptance vectors and the last residual; without replacement, running sums that give them on a path."""
        if isinstance(problem.law, WithoutReplacement):
            return RecursiveRejectionWithoutReplacementRule.of(problem)
        residual = problem.target
        stages = []
        for _ in range(problem.law.k):
            keep, residual = single_draft_rejection(problem.draft, residual)
            stages.append(keep)
        return RecursiveRejectionRule(problem=problem, keep=np.stack(stages), residual=residual)

    def curve(self, problem: Problem, ks: Sequence[int], by: Definition) -> Array:
        """Read every prefix of one recursion to max(ks), batched; without replacement, sum over paths for each k, one row."""
        if not isinstance(problem.law, WithoutReplacement):
            return by_rows(lambda p, q: _without_order(p, q, ks), problem.draft, problem.target)
        purpose = "The exact acceptance without replacement"
        values = [exact_acceptance(problem.with_law(problem.law.with_k(k)).single(purpose=purpose)) for k in ks]
        xp = namespace(problem.draft, problem.target)
        return xp.asarray(values, dtype=xp.float64, device=problem.draft.device)


@dataclasses.dataclass(frozen=True, eq=False)
class RecursiveRejectionRule(Conditional):
    """Acceptance probabilities of each stage `(k, V)` and the residual after the last one `(V,)`."""

    keep: NDArray[np.float64]
    residual: NDArray[np.float64]

    @property
    def num_uniforms(self) -> int:
        """One for each accept step, one for the residual draw."""
        return self.problem.law.k + 1

    def split(self, drafts: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Accept the drafts in turn; what survives all stages goes to the last residual."""
        rows = np.arange(len(drafts))
        accepted = np.zeros((len(drafts), self.problem.num_tokens))
        reaching = np.ones(len(drafts))
        for stage in range(drafts.shape[1]):
            keep = self.keep[stage, drafts[:, stage]]
            accepted[rows, drafts[:, stage]] += reaching * keep
            reaching = reaching * (1.0 - keep)
        return accepted, reaching[:, None] * self.residual

    def verify(
        self, drafts: NDArray[np.int64], uniforms: NDArray[np.float64], state: NDArray[Any] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the first draft with η_i < r_{i−1}(x)/p(x), else a draw from the last residual."""
        wins = uniforms[:, :-1] < self.keep[np.arange(drafts.shape[1]), drafts]
        return first_accepted(drafts, wins, inverse_cdf(self.residual, uniforms[:, -1]))


def rejection_levels(height: Callable[[Array], Array], whole: Array, ks: Sequence[int]) -> Array:
    """Return the acceptance after each of `ks` drafts, `(len(ks), ...)`, by a walk along the overlap curve.

    With m_i the probability that i drafts were rejected and t_i = m_0 + … + m_{i−1}, the residual after i rejections is
    (q − t_i p)₊/m_i, so that m_i = Σ (q − t_i p)₊ = 1 − H(t_i) (docs/theory.md, "Recursive rejection").

    Args:
        height: H at one level of each row.
        whole: Q(Ω) as `height` sums it, `(...)`: what H reaches where p = q, so that nothing is rejected there.
        ks: numbers of drafts.
    """
    xp = namespace(whole)
    rejected, level = xp.ones_like(whole), xp.zeros_like(whole)
    accepted: dict[int, Array] = {}
    for stage in range(1, max(ks) + 1):
        level = level + rejected
        rejected = xp.minimum(xp.clip(whole - height(level), 0.0, None), rejected)
        accepted[stage] = 1.0 - rejected
    return xp.stack([accepted[k] for k in ks], axis=0)


def _without_order(draft: Array, target: Array, ks: Sequence[int]) -> Array:
    """Evaluate the curve level by level: k passes are cheaper than a sort."""
    return rejection_levels(lambda level: overlap(draft, target, level), total(target), ks)
