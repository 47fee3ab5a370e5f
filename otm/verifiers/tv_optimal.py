"""The best verifier within a total variation distance of the target."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import Array, namespace
from otm.drafts.iid import IID
from otm.pmf import check_real
from otm.problem import Problem
from otm.results import Definition
from otm.scheme import parameter
from otm.verifiers.lossy_rule import Lossy
from otm.verifiers.optimal.verifier import OptimalRule, optimal_rule


@dataclasses.dataclass(frozen=True)
class TvOptimal(Lossy):
    """Select a draft like the optimal verifier, and verify towards π = q + λ (s − q).

    s is the law of the selected draft, λ = min(1, ε/(1 − α*)).

    A selected draft that the optimal verifier rejects is accepted all the same with probability λ.
    α = min(1, α* + ε), which no scheme whose output law is within ε of q in total variation exceeds
    (`otm.lossy.tv_frontier`); the output law is π, at TV(π, q) = λ (1 − α*) ≤ ε. One draft: the
    static ensemble. By rule and by membership agree. Lossy for ε > 0. Law: IID(k), any k.

    Args:
        tv: ε in [0, 1].

    Raises:
        InvalidParameter: if it is out of range. SolverFailure: on `prepare`, as `Optimal`.

    Cost: as `Optimal`.
    Accuracy: acceptance and output law to rounding.
    Reference: docs/theory.md, "Lossy rules".

    >>> import otm
    >>> # α* = .9375, s = (.5625, .4375)
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))
    >>> verifier = TvOptimal(0.03125)
    >>> otm.acceptance(verifier, problem), otm.lossy.output_law(verifier, problem)
    (0.96875, array([0.53125, 0.46875]))
    """

    title = "optimal within TV"
    display_fields = ("tv",)
    laws = (IID,)

    tv: float = parameter(check_real, default=0.05, low=0.0, high=1.0)

    def prepare(self, problem: Problem) -> OptimalRule:
        """Prepare the optimal verifier, with a part of all rejections forgiven."""
        rule = optimal_rule(problem)
        rejected = rule.built.gain
        return dataclasses.replace(
            rule, forgiven=min(1.0, self.tv / rejected) if rejected > 0 else 0.0
        )

    def output_law(self, problem: Problem) -> NDArray[np.float64]:
        """Return π = q + λ (s − q) `(V,)` of a problem of one row, float64 NumPy."""
        rule = self.prepare(problem)
        return np.asarray(problem.target + rule.forgiven * (rule.selection_law - problem.target))

    def acceptance(self, problem: Problem, by: Definition) -> Array:
        """Return min(1, α* + ε), batched."""
        best = problem.law.optimal_value(problem.draft, problem.target)
        return namespace(best).clip(best + self.tv, None, 1.0)
