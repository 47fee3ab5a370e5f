"""The linear program's plan as a verifier: SpecTr's Algorithm 3, optimal for few tokens."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import Array, inverse_cdf, normalised_excess
from otm.drafts.base import Law
from otm.errors import InvalidParameter
from otm.problem import Problem
from otm.results import Definition, Optimum
from otm.transport.lp import optimum
from otm.verifiers.base import Conditional, Verifier


@dataclasses.dataclass(frozen=True)
class TransportPlan(Verifier):
    """Draw the output from the optimal transport plan's row for the drafted set.

    α = α*, the optimum of the law. "Accepted by the rule" means that the output is one of the
    drafts, so both definitions agree. Lossless. Law: any whose drafted sets can be enumerated.

    Cost: one linear program with Σ_{j≤k} C(V, j) rows (see `otm.optimum`), then O(V) per
        verification.
    Accuracy: acceptance within the certified gap, 1e-9; the output law is the target's to rounding.
    Reference: SpecTr, (4) and Algorithm 3, line 1.

    >>> import otm
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))
    >>> round(otm.acceptance(TransportPlan(), problem), 12)
    0.9375
    """

    title = "transport plan"
    lossless = True
    laws = (Law,)
    is_plan = True

    def prepare(self, problem: Problem) -> TransportPlanRule:
        """Solve the collapsed program and keep the flow."""
        solved = optimum(problem)
        excess = np.maximum(problem.target - np.asarray(solved.flow.sum(axis=0)).reshape(-1), 0.0)
        residual = normalised_excess(excess, problem.target)
        return TransportPlanRule(problem=problem, solved=solved, residual=residual)

    def acceptance(self, problem: Problem, by: Definition) -> Array:
        """Return the value of the plan."""
        single = problem.single(purpose="The linear program behind TransportPlan()")
        return np.asarray(math.fsum(optimum(single).flow.data))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class TransportPlanRule(Conditional):
    """The optimum, whose plan is the law of accepted outputs, and the residual `(V,)`."""

    num_uniforms = 2  # one for the choice within the plan's row, one for the residual draw

    solved: Optimum
    residual: NDArray[np.float64]

    def split(self, drafts: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Look up the plan's row for each drafted set."""
        accepted = self.solved.plan[self._sets(drafts)].toarray()
        left = np.maximum(1.0 - accepted.sum(axis=1), 0.0)
        return accepted, left[:, None] * self.residual

    def verify(
        self, drafts: NDArray[np.int64], uniforms: NDArray[np.float64], state: NDArray[Any] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Draw from the plan's row of the drafted set, and from the residual beyond the row."""
        plan = self.solved.plan
        rows, which = np.unique(self._sets(drafts), return_inverse=True)
        output = inverse_cdf(self.residual, uniforms[:, 1])
        accepted = np.zeros(len(drafts), dtype=bool)
        for number, row in enumerate(rows):
            here = np.flatnonzero(which == number)
            entries = slice(plan.indptr[row], plan.indptr[row + 1])
            position = np.searchsorted(
                np.cumsum(plan.data[entries]), uniforms[here, 0], side="right"
            )
            hit = position < entries.stop - entries.start
            output[here[hit]] = plan.indices[entries][position[hit]]
            accepted[here[hit]] = True
        return output, accepted

    def _sets(self, drafts: NDArray[np.int64]) -> NDArray[np.int64]:
        found = self.solved.sets.find(drafts)
        if (found < 0).any():
            raise InvalidParameter(
                f"The plan covers the drafts that {self.problem.law!r} can draw; "
                f"{drafts[found.argmin()].tolist()} is not among "
                "them. Pass drafts of positive probability."
            )
        return found
