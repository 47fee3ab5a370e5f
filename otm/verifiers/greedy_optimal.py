"""The optimal verifier when all drafts but the last are fixed."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._arrays import Array, inverse_cdf
from otm.drafts.base import PAD, Law
from otm.drafts.greedy import Greedy
from otm.problem import Problem
from otm.results import Definition, is_member
from otm.verifiers.base import Conditional, Verifier, members


@dataclasses.dataclass(frozen=True)
class GreedyOptimal(Verifier):
    """Single-draft rejection on the one random draft; whatever it leaves over, the fixed drafts may take.

    With s the law of the last draft x (p renormalised off the top tokens): accept x with probability min(1, q(x)/s(x)), else draw
    Y ∝ q on the top tokens and (q − s)₊ off them. A token of the top counts as accepted.

        α = Q(top) + Σ_{i ∉ top} min(q(i), s(i)) = α*,

    the optimum of the law: a rejected x has q(x) < s(x), so the residual cannot hit it. Rule and membership agree. Lossless.
    Law: Greedy(k).

    Cost: O(V log V). Reference: Hu et al. 2025, verification of greedy draft sampling.

    >>> problem = otm.Problem(draft=[0.5, 0.3, 0.2], target=[0.2, 0.2, 0.6], law=otm.Greedy(2))
    >>> round(otm.acceptance(GreedyOptimal(), problem), 12), round(otm.optimal_acceptance(problem), 12)
    (0.8, 0.8)
    """

    @property
    def lossless(self) -> bool:
        """Always."""
        return True

    def supports(self, law: Law) -> bool:
        """Any number of greedy drafts."""
        return isinstance(law, Greedy)

    def prepare(self, problem: Problem) -> GreedyOptimalRule:
        """Compute the accept probabilities of the last draft and the law of the output after a rejection."""
        law = problem.law
        if not isinstance(law, Greedy):  # what require_support has made sure of, said to the type checker
            raise TypeError(f"GreedyOptimal needs Greedy drafts; got {law!r}.")
        top, rest = law.parts(problem.draft)
        excess = np.maximum(problem.target - rest, 0.0)
        excess[top] = problem.target[top]
        keep = np.ones(problem.num_tokens)
        np.divide(problem.target, rest, out=keep, where=rest > 0)
        mass = excess.sum()
        residual = excess / mass if mass > 0 else problem.target
        return GreedyOptimalRule(problem=problem, keep=np.minimum(keep, 1.0), residual=residual)

    def acceptance(self, problem: Problem, by: Definition) -> Array:
        """Return the optimum of the law, batched."""
        return problem.law.optimal_values(problem.draft, problem.target, [problem.law.k])[0]


@dataclasses.dataclass(frozen=True, eq=False)
class GreedyOptimalRule(Conditional):
    """Acceptance probabilities of the last draft `(V,)` and the law of the output after its rejection `(V,)`."""

    keep: NDArray[np.float64]
    residual: NDArray[np.float64]

    @property
    def num_uniforms(self) -> int:
        """One for the accept step, one for the draw after a rejection."""
        return 2

    def split(self, drafts: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Accept the last draft or draw from the residual; what lies on a draft is accepted."""
        keep = self._keep(drafts)
        law = (1.0 - keep)[:, None] * self.residual
        law[np.arange(len(drafts)), drafts[:, -1]] += keep  # where there is no last draft, keep is 0
        accepted = np.where(members(drafts, self.problem.num_tokens), law, 0.0)
        return accepted, law - accepted

    def verify(
        self, drafts: NDArray[np.int64], uniforms: NDArray[np.float64], state: NDArray[Any] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Accept the last draft where η < q(x)/s(x), otherwise draw from the residual; then look among the drafts."""
        output = np.where(uniforms[:, 0] < self._keep(drafts), drafts[:, -1], inverse_cdf(self.residual, uniforms[:, 1]))
        return output, is_member(output, drafts)

    def _keep(self, drafts: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.where(drafts[:, -1] == PAD, 0.0, self.keep[drafts[:, -1]])
