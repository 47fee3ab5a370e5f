"""What lossy verifiers share: an output law that is known; most accept one draft with some
probability, else draw from some law.

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

from otm._arrays import Array, by_rows, namespace, normalised_excess, quiet, total
from otm.drafts.iid import IID
from otm.errors import InvalidParameter
from otm.problem import Problem
from otm.results import Definition
from otm.verifiers.base import Verifier
from otm.verifiers.rules import AcceptInTurn

TIE = 1e-12
"""Sides of a comparison of masses that are as near count as equal: greedy targets tie often, and
rounding must not decide.
"""


Fallback = Literal["target", "greedy"]
"""What follows a rejected draft: a draw from the target, or its likeliest token."""


@dataclasses.dataclass(frozen=True)
class Lossy(Verifier):
    """A verifier whose output law may differ from the target's, and is known without enumeration."""

    lossless = False

    @abc.abstractmethod
    def output_law(self, problem: Problem) -> NDArray[np.float64]:
        """Return the law of the output `(V,)` of a problem of one row, float64 NumPy."""


@dataclasses.dataclass(frozen=True)
class LossyVerifier(Lossy):
    """A lossy verifier of one draft; its rule is a pair (keep, residual)."""

    laws = (IID(1),)

    @abc.abstractmethod
    def keep_and_residual(self, draft: Array, target: Array) -> tuple[Array, Array, Array]:
        """Return acceptance probabilities `(..., V)`, normalised residual `(..., V)` and rejection
        probability `(...)`, in float64.

        On any array kind. The last follows from the first, but Σ p·(1 − keep) has lost it where it
        is below 1e-16.
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
            p = namespace(p).astype(p, namespace(p).float64)
            rule = total(p * keep)
            return (rule if by == "rule" else rule + total(p * (1.0 - keep) * residual))[None]

        return by_rows(values, problem.draft, problem.target)[0]


@dataclasses.dataclass(frozen=True)
class AimedVerifier(LossyVerifier):
    """A lossy verifier that verifies losslessly towards another law π: accept x with min(1,
    π(x)/p(x)), residual ∝ (π − p)₊.

    Its output law is π, its acceptance 1 − TV(p, π), by rule and by membership alike.
    """

    @abc.abstractmethod
    def aimed_law(self, draft: Array, target: Array) -> Array:
        """Return π `(..., V)` for p and q in float64."""

    def keep_and_residual(self, draft: Array, target: Array) -> tuple[Array, Array, Array]:
        """Return min(1, π/p), (π − p)₊ over its sum and Σ (p − π)₊."""
        xp = namespace(draft, target)
        p, q = xp.astype(draft, xp.float64), xp.astype(target, xp.float64)
        aim = self.aimed_law(p, q)
        with quiet():
            keep = xp.where(p > 0, xp.clip(aim / p, 0.0, 1.0), xp.zeros_like(p))
        return (
            keep,
            normalised_excess(xp.clip(aim - p, 0.0, None), q),
            total(xp.clip(p - aim, 0.0, None)),
        )


def keep_passing(
    draft: Array, target: Array, passes: Array, fallback: Fallback
) -> tuple[Array, Array, Array]:
    """Return the `steps` of accepting the tokens that pass `(..., V)`, and whatever else is drawn
    by the fallback.
    """
    xp = namespace(draft, target)
    p, q = xp.astype(draft, xp.float64), xp.astype(target, xp.float64)
    keep = xp.astype(passes, xp.float64)
    return (
        keep,
        q if fallback == "target" else xp.astype(by_rank(q) == 0, xp.float64),
        rejected_mass(p, keep),
    )


def by_rank(target: Array) -> Array:
    """Return each token's place `(..., V)` by falling mass, of equal ones the lowest index first."""
    xp = namespace(target)
    return xp.argsort(xp.argsort(-target, axis=-1, stable=True), axis=-1)


def check_fallback(fallback: object) -> None:
    """Raise `InvalidParameter` unless it is one of the two."""
    if not isinstance(fallback, str) or fallback not in ("target", "greedy"):
        raise InvalidParameter(
            f"fallback must be 'target' or 'greedy'; got {str(fallback)[:40]!r}. Choose one."
        )


def rejected_mass(draft: Array, keep: Array) -> Array:
    """Return Σ p·(1 − keep), `(...)`: summed, never 1 − Σ p·keep."""
    return total(draft * (1.0 - keep))
