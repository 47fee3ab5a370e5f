"""The optimal verifier when all drafts but the last are fixed."""

from __future__ import annotations

import dataclasses

import numpy as np

from otm._machine.arrays import Array
from otm.drafts.greedy import Greedy
from otm.problem import Problem
from otm.results import Definition
from otm.verifiers.base import Verifier
from otm.verifiers.rules import AcceptOneOrCatch, single_draft_rejection


@dataclasses.dataclass(frozen=True)
class GreedyOptimal(Verifier):
    """Reject the one random draft against the target; the fixed drafts may take the residual.

    With s the law of the last draft x (p renormalised off the top tokens): accept x with
    probability min(1, q(x)/s(x)), else draw Y ∝ q on the top tokens and (q − s)₊ off them. A token
    of the top counts as accepted.

        α = Q(top) + Σ_{i ∉ top} min(q(i), s(i)) = α*,

    the optimum of the law: a rejected x has q(x) < s(x), so the residual cannot hit it. Rule and
    membership agree. Lossless. Law: Greedy(k).

    Cost: O(V log V).
    Accuracy: (3ν + 2 min(k, 64) + 16) u (docs/theory.md, "Plain sums").
    Reference: Hu et al. 2025, verification of greedy draft sampling.

    >>> import otm
    >>> problem = otm.Problem(draft=[0.5, 0.3, 0.2], target=[0.2, 0.2, 0.6], law=otm.Greedy(2))
    >>> found = otm.acceptance(GreedyOptimal(), problem), otm.optimal_acceptance(problem)
    >>> tuple(round(value, 12) for value in found)
    (0.8, 0.8)
    """

    title = "optimal for greedy drafts"
    summary = "the optimal verifier for top k−1 and one draw (Hu et al. 2025)"
    lossless = True
    laws = (Greedy,)
    table_columns = ("greedy_optimal_greedy",)

    def prepare(self, problem: Problem) -> AcceptOneOrCatch:
        """Compute the last draft's acceptance probabilities and the residual."""
        law = problem.law
        # what require_support has made sure of, said to the type checker
        if not isinstance(law, Greedy):
            raise TypeError(f"GreedyOptimal needs Greedy drafts; got {law!r}.")
        # Off the last draft's law the top tokens have no mass, so that all of their target mass is
        # in the residual.
        keep, residual = single_draft_rejection(law.parts(problem.draft)[1], problem.target)
        return AcceptOneOrCatch(
            problem=problem, position=-1, keep=np.append(keep, 0.0), residual=residual
        )

    def acceptance(self, problem: Problem, by: Definition) -> Array:
        """Return the optimum of the law, batched."""
        return problem.law.optimal_value(problem.draft, problem.target)
