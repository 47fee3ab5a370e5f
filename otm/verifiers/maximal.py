"""Single-draft rejection, the maximal coupling of the first speculative decoding."""

from __future__ import annotations

import dataclasses

from otm._machine.arrays import Array, by_rows, namespace, tracks_gradient, untracked
from otm.drafts.iid import IID
from otm.overlap import overlap_at
from otm.overlap.gradient import attach_curve_gradient
from otm.problem import Problem
from otm.results import Definition
from otm.verifiers.base import Verifier
from otm.verifiers.rules import AcceptInTurn, single_draft_rejection


@dataclasses.dataclass(frozen=True)
class Maximal(Verifier):
    """Accept x with probability min(1, q(x)/p(x)), otherwise draw from ∝ (q − p)₊.

    α = Σ_x min(p(x), q(x)) = 1 − TV(p, q), which no coupling exceeds. Rule and membership agree: a
    rejected draft has no residual mass. Lossless. Law: IID(1).

    Cost: O(V).
    Accuracy: (3ν + 16) u (docs/theory.md, "Plain sums").
    Reference: Leviathan et al. 2023, Algorithm 1; Chen et al. 2023; SpecTr, Algorithm 1 and (1)
        (which prints this acceptance as the cost).

    >>> import otm
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(1))
    >>> otm.acceptance(Maximal(), problem)
    0.75
    """

    title = "single-draft rejection"
    summary = (
        "standard speculative sampling with one draft (Leviathan et al. 2023; Chen et al. 2023)"
    )
    lossless = True
    laws = (IID(1),)
    differentiable = True
    table_columns = ("maximal_iid",)

    def prepare(self, problem: Problem) -> AcceptInTurn:
        """Compute acceptance probabilities and residual."""
        keep, residual = single_draft_rejection(problem.draft, problem.target)
        return AcceptInTurn(problem=problem, keep=keep[None], residual=residual)

    def acceptance(self, problem: Problem, by: Definition) -> Array:
        """Return Σ min(p, q)."""
        p, q = problem.draft, problem.target
        if not tracks_gradient(p, q):
            return by_rows(lambda p, q: overlap_at(p, q)[None], p, q)[0]
        value = by_rows(lambda p, q: overlap_at(p, q)[None], untracked(p), untracked(q))
        return attach_curve_gradient(
            namespace(p).asarray(value, device=p.device), p, q, levels=1.0
        )[0]
