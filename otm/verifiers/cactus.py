"""Constrained acceptance (Cactus): a draft is verified towards the target plus a bonus."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import Array, namespace, quiet
from otm.pmf import check_real
from otm.problem import Problem
from otm.scheme import parameter
from otm.verifiers.lossy_rule import Raised, RaisedRule


@dataclasses.dataclass(frozen=True)
class Cactus(Raised):
    """Accept x with min(1, h(x)/p(x)), otherwise draw from the rest of x's own aim.

    h(x) = min(1, q(x) + √(2δ q(x)(1 − q(x)))) is what x is raised to.

    The aim of a draft x has h(x) on x, and on y ≠ x what keeps the proportions of q: c q(y), c = (1
    − h(x))/(1 − q(x)). A rejected x is followed by a draw from ∝ (c q − p)₊. To second order the
    aim is within δ of q in divergence; the output is not, since each draft has an aim of its own.
    With δ = 1/(2V − 2) a uniform target takes every draft of a model uniform on half of the tokens:
    KL(output‖q) is log 2 for any V (docs/theory.md, "Lossy rules").

    Acceptance Σ min(p, h), by rule and by membership; output law min(p, h) + Σ_x (p(x) − h(x))₊
    (c_x q − p)₊/Σ(c_x q − p)₊. Lossy for δ > 0. Law: IID(1).

    Args:
        delta: δ ≥ 0.

    Raises:
        InvalidParameter: if it is negative.

    Cost: O(V), batched; the output law a sort, O(V log V).
    Accuracy: (3ν + 16) u (docs/theory.md, "Plain sums").
    Reference: Cactus [Hao & Mou 2026], 2604.04987v1; its public code at 3b01b81, which this is.

    >>> import otm
    >>> # h = ½ + √(.02·¼) = .5707
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(1))
    >>> verifier = Cactus(0.01)
    >>> law = otm.lossy.output_law(verifier, problem)
    >>> round(otm.acceptance(verifier, problem), 4), law.round(4)
    (0.8207, array([0.5707, 0.4293]))
    """

    title = "Cactus"
    display_fields = ("delta",)

    delta: float = parameter(check_real, default=0.05, low=0.0)

    def raised(self, target: Array) -> Array:
        """Return h `(..., V)` of a target in float64."""
        xp = namespace(target)
        spread = xp.sqrt(target * xp.clip(1.0 - target, 0.0, None))
        return xp.clip(target + math.sqrt(2.0) * math.sqrt(self.delta) * spread, None, 1.0)

    def prepare(self, problem: Problem) -> CactusRule:
        """Compute the raised mass of each draft."""
        return CactusRule(problem=problem, raised=np.asarray(self.raised(problem.target)))

    def output_law(self, problem: Problem) -> NDArray[np.float64]:
        """Return the law of the output `(V,)`, by one pass in the order of p/q.

        Of a rejected x weight w(x)/S(c_x) falls on every token with p/q < c_x: two sums over those
        x, w c/S for q and w/S for p.
        """
        p, q = problem.draft, problem.target
        raised = np.asarray(self.raised(q))
        rejected = np.flatnonzero(p > raised)
        weight, shrunk = p[rejected] - raised[rejected], _shrunk(q[rejected], raised[rejected])
        live = np.flatnonzero(q > 0)
        with quiet():
            ratio = p[live] / q[live]
        order = np.argsort(ratio, kind="stable")
        reach = np.searchsorted(ratio[order], shrunk, side="left")  # tokens with p/q < c
        q_upto, p_upto = (np.concatenate([[0.0], np.cumsum(mass[live][order])]) for mass in (q, p))
        # the excess is at least what is rejected
        share = weight / np.maximum(shrunk * q_upto[reach] - p_upto[reach], weight)
        for_q, for_p = (
            np.bincount(reach, weights=each, minlength=len(live) + 1)
            for each in (share * shrunk, share)
        )
        # of those that reach beyond the token
        above = [np.cumsum(each[::-1])[::-1][1:] for each in (for_q, for_p)]
        law = np.minimum(p, raised)
        law[live[order]] += np.maximum(q[live][order] * above[0] - p[live][order] * above[1], 0.0)
        return np.asarray(law)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class CactusRule(RaisedRule):
    """Cactus prepared for one problem."""

    def residual_weights(self, drafts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return (c q − p)₊ for the one draft, 0 at the draft since q(x) ≤ h(x) < p(x)."""
        shrunk = _shrunk(self.problem.target[drafts], self.raised[drafts])
        excess = np.maximum(shrunk * self.problem.target - self.problem.draft, 0.0)
        return np.asarray(excess if excess.any() else self.problem.target)


def _shrunk(target: NDArray[np.float64], raised: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return c = (1 − h)/(1 − q); where q = 1 nothing is rejected and c does not matter."""
    return np.asarray(
        np.divide(1.0 - raised, 1.0 - target, out=np.ones_like(target), where=target < 1.0)
    )
