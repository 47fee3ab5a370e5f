"""Recursive rejection sampling: single-draft rejection against the residual of the previous round, draft after draft."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from otm._arrays import Array, by_rows, namespace, quiet, total
from otm.drafts.iid import IID
from otm.drafts.without_replacement import WithoutReplacement
from otm.problem import Problem
from otm.results import Definition
from otm.verifiers._rejection_without_replacement import RecursiveRejectionWithoutReplacementRule, exact_acceptance
from otm.verifiers.base import CurvedVerifier
from otm.verifiers.rules import AcceptInTurn, single_draft_rejection


@dataclasses.dataclass(frozen=True)
class RecursiveRejection(CurvedVerifier):
    """Try the drafts in turn, each by single-draft rejection with the residual left by the rejections before it.

    r₀ = q; draft i is accepted with probability min(1, r_{i−1}(x)/p(x)); on rejection r_i ∝ (r_{i−1} − p)₊. After k rejections the
    output is drawn from r_k.

        α = 1 − Π_i (1 − Σ_x min(p(x), r_{i−1}(x))).

    Without replacement p is renormalised at each stage over the tokens not drafted yet, and the residual depends on the drafts that
    were rejected: α is a sum over paths (`otm.verifiers._rejection_without_replacement`).

    Rule and membership agree: a rejected token has no mass in any later residual. Lossless. Law: IID(k), WithoutReplacement(k).

    Cost: O(k V) for i.i.d. drafts; without replacement V!/(V − k + 1)! paths, at most ten million (else `TooLarge`; intervals from
    `otm.rao_blackwell_acceptance`). Accuracy: each residual is normalised by its own sum, so the rejection probability keeps
    relative accuracy.
    Reference: RRS, SpecInfer [Miao et al. 2024, multi-step speculative sampling]; without replacement RSD [Jeon et al. 2024],
    Sequoia [Chen et al. 2024], and the batch of ERSD's generalised speculative decoding [Kobus & Gündüz 2025, Algorithm 4].

    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))
    >>> otm.acceptance(RecursiveRejection(), problem)  # 1 − (1/4)(3/4)
    0.8125
    """

    lossless = True
    laws = (IID, WithoutReplacement)

    def prepare(self, problem: Problem) -> AcceptInTurn | RecursiveRejectionWithoutReplacementRule:
        """Compute the k acceptance vectors and the last residual; without replacement, running sums that give them on a path."""
        if isinstance(problem.law, WithoutReplacement):
            return RecursiveRejectionWithoutReplacementRule.of(problem)
        residual = problem.target
        stages = []
        for _ in range(problem.law.k):
            keep, residual = single_draft_rejection(problem.draft, residual)
            stages.append(keep)
        return AcceptInTurn(problem=problem, keep=np.stack(stages), residual=residual)

    def curve(self, problem: Problem, ks: Sequence[int], by: Definition) -> Array:
        """Read every prefix of one recursion to max(ks), batched; without replacement, sum over paths for each k, one row."""
        if not isinstance(problem.law, WithoutReplacement):
            return by_rows(lambda p, q: _recursion(p, q, ks), problem.draft, problem.target)
        purpose = "The exact acceptance without replacement"
        values = [exact_acceptance(problem.with_law(problem.law.with_k(k)).single(purpose=purpose)) for k in ks]
        xp = namespace(problem.draft, problem.target)
        return xp.asarray(values, dtype=xp.float64, device=problem.draft.device)


def _recursion(draft: Array, target: Array, ks: Sequence[int]) -> Array:
    """Carry m·r, the residual times the probability m that everything so far was rejected: its sum *is* that probability.

    (m r − m p)₊ sums to m·Σ (r − p)₊, so nothing is divided, and scaling costs no relative accuracy.
    """
    xp = namespace(draft, target)
    p, residual = xp.astype(draft, xp.float64), xp.astype(target, xp.float64, copy=True)
    rejected = xp.ones_like(p[..., 0])
    after: dict[int, Array] = {}
    with quiet():
        for stage in range(1, max(ks) + 1):
            residual -= xp.minimum(residual, rejected[..., None] * p)
            rejected = xp.minimum(total(residual), rejected)
            after[stage] = 1.0 - rejected
    return xp.stack([after[k] for k in ks], axis=0)
