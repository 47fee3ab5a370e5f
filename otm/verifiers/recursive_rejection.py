"""Recursive rejection: single-draft rejection against the residual of the round before."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from otm._machine.arrays import (
    Array,
    by_rows,
    namespace,
    total,
    tracks_gradient,
    unit_rows,
    untracked,
    with_gradient,
)
from otm.drafts.iid import IID
from otm.drafts.without_replacement import WithoutReplacement
from otm.overlap import overlap_at
from otm.overlap.gradient import height_and_slope
from otm.problem import Problem
from otm.results import Definition
from otm.verifiers.base import CurvedVerifier
from otm.verifiers.rejection_without_replacement import (
    RecursiveRejectionWithoutReplacementRule,
    exact_acceptance,
    with_path_gradient,
)
from otm.verifiers.rules import AcceptInTurn, single_draft_rejection


@dataclasses.dataclass(frozen=True)
class RecursiveRejection(CurvedVerifier):
    """Try the drafts in turn, each by single-draft rejection against the current residual.

    r₀ = q; draft i is accepted with probability min(1, r_{i−1}(x)/p(x)); on rejection r_i ∝
    (r_{i−1} − p)₊. After k rejections the output is drawn from r_k.

        α = 1 − Π_i (1 − Σ_x min(p(x), r_{i−1}(x))).

    Without replacement p is renormalised at each stage over the tokens not drafted yet, and the
    residual depends on the drafts that were rejected: α is a sum over paths
    (`otm.verifiers.rejection_without_replacement`).

    Rule and membership agree: a rejected token has no mass in any later residual. Lossless. Law:
    IID(k), WithoutReplacement(k).

    Cost: O(k V) for i.i.d. drafts; without replacement V!/(V − k + 1)! paths, at most ten million
        (else `TooLarge`; intervals from `otm.verifiers.rao_blackwell_acceptance`).
    Accuracy: each residual is normalised by its own sum, so the rejection probability keeps
        relative accuracy.
    Gradients: under both laws; without replacement see `MAX_DIFFERENTIATED_PATHS`.
    Reference: RRS, SpecInfer [Miao et al. 2024, multi-step speculative sampling]; without
        replacement RSD [Jeon et al. 2024], Sequoia [Chen et al. 2024], and the batch of ERSD's
        generalised speculative decoding [Kobus & Gündüz 2025, Algorithm 4].

    >>> import otm
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))
    >>> otm.acceptance(otm.RecursiveRejection(), problem)  # 1 − (1/4)(3/4)
    0.8125
    """

    title = "recursive rejection"
    summary = "tries the drafts in turn, each against what the target has left (SpecInfer, RSD)"
    lossless = True
    laws = (IID, WithoutReplacement)
    differentiable = True
    nested_in_k = True
    table_columns = ("recursive_rejection_iid",)

    def prepare(self, problem: Problem) -> AcceptInTurn | RecursiveRejectionWithoutReplacementRule:
        """Compute k acceptance vectors and the last residual, or running sums for both."""
        if isinstance(problem.law, WithoutReplacement):
            return RecursiveRejectionWithoutReplacementRule.of(problem)
        residual = problem.target
        stages = []
        for _ in range(problem.num_drafts):
            keep, residual = single_draft_rejection(problem.draft, residual)
            stages.append(keep)
        return AcceptInTurn(problem=problem, keep=np.stack(stages), residual=residual)

    def curve(self, problem: Problem, ks: Sequence[int], by: Definition) -> Array:
        """Evaluate one recursion to max(ks), batched, or without replacement a sum over paths."""
        if not isinstance(problem.law, WithoutReplacement):
            return _without_order(problem.draft, problem.target, ks)
        purpose = "The exact acceptance without replacement"
        p, q, xp = problem.draft, problem.target, namespace(problem.draft, problem.target)
        # In float64 at once: float32 rows that pass the gate twice are rounded twice.
        plain = Problem(
            draft=unit_rows(untracked(p)), target=unit_rows(untracked(q)), law=problem.law
        )
        single = plain.single(purpose=purpose)
        rows = [single.with_law(WithoutReplacement(k)) for k in ks]
        values = [exact_acceptance(row) for row in rows]
        if tracks_gradient(p, q):
            return xp.stack(
                [
                    with_path_gradient(value, p, q, row)
                    for value, row in zip(values, rows, strict=True)
                ],
                axis=0,
            )
        return xp.asarray(values, dtype=xp.float64, device=problem.draft.device)


def rejection_levels(height: Callable[[Array], Array], whole: Array, ks: Sequence[int]) -> Array:
    """Walk along the overlap curve to the acceptance `(len(ks), ...)` after each of `ks` drafts.

    With m_i the probability that i drafts were rejected and t_i = m_0 + … + m_{i−1}, the residual
    after i rejections is (q − t_i p)₊/m_i, so that m_i = Σ (q − t_i p)₊ = 1 − H(t_i)
    (docs/theory.md, "Recursive rejection").

    Args:
        height: H at one level of each row.
        whole: Q(Ω) as `height` sums it, `(...)`: what H reaches where p = q, so that nothing is
            rejected there.
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

    def values(p: Array, q: Array) -> Array:
        return rejection_levels(lambda level: overlap_at(p, q, level), total(q), ks)

    if tracks_gradient(draft, target):
        found = namespace(draft).asarray(
            by_rows(values, untracked(draft), untracked(target)), device=draft.device
        )
        return with_gradient(found, _levels_in_turn(draft, target, ks))
    return by_rows(values, draft, target)


def _levels_in_turn(draft: Array, target: Array, ks: Sequence[int]) -> Array:
    """Return H(t_k) for each k, with the gradient passed on by the earlier levels."""
    xp = namespace(draft, target)
    level = xp.ones_like(total(untracked(target)))
    moved, heights = 0.0 * level, {}
    for stage in range(1, max(ks) + 1):
        height, slope = height_and_slope(draft, target, level)
        heights[stage] = height + slope * moved
        moved = moved - heights[stage]
        level = level + 1.0 - untracked(height)
    return xp.stack([heights[k] for k in ks], axis=0)
