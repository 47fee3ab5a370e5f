"""Lossy verifiers of one draft: accept with some probability, otherwise draw from some law.

A rule (keep, residual) accepts the draft x with probability keep(x) and otherwise draws from the
residual. Its output law is

    π = p·keep + e·residual,      e = Σ p·(1 − keep) the probability of a rejection,

equal to q for one choice only, Leviathan's. The verifiers of this family choose otherwise on
purpose, for more acceptance or for a decision without randomness; each says which two vectors it
uses, and everything else follows here.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import Array, by_rows, namespace, normalised_excess, quiet, total
from otm.drafts.iid import IID
from otm.problem import Problem
from otm.results import Definition
from otm.verifiers.base import Verifier
from otm.verifiers.neighbourhood import num_neighbours
from otm.verifiers.rules import AcceptInTurn, ResidualByDrafts

TIE = 1e-12
"""Difference below which two masses that a rule compares count as equal: greedy targets tie often,
and rounding must not decide.
"""

FALLBACKS = ("target", "greedy")

Fallback = Literal["target", "greedy"]
"""The output after a rejected draft: a draw from the target, or the target's likeliest token."""


@dataclasses.dataclass(frozen=True)
class Lossy(Verifier):
    """A verifier whose output law may differ from the target's, in closed form."""

    lossless = False

    @property
    def entries_per_token(self) -> int:
        """Numbers held at once for each token: the number of neighbours, for a rule with any."""
        return num_neighbours(getattr(self, "neighbours", 1))

    @abc.abstractmethod
    def output_law(self, problem: Problem) -> NDArray[np.float64]:
        """Return the law of the output `(V,)` of a problem of one row, float64 NumPy."""


@dataclasses.dataclass(frozen=True)
class LossyVerifier(Lossy):
    """A lossy verifier of one draft, whose rule is a pair (keep, residual)."""

    laws = (IID(1),)

    @abc.abstractmethod
    def keep_and_residual(self, draft: Array, target: Array) -> tuple[Array, Array, Array]:
        """Return the rule's two vectors and the rejection probability.

        Args:
            draft, target: p and q `(..., V)` in float64, of any array kind.

        Returns:
            Acceptance probabilities `(..., V)`, the normalised residual `(..., V)` and the
            rejection probability `(...)`. The last follows from the first, but for a rule that can
            say it more accurately: Σ p·(1 − keep) has lost it where it is below 1e-16.
        """

    def prepare(self, problem: Problem) -> AcceptInTurn:
        """Compute acceptance probabilities and residual."""
        keep, residual, _ = self.keep_and_residual(problem.draft, problem.target)
        return AcceptInTurn(problem=problem, keep=keep[None], residual=residual)

    def output_law(self, problem: Problem) -> NDArray[np.float64]:
        """Return π = p·keep + e·residual `(V,)` of a problem of one row, float64 NumPy."""
        keep, residual, rejected = self.keep_and_residual(problem.draft, problem.target)
        return np.asarray(problem.draft * keep + rejected * residual)

    def acceptance(self, problem: Problem, by: Definition) -> Array:
        """Return Σ p·keep, by membership + Σ p·(1 − keep)·residual, batched."""

        def values(p: Array, q: Array) -> Array:
            keep, residual, _ = self.keep_and_residual(p, q)
            rule = total(p * keep)
            return (rule if by == "rule" else rule + total(p * (1.0 - keep) * residual))[None]

        return by_rows(values, problem.draft, problem.target, per_entry=self.entries_per_token)[0]


@dataclasses.dataclass(frozen=True)
class AimedVerifier(LossyVerifier):
    """A lossy verifier that verifies one draft losslessly towards another law π.

    Accept x with min(1, π(x)/p(x)), otherwise draw from ∝ (π − p)₊. The output law is π, the
    acceptance 1 − TV(p, π), by rule and by membership alike.
    """

    @abc.abstractmethod
    def aimed_law(self, draft: Array, target: Array) -> Array:
        """Return π `(..., V)` for p and q in float64."""

    def keep_and_residual(self, draft: Array, target: Array) -> tuple[Array, Array, Array]:
        """Return min(1, π/p), the normalised (π − p)₊, and Σ (π − p)₊."""
        law = self.aimed_law(draft, target)
        excess = namespace(law).clip(law - draft, 0.0, None)
        return keep_towards(law, draft), normalised_excess(excess, target), total(excess)


@dataclasses.dataclass(frozen=True)
class Raised(Lossy):
    """A lossy verifier that raises each draft x to h(x) and accepts with min(1, h(x)/p(x)).

    A rejected draft is followed by a draw from a residual of its own, which does not return it.
    """

    laws = (IID(1),)

    @abc.abstractmethod
    def raised(self, target: Array) -> Array:
        """Return h `(..., V)` of a target in float64."""

    def acceptance(self, problem: Problem, by: Definition) -> Array:
        """Return Σ min(p, h), batched."""

        def values(p: Array, q: Array) -> Array:
            return total(namespace(p).minimum(p, self.raised(q)))[None]

        return by_rows(values, problem.draft, problem.target, per_entry=self.entries_per_token)[0]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class RaisedRule(ResidualByDrafts):
    """A `Raised` verifier prepared for one problem.

    Attributes:
        raised: h `(V,)`.
    """

    raised: NDArray[np.float64]

    def cumulative_acceptance(self, drafts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return min(1, h/p) of each draft."""
        return np.asarray(keep_towards(self.raised[drafts], self.problem.draft[drafts]))


def keep_towards(law: Array, draft: Array) -> Array:
    """Return min(1, law/p) `(..., V)`, the acceptance probabilities towards a law; 0 at p = 0."""
    xp = namespace(law, draft)
    with quiet():
        return xp.where(draft > 0, xp.clip(law / draft, 0.0, 1.0), xp.zeros_like(draft))


def keep_passing(
    draft: Array, target: Array, passes: Array, fallback: Fallback
) -> tuple[Array, Array, Array]:
    """Return (keep, residual, rejection) of accepting just the tokens that pass `(..., V)`."""
    xp = namespace(draft, target)
    keep = xp.astype(passes, xp.float64)
    residual = target if fallback == "target" else xp.astype(by_rank(target) == 0, xp.float64)
    return keep, residual, rejected_mass(draft, keep)


def by_rank(target: Array) -> Array:
    """Return each token's place `(..., V)` by falling mass, of equals the lowest index first."""
    xp = namespace(target)
    return xp.argsort(xp.argsort(-target, axis=-1, stable=True), axis=-1)


def rejected_mass(draft: Array, keep: Array) -> Array:
    """Return Σ p·(1 − keep), `(...)`: summed, never 1 − Σ p·keep."""
    return total(draft * (1.0 - keep))
