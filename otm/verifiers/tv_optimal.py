"""The best verifier within a total variation distance of the target: the optimal one, forgiving part of what it rejects."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._arrays import Array, namespace
from otm.drafts.iid import IID
from otm.pmf import check_real
from otm.problem import Problem
from otm.results import Definition
from otm.verifiers.base import Conditional, Verifier
from otm.verifiers.optimal.verifier import Optimal, OptimalRule


@dataclasses.dataclass(frozen=True)
class TvOptimal(Verifier):
    """Verify optimally; when all drafts are rejected, emit the first of them all the same with probability min(1, ε/(1 − α*)).

    α = min(1, α* + ε), which no scheme whose output law is within ε of q in total variation exceeds (`otm.lossy.tv_frontier`). Only
    the rejected mass ε moves, so that TV(π, q) ≤ ε. By rule and by membership agree. Lossy for ε > 0. Law: IID(k), any k.

    Args:
        tv: ε in [0, 1].

    Raises:
        InvalidParameter: if it is out of range. SolverFailure: on `prepare`, as `Optimal`.

    Cost: as `Optimal`. Accuracy: acceptance to rounding.
    Reference: docs/theory.md, "Lossy verification", the total variation frontier.

    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))  # α* = .9375
    >>> otm.acceptance(TvOptimal(0.03125), problem), otm.lossy.output_law(TvOptimal(0.03125), problem)
    (0.96875, array([0.53125, 0.46875]))
    """

    title = "optimal within TV"
    telling = ("tv",)
    lossless = False
    laws = (IID,)

    tv: float = 0.05

    def __post_init__(self) -> None:
        object.__setattr__(self, "tv", check_real(self.tv, name="tv", low=0.0, high=1.0))

    def prepare(self, problem: Problem) -> TvOptimalRule:
        """Prepare the optimal verifier and the part of its rejections that is forgiven."""
        inner = Optimal().prepare(problem)
        rejected = 1.0 - inner.upper
        return TvOptimalRule(problem=problem, inner=inner, forgiven=min(1.0, self.tv / rejected) if rejected > 0 else 0.0)

    def acceptance(self, problem: Problem, by: Definition) -> Array:
        """Return min(1, α* + ε), batched."""
        best = problem.law.optimal_values(problem.draft, problem.target, [problem.law.k])[0]
        return namespace(best).clip(best + self.tv, None, 1.0)


@dataclasses.dataclass(frozen=True, eq=False)
class TvOptimalRule(Conditional):
    """The prepared verifier.

    Attributes:
        inner: the optimal verifier.
        forgiven: the part of its rejections that ends in the first draft.
    """

    inner: OptimalRule
    forgiven: float

    @property
    def num_uniforms(self) -> int:
        """Those of the optimal verifier, and one to forgive."""
        return self.inner.num_uniforms + 1

    def split(self, drafts: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Move the forgiven part of the residual onto the first draft."""
        accepted, left = self.inner.split(drafts)
        accepted = np.array(accepted)
        accepted[np.arange(len(drafts)), drafts[:, 0]] += self.forgiven * left.sum(axis=-1)
        return accepted, (1.0 - self.forgiven) * left

    def verify(
        self, drafts: NDArray[np.int64], uniforms: NDArray[np.float64], state: NDArray[Any] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Verify optimally, then forgive."""
        output, accepted = self.inner.verify(drafts, uniforms[:, :-1], state)
        spared = ~accepted & (uniforms[:, -1] < self.forgiven)
        return np.where(spared, drafts[:, 0], output), accepted | spared
