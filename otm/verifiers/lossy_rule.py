"""What the lossy single-draft verifiers share: accept the draft with some probability, else draw from some law.

A rule (keep, residual) accepts the draft x with probability keep(x) and otherwise draws from the residual. Its output law is

    π = p·keep + e·residual,      e = Σ p·(1 − keep) the probability of a rejection,

equal to q for one choice only, Leviathan's. The verifiers of this family choose otherwise on purpose, for more acceptance or for a
decision without randomness; each says which two vectors it uses, and everything else follows here.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._arrays import Array, by_rows, inverse_cdf, namespace, total
from otm.drafts.base import Law
from otm.drafts.iid import IID
from otm.problem import Problem
from otm.results import Definition
from otm.verifiers.base import Conditional, Verifier


@dataclasses.dataclass(frozen=True)
class LossyVerifier(Verifier):
    """A verifier of one draft whose output law may differ from the target's; its rule is a pair (keep, residual)."""

    @abc.abstractmethod
    def steps(self, draft: Array, target: Array) -> tuple[Array, Array, Array]:
        """Return acceptance probabilities `(..., V)`, normalised residual `(..., V)` and rejection probability `(...)`, in float64.

        On any array kind. The last follows from the first, but Σ p·(1 − keep) has lost it where it is below 1e-16.
        """

    @property
    def lossless(self) -> bool:
        """Not in general; `otm.lossy.distortion` says by how much on a problem."""
        return False

    def supports(self, law: Law) -> bool:
        """One i.i.d. draft."""
        return isinstance(law, IID) and law.k == 1

    def prepare(self, problem: Problem) -> LossyRule:
        """Compute acceptance probabilities and residual."""
        keep, residual, rejected = self.steps(problem.draft, problem.target)
        return LossyRule(problem=problem, keep=keep, residual=residual, rejected=float(rejected))

    def acceptance(self, problem: Problem, by: Definition) -> Array:
        """Return Σ p·keep, by membership + Σ p·(1 − keep)·residual, batched."""

        def values(p: Array, q: Array) -> Array:
            keep, residual, _ = self.steps(p, q)
            p = namespace(p).astype(p, namespace(p).float64)
            rule = total(p * keep)
            return (rule if by == "rule" else rule + total(p * (1.0 - keep) * residual))[None]

        return by_rows(values, problem.draft, problem.target)[0]


@dataclasses.dataclass(frozen=True, eq=False)
class Explicit(Conditional, abc.ABC):
    """A conditional rule whose output law has a closed form."""

    @property
    @abc.abstractmethod
    def output_law(self) -> NDArray[np.float64]:
        """The law of the output `(V,)`."""


@dataclasses.dataclass(frozen=True, eq=False)
class LossyRule(Explicit):
    """Acceptance probabilities `(V,)`, the normalised residual `(V,)` and the probability of a rejection."""

    keep: NDArray[np.float64]
    residual: NDArray[np.float64]
    rejected: float

    @property
    def output_law(self) -> NDArray[np.float64]:
        """π = p·keep + e·residual."""
        return np.asarray(self.problem.draft * self.keep + self.rejected * self.residual)

    @property
    def num_uniforms(self) -> int:
        """One for the accept step, one for the residual draw."""
        return 2

    def split(self, drafts: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Put keep(x) on the draft and the rest on the residual."""
        keep = self.keep[drafts[:, 0]]
        accepted = np.zeros((len(drafts), self.problem.num_tokens))
        accepted[np.arange(len(drafts)), drafts[:, 0]] = keep
        return accepted, (1.0 - keep)[:, None] * self.residual

    def verify(
        self, drafts: NDArray[np.int64], uniforms: NDArray[np.float64], state: NDArray[Any] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Accept where η < keep(x), otherwise draw from the residual."""
        accepted = uniforms[:, 0] < self.keep[drafts[:, 0]]
        return np.where(accepted, drafts[:, 0], inverse_cdf(self.residual, uniforms[:, 1])), accepted


def normalised_excess(excess: Array, fallback: Array) -> Array:
    """Divide non-negative weights `(..., V)` by their sum; rows without weight, which are never drawn from, take the fallback."""
    xp = namespace(excess)
    mass = total(excess)[..., None]
    return xp.where(mass > 0, excess / xp.where(mass > 0, mass, xp.ones_like(mass)), fallback)


def rejection(draft: Array, keep: Array) -> Array:
    """Return Σ p·(1 − keep), `(...)`: summed, never 1 − Σ p·keep."""
    return total(draft * (1.0 - keep))
