"""Sample the target and match, with thresholds that let a draft pass earlier."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import Array, by_rows, namespace, quiet, total
from otm.drafts.base import PAD
from otm.drafts.iid import IID
from otm.drafts.top_k import TopK
from otm.pmf import check_real
from otm.problem import Problem
from otm.results import Definition
from otm.scheme import parameter
from otm.verifiers.lossy_rule import TIE, Lossy
from otm.verifiers.rules import ResidualByDrafts

_LEAST = 1e-9  # as the kernel caps its accumulated threshold


@dataclasses.dataclass(frozen=True)
class ThresholdMatching(Lossy):
    """Accept the first draft d_i with u ≤ (q(d_1) + … + q(d_i))/a or q(d_i) ≥ s.

    If no draft is accepted, draw from q off the drafts.

    One uniform u serves all siblings. At a = s = 1 this is sampling the target and looking, without
    loss. A draft that s lets pass comes out whatever else is likely; a gives likely drafts 1/a of
    what is theirs. Sides within 1e-12 of s count as equal. SGLang's trees are
    `otm.sequence.TreeVerification(tree, TopK(1), ThresholdMatching(…))`.

    Acceptance, by rule and by membership: 1 if a draft has q ≥ s, else min(1, Q(drafts)/a). Lossy
    but for a = s = 1. Laws: TopK(k), IID(1).

    Args:
        single: s in [0, 1].
        accumulated: a in (0, 1].

    Raises:
        InvalidParameter: if one is out of range.

    Cost: one sort for `TopK`, O(V) for one i.i.d. draft, batched.
    Accuracy: (3ν + 16) u (docs/theory.md, "Plain sums").
    Reference: SGLang's kernel TreeSpeculativeSamplingTargetOnly at 120affb (threshold_single,
        threshold_acc; both 1 by default). It caps a at 1e-9 from below.

    >>> import otm
    >>> problem = otm.Problem(draft=[0.5, 0.3, 0.2], target=[0.3, 0.2, 0.5], law=otm.TopK(2))
    >>> rule = ThresholdMatching(single=1.0, accumulated=0.625)  # .3/.625 = .48, .5/.625 = .8
    >>> round(otm.acceptance(rule, problem), 12), otm.lossy.output_law(rule, problem).round(12)
    (0.8, array([0.48, 0.32, 0.2 ]))
    """

    title = "sample and match with thresholds"
    display_fields = ("single", "accumulated")
    laws = (TopK, IID(1))

    single: float = parameter(check_real, default=0.5, low=0.0, high=1.0)
    accumulated: float = parameter(check_real, default=0.8, low=0.0, high=1.0, open_low=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "accumulated", max(self.accumulated, _LEAST))

    def prepare(self, problem: Problem) -> ThresholdRule:
        """Return the rule, which needs only the thresholds."""
        return ThresholdRule(problem=problem, single=self.single, accumulated=self.accumulated)

    def acceptance(self, problem: Problem, by: Definition) -> Array:
        """Return the mean acceptance over the drafts, batched."""
        law = problem.law

        def values(p: Array, q: Array) -> Array:
            if isinstance(law, IID):  # one draft: each token by itself
                return total(p * self._accepted(q, q))[None]
            xp, drafted = namespace(p, q), law.inclusion(p)
            likeliest = xp.max(xp.where(drafted > 0, q, -xp.ones_like(q)), axis=-1)
            return self._accepted(likeliest, total(drafted * q))[None]

        return by_rows(values, problem.draft, problem.target)[0]

    def _accepted(self, likeliest: Array, mass: Array) -> Array:
        """Return the acceptance of drafts from their largest and total target mass."""
        xp = namespace(mass)
        matched = xp.clip(mass / self.accumulated, None, 1.0)
        return xp.where(likeliest >= self.single - TIE, xp.ones_like(matched), matched)

    def output_law(self, problem: Problem) -> NDArray[np.float64]:
        """Return the law of the output `(V,)`, summed over every token as the one i.i.d. draft."""
        rule = self.prepare(problem)
        if isinstance(problem.law, TopK):
            accepted, residual = rule.split(problem.law.enumerate(problem.draft).tokens)
            return np.asarray((accepted + residual)[0])
        p, q = problem.draft, problem.target
        keep = rule.cumulative_acceptance(np.arange(problem.num_tokens)[:, None])[:, 0]
        with quiet():
            rejected = np.where(keep < 1.0, p * (1.0 - keep) / _others(q), 0.0)
        return np.asarray(p * keep + q * (rejected.sum() - rejected))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ThresholdRule(ResidualByDrafts):
    """The thresholds s and a, for one problem."""

    single: float
    accumulated: float

    def cumulative_acceptance(self, drafts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Sum the masses; from a draft beyond the single threshold on everything is accepted."""
        mass = np.where(drafts == PAD, 0.0, self.problem.target[drafts])
        passed = np.maximum.accumulate((drafts != PAD) & (mass >= self.single - TIE), axis=1)
        return np.asarray(
            np.where(passed, 1.0, np.minimum(1.0, np.cumsum(mass, axis=1) / self.accumulated))
        )

    def residual_weights(self, drafts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return q off the drafts."""
        left = self.problem.target.copy()
        left[drafts[drafts != PAD]] = 0.0
        return left if left.any() else np.asarray(self.problem.target)


def _others(mass: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Σ of all other masses for each, `(V,)`, summed from both sides: never 1 − q."""
    before, after = np.cumsum(mass), np.cumsum(mass[::-1])[::-1]
    return np.asarray(np.append(0.0, before[:-1]) + np.append(after[1:], 0.0))
