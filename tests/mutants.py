"""Verifiers with one deliberate mistake each: the tests that protect the library must notice every
one of them.

Each is written from the paper's steps, not from the library's code. `split` is the exact law of
what `verify` executes, mistake included, so that the exact-law check and the Monte Carlo check are
tested on the same mutant.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

import otm
from otm._arrays import inverse_cdf


@dataclasses.dataclass(frozen=True, eq=False)
class Sequential(otm.verifiers.Conditional):
    """Accept draft x at stage i with probability keep[i, x], else draw from the residual; fresh
    uniforms or one for all.
    """

    keep: np.ndarray
    residual: np.ndarray
    reuse: bool = False

    @property
    def num_uniforms(self) -> int:
        return self.problem.law.k + 1

    def split(self, drafts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        accepted = np.zeros((len(drafts), self.problem.num_tokens))
        for i, row in enumerate(drafts):
            probabilities = [self.keep[stage, x] for stage, x in enumerate(row)]
            if self.reuse:  # accepted at stage i iff max(keep before) ≤ η < keep here
                highest = 0.0
                for x, keep in zip(row, probabilities, strict=True):
                    accepted[i, x] += max(keep - highest, 0.0)
                    highest = max(highest, keep)
            else:
                reaching = 1.0
                for x, keep in zip(row, probabilities, strict=True):
                    accepted[i, x] += reaching * keep
                    reaching *= 1.0 - keep
        left = 1.0 - accepted.sum(axis=1)
        return accepted, left[:, None] * self.residual

    def verify(
        self, drafts: np.ndarray, uniforms: np.ndarray, state: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        output = inverse_cdf(self.residual, uniforms[:, -1])
        accepted = np.zeros(len(drafts), dtype=bool)
        for stage in range(drafts.shape[1]):
            coin = uniforms[:, 0 if self.reuse else stage]
            now = ~accepted & (coin < self.keep[stage, drafts[:, stage]])
            output[now] = drafts[now, stage]
            accepted |= now
        return output, accepted


@dataclasses.dataclass(frozen=True)
class Mutant(otm.Verifier):
    """Common plumbing: a scheme for i.i.d. drafts that claims to be lossless."""

    lossless = True
    laws = (otm.IID,)

    def acceptance(self, problem: otm.Problem, by: Any) -> Any:
        raise NotImplementedError("mutants are only enumerated and sampled")


def _stages(problem: otm.Problem, *, renormalise: bool) -> tuple[np.ndarray, np.ndarray]:
    """Recursive rejection: keep `(k, V)` and the last residual, normalised at each stage or not."""
    p, r, keep = problem.draft, problem.target, []
    for _ in range(problem.law.k):
        keep.append(np.minimum(1.0, np.divide(r, p, out=np.zeros_like(p), where=p > 0)))
        r = np.maximum(r - p, 0.0)
        if r.sum() == 0.0:  # nothing is ever rejected here
            r = problem.target
        elif renormalise:
            r = r / r.sum()
    return np.stack(keep), r / r.sum()


@dataclasses.dataclass(frozen=True)
class Faithful(Mutant):
    """No mistake: recursive rejection. The control that shows the checks do not fire
    on everything.
    """

    def prepare(self, problem: otm.Problem) -> Sequential:
        return Sequential(problem, *_stages(problem, renormalise=True))


@dataclasses.dataclass(frozen=True)
class NoRenormalisation(Mutant):
    """Recursive rejection that forgets to renormalise the residual before the next draft."""

    def prepare(self, problem: otm.Problem) -> Sequential:
        return Sequential(problem, *_stages(problem, renormalise=False))


@dataclasses.dataclass(frozen=True)
class ReusedUniform(Mutant):
    """Recursive rejection that draws one uniform and compares it at every accept step."""

    def prepare(self, problem: otm.Problem) -> Sequential:
        return Sequential(problem, *_stages(problem, renormalise=True), reuse=True)


def _kseq(problem: otm.Problem, target: np.ndarray, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    p, k = problem.draft, problem.law.k
    keep = np.minimum(1.0, np.divide(target, gamma * p, out=np.zeros_like(p), where=p > 0))
    beta = (p * keep).sum()
    residual = np.maximum(target - p * keep * (1 - (1 - beta) ** k) / beta, 0.0)
    return np.tile(keep, (k, 1)), residual / residual.sum()


@dataclasses.dataclass(frozen=True)
class ReusedUniformKSeq(Mutant):
    """K-SEQ at γ* that draws one uniform and compares it at every accept step."""

    def prepare(self, problem: otm.Problem) -> Sequential:
        return Sequential(
            problem,
            *_kseq(problem, problem.target, float(otm.verifiers.gamma_star(problem))),
            reuse=True,
        )


@dataclasses.dataclass(frozen=True)
class ClippedKSeq(Mutant):
    """K-SEQ with γ halfway between 1 and γ*, its negative residual clipped away."""

    def prepare(self, problem: otm.Problem) -> Sequential:
        gamma = 0.5 * (1 + float(otm.verifiers.gamma_star(problem)))
        return Sequential(problem, *_kseq(problem, problem.target, gamma))


@dataclasses.dataclass(frozen=True)
class RawTarget(Mutant):
    """Recursive rejection against the plain softmax although the processed distribution
    (temperature, top-k) must come out.
    """

    raw: tuple[float, ...]

    def prepare(self, problem: otm.Problem) -> Sequential:
        other = otm.Problem(draft=problem.draft, target=list(self.raw), law=problem.law)
        return Sequential(problem, *_stages(other, renormalise=True))


@dataclasses.dataclass(frozen=True)
class ForgottenChoice(Mutant):
    """Optimal without replacement, but the chosen draft is compared with the draft law, as if it
    were the only one.
    """

    laws = (otm.WithoutReplacement,)

    def prepare(self, problem: otm.Problem) -> Chosen:
        rule = otm.prepare(otm.WithoutReplacementOptimal(), problem)
        excess = np.maximum(problem.target - problem.draft, 0.0)
        return Chosen(
            problem,
            rule.selection,
            np.minimum(1.0, problem.target / problem.draft),
            excess / excess.sum(),
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Chosen(otm.verifiers.Conditional):
    """Choose one draft, accept x with probability keep[x], else draw from the residual."""

    num_uniforms = 3

    selection: Any
    keep: np.ndarray
    residual: np.ndarray

    def split(self, drafts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        accepted = np.zeros((len(drafts), self.problem.num_tokens))
        for i, (row, weights) in enumerate(
            zip(drafts, self.selection(self.problem, drafts), strict=True)
        ):
            np.add.at(accepted[i], row, weights * self.keep[row])
        return accepted, (1.0 - accepted.sum(axis=1))[:, None] * self.residual

    def verify(
        self, drafts: np.ndarray, uniforms: np.ndarray, state: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        reached = np.cumsum(self.selection(self.problem, drafts), axis=1) > uniforms[:, :1]
        chosen = drafts[np.arange(len(drafts)), reached.argmax(axis=1)]
        accepted = uniforms[:, 1] < self.keep[chosen]
        return np.where(accepted, chosen, inverse_cdf(self.residual, uniforms[:, 2])), accepted
