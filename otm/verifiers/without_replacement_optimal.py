"""The optimal verifier without replacement: a choice by weights, then single-draft rejection.

With T a minimising set of the cut formula, a selection loses nothing against α* if it takes a draft
off T whenever there is one, and its law s has s ≤ q off T and s ≥ q on T. Among the selections that
choose ∝ weights these are the minimum of a convex function,

    off T:  min E log Σ_{j∈S∖T} w_j − Σ q log w  over 0 < w ≤ 1,
    on T:   min E log Σ_{j∈S} w_j − Σ q log w  over w ≥ 1,

the second given S ⊆ T: the gradient in log w is s − q, and the bounds turn equations into
inequalities. What the search leaves over costs acceptance, never losslessness, since the law of the
chosen draft is computed for the weights as they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import Array, Floats, quiet
from otm._machine.patience import Pace
from otm.drafts.base import PAD
from otm.drafts.without_replacement import WithoutReplacement
from otm.errors import SolverFailure
from otm.pmf import check_real
from otm.problem import Problem
from otm.results import Definition
from otm.scheme import parameter
from otm.verifiers.base import Verifier
from otm.verifiers.rules import single_draft_rejection
from otm.verifiers.select_then_reject import SelectThenRejectRule
from otm.verifiers.weighted_choice import chosen_beside, chosen_law

_MOST_EVALUATIONS = 400
_DEPTH = 8  # steps that the acceleration remembers
_LONGEST_STEP = 4.0
_LARGEST_LOG_WEIGHT = 80.0

_Evaluation = Callable[[Floats], tuple[Floats, Floats]]


@dataclasses.dataclass(frozen=True)
class WithoutReplacementOptimal(Verifier):
    """Choose draft i with probability w(x_i)/Σ_{x∈S} w(x), then verify the choice as a single
    draft.

    The chosen draft is accepted with probability min(1, q/s), s the law of the chosen draft.

    The weights are searched until Σ min(s, q) ≥ α* − tolerance. Drafts in the minimising set T of
    the cut formula are chosen only if all drafts lie in it. Acceptance by the rule Σ min(s, q); by
    membership at most α*.

    Args:
        tolerance: how much acceptance the weights may cost, in [1e-12, 1].

    Lossless to the accuracy of s, observed within 1e-13 of exact enumeration: the output is off by
    TV(s, computed s) at most, the quadratures' part of it at most 1.5e-15, proven. Law:
    `WithoutReplacement(k)`.

    Raises:
        InvalidParameter: unless `tolerance` is a number in [1e-12, 1].
        SolverFailure: on use, if 400 evaluations of s do not reach the tolerance.

    Cost: some 10 evaluations of s, each O((V + heads·k)·k·nodes²): 1 to 3 s for V = 4,096 and k = 4
        on one core. A choice costs O(k). Accuracy: the law within 1e-13, acceptance within
        `tolerance` of the optimum.
    Reference: docs/theory.md, "The optimal verifier without replacement"; the decomposition: Khisti
        et al. 2025, Theorem 1.

    >>> import otm
    >>> p, q = [0.5, 0.3, 0.2], [0.1, 0.2, 0.7]
    >>> problem = otm.Problem(draft=p, target=q, law=otm.WithoutReplacement(2))
    >>> found = otm.acceptance(WithoutReplacementOptimal(), problem, by="rule")
    >>> round(float(found), 5), round(otm.optimal_acceptance(problem), 5)
    (0.78571, 0.78571)
    """

    title = "optimal without replacement"
    lossless = True
    laws = (WithoutReplacement,)

    tolerance: float = parameter(check_real, default=1e-6, low=1e-12, high=1.0)

    def prepare(self, problem: Problem) -> SelectThenRejectRule:
        """Search the weights; single-draft rejection with the law of the chosen draft."""
        choice, law = _search(problem, self.tolerance)
        keep, residual = single_draft_rejection(law, problem.target)
        return SelectThenRejectRule(
            problem=problem, selection=choice, law=law, keep=keep, residual=residual
        )

    def acceptance(self, problem: Problem, by: Definition) -> Array:
        """Sum min(s, q), and by membership the residual's hits, by the quadratures of s."""
        rule = self.prepare(problem.single(purpose=f"The exact acceptance of {self!r}"))
        accepted = np.minimum(rule.law, rule.problem.target).sum()
        return np.asarray(accepted if by == "rule" else accepted + _residual_hits(rule))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Weights:
    """A choice ∝ `first` among the drafts, ∝ `second` where no draft has a first weight, else even.

    Attributes:
        first, second: weights of the tokens and, last, of "no draft", which are 0, `(V + 1,)`.
    """

    first: Floats
    second: Floats

    def __call__(self, problem: Problem, drafts: NDArray[np.int64]) -> Floats:
        """Return the probability of choosing each draft `(n, k)`."""
        weights = np.where(drafts == PAD, 0.0, 1.0)
        for tier in (self.second, self.first):
            here = tier[drafts]
            weights = np.where(here.any(axis=1, keepdims=True), here, weights)
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _search(problem: Problem, tolerance: float) -> tuple[Weights, Floats]:
    """Return weights and the law of the draft chosen by these weights."""
    p, q, k = problem.draft, problem.target, problem.num_drafts
    support = p > 0
    log_weights = np.zeros(len(p))
    law = np.zeros(len(p))
    # Tokens that the target never takes cost T nothing.
    worst = (problem.law.worst_set(p, q) | (q == 0)) & support
    off = support & ~worst
    if k >= support.sum():  # every token of the support is drafted, and any law on it can be had
        law[support] = q[support] if q[support].any() else p[support]
        law /= law.sum()
        return _weights(law, np.zeros(len(p))), law
    if k == 1:
        return _weights(support, np.zeros(len(p))), np.where(support, p / p[support].sum(), 0.0)
    coarse = tolerance / 40.0  # three such errors cost less than the half that is left to them

    def off_worst(theta: Floats, error: float = coarse) -> tuple[Floats, Floats]:
        weights = np.zeros(len(p))
        weights[off] = np.exp(theta)
        chosen, own = chosen_law(p[support], weights[support], k, error=error)
        return chosen[off[support]], own[off[support]]

    def in_worst(theta: Floats, error: float = coarse) -> tuple[Floats, Floats]:
        return chosen_law(
            p[worst], np.exp(theta - theta.max()), k, outside=float(p[off].sum()), error=error
        )

    if off.any():
        log_weights[off] = _WeightProgram(off_worst, q[off], -1.0).minimise(tolerance / 4)
        law[off] = off_worst(log_weights[off], 1e-15)[0]
    if worst.sum() >= k:
        log_weights[worst] = _WeightProgram(in_worst, q[worst], 1.0).minimise(tolerance / 4)
        law[worst] = in_worst(log_weights[worst], 1e-15)[0]
        log_weights[worst] -= log_weights[worst].max()
    weights = np.exp(log_weights)
    return _weights(np.where(off, weights, 0.0), np.where(worst, weights, 0.0)), law


def _residual_hits(rule: SelectThenRejectRule) -> float:
    """Return the probability that the residual, drawn after a rejection, is another draft."""
    problem, tiers = rule.problem, rule.selection
    support = problem.draft > 0
    if (
        not isinstance(tiers, Weights)
        or problem.num_drafts >= support.sum()
        or not rule.residual[support].any()
    ):
        return 0.0  # where all of the support is drafted, the residual lies off it
    hits = 0.0
    for tokens, weights in (
        (support, tiers.first[:-1]),
        (support & (tiers.first[:-1] == 0), tiers.second[:-1]),
    ):
        outside = float(problem.draft[support & ~tokens].sum())
        if weights.any():
            hits += chosen_beside(
                problem.draft[tokens],
                weights[tokens],
                problem.num_drafts,
                chosen=1.0 - rule.keep[tokens],
                beside=rule.residual[tokens],
                outside=outside,
            )
    return hits


def _weights(first: NDArray[np.generic], second: NDArray[np.generic]) -> Weights:
    return Weights(
        *(np.append(np.asarray(tier, dtype=np.float64), 0.0) for tier in (first, second))
    )


@dataclasses.dataclass(frozen=True, eq=False)
class _WeightProgram:
    """The convex program of one side of T in θ = log w.

    Attributes:
        law: s and the share of it that does not depend on others, Σ Pr(S)(w/w(S))², at θ.
        target: q of these tokens.
        sign: −1 for θ ≤ 0 and s ≤ q, +1 for θ ≥ 0 and s ≥ q.
    """

    law: _Evaluation
    target: Floats
    sign: float

    def minimise(self, tolerance: float) -> Floats:
        """Return θ with Σ (sign·(q − s))₊ ≤ tolerance.

        Quasi-Newton steps, accelerated as Anderson does, each shortened until the slope along it
        says that the program's value has fallen: the value is convex, so that slopes are enough.
        """
        theta = np.zeros(len(self.target))
        law, own = self.law(theta)
        history: list[tuple[Floats, Floats]] = []
        evaluations = 1
        pace = Pace("The search for its weights", "Take fewer tokens, or a larger tolerance.")
        while (short := np.maximum(self.sign * (self.target - law), 0.0).sum()) > tolerance:
            slopes = law - self.target
            curvature = np.maximum(law - own, 1e-300)
            plain = self._step(theta, law, curvature)
            if slopes @ plain >= 0:
                plain = self._within(theta, -slopes / curvature, _LONGEST_STEP)
            move = plain
            if history:
                faster = self._within(
                    theta,
                    _accelerated(theta, plain, history, np.sqrt(curvature)),
                    1.5 * _LONGEST_STEP,
                )
                move = faster if slopes @ faster < 0 else plain
            history = [*history, (theta, plain)][-_DEPTH:]
            slope, size = slopes @ move, 1.0
            while True:
                if evaluations >= _MOST_EVALUATIONS:
                    raise SolverFailure(
                        f"The weights must come within tolerance = {tolerance:.3g} of a law that "
                        "loses nothing; after "
                        f"{evaluations} evaluations {short:.3g} is missing. Ask for a larger "
                        "tolerance."
                    )
                pace.check(1.0)  # how many more there are is not known
                law, own = self.law(theta + size * move)
                evaluations += 1
                after = (law - self.target) @ move
                if after <= -0.5 * slope:
                    break
                size *= float(np.clip(slope / (slope - after), 0.1, 0.9))
            theta = theta + size * move
        return theta

    def _within(self, theta: Floats, step: Floats, longest: float) -> Floats:
        """Return the step, cut to a length in each coordinate and to the bounds."""
        moved = self.sign * (theta + np.clip(np.nan_to_num(step), -longest, longest))
        return np.asarray(self.sign * np.clip(moved, 0.0, _LARGEST_LOG_WEIGHT) - theta)

    def _step(self, theta: Floats, law: Floats, curvature: Floats) -> Floats:
        """Return Newton's step as if a token's competitors were independent of the token.

        Diagonal c = s − own, the rank one cc'/Σc: the step is log(q/s)·s/c and a constant on the
        tokens that are free to move.
        """
        with quiet():
            step = np.where(law > 0, np.log(self.target / law), 0.0) * law / curvature
        step = np.clip(step, -2 * _LONGEST_STEP, 2 * _LONGEST_STEP)
        free = (theta != 0) | (self.sign * step > 0)
        constant = 0.0
        for _ in range(5):
            bound = curvature[~free].sum()
            known = bound > 1e-6 * curvature.sum()
            constant = (
                float(
                    np.clip((step * curvature)[free].sum() / bound, -_LONGEST_STEP, _LONGEST_STEP)
                )
                if known
                else 0.0
            )
            freed = self.sign * (theta + step + constant) > 0
            if (freed == free).all():
                break
            free = freed
        return self._within(theta, step + constant, _LONGEST_STEP)


def _accelerated(
    theta: Floats, step: Floats, history: list[tuple[Floats, Floats]], scale: Floats
) -> Floats:
    """Return Anderson's step, which makes the steps, taken as affine, vanish by least squares."""
    places = np.stack([theta - place for place, _ in history])
    changes = np.stack([step - taken for _, taken in history])
    share = np.linalg.lstsq((changes * scale).T, step * scale, rcond=1e-10)[0]
    return np.asarray(step - share @ (places + changes))
