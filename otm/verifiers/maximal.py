"""Single-draft rejection: the maximal coupling, the rule that speculative decoding began with."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._arrays import Array, by_rows, inverse_cdf, quiet
from otm.drafts.base import Law
from otm.drafts.iid import IID
from otm.overlap import overlap
from otm.problem import Problem
from otm.results import Definition
from otm.verifiers.base import Conditional, Verifier


@dataclasses.dataclass(frozen=True)
class Maximal(Verifier):
    """Accept the single draft x with probability min(1, q(x)/p(x)), otherwise draw from the residual ∝ (q − p)₊.

    α = Σ_x min(p(x), q(x)) = 1 − TV(p, q), which no coupling exceeds. Rule and membership agree: a rejected draft has no residual
    mass. Lossless. Law: IID(1).

    Cost: O(V). Reference: Leviathan et al. 2023, Algorithm 1; Chen et al. 2023; SpecTr, Algorithm 1 and (1) (which prints this
    acceptance as the cost).

    >>> otm.acceptance(Maximal(), otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(1)))
    0.75
    """

    @property
    def lossless(self) -> bool:
        """Always."""
        return True

    def supports(self, law: Law) -> bool:
        """One i.i.d. draft."""
        return isinstance(law, IID) and law.k == 1

    def prepare(self, problem: Problem) -> MaximalRule:
        """Compute acceptance probabilities and residual."""
        keep, residual = single_draft_rejection(problem.draft, problem.target)
        return MaximalRule(problem=problem, keep=keep, residual=residual)

    def acceptance(self, problem: Problem, by: Definition) -> Array:
        """Return Σ min(p, q)."""
        return by_rows(lambda p, q: overlap(p, q)[None], problem.draft, problem.target)[0]


@dataclasses.dataclass(frozen=True, eq=False)
class MaximalRule(Conditional):
    """Acceptance probabilities `(V,)` and the normalised residual `(V,)` (the target where there is none)."""

    keep: NDArray[np.float64]
    residual: NDArray[np.float64]

    @property
    def num_uniforms(self) -> int:
        """One for the accept step, one for the residual draw."""
        return 2

    def split(self, drafts: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Put min(1, q/p) on the draft and the rest on the residual."""
        keep = self.keep[drafts[:, 0]]
        accepted = np.zeros((len(drafts), self.problem.num_tokens))
        accepted[np.arange(len(drafts)), drafts[:, 0]] = keep
        return accepted, (1.0 - keep)[:, None] * self.residual

    def verify(
        self, drafts: NDArray[np.int64], uniforms: NDArray[np.float64], state: NDArray[Any] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Accept where η < q(x)/p(x), otherwise draw from the residual."""
        accepted = uniforms[:, 0] < self.keep[drafts[:, 0]]
        return np.where(accepted, drafts[:, 0], inverse_cdf(self.residual, uniforms[:, 1])), accepted


def single_draft_rejection(
    selection: NDArray[np.float64], target: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return min(1, q/s) and the residual ∝ (q − s)₊ for a draft with law s; tokens that are never drafted get 0.

    The residual is normalised by its own sum, never by 1 − Σ min, which loses every digit when s is close to q. Where s = q
    nothing is ever rejected and the target stands in as a law to draw from.
    """
    with quiet():
        keep = np.where(selection > 0, np.minimum(1.0, target / selection), 0.0)
    excess = np.maximum(target - selection, 0.0)
    mass = excess.sum()
    return keep, excess / mass if mass > 0 else target
