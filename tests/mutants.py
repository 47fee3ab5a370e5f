"""Verifiers with one deliberate mistake each, all of which the protecting tests must notice.

Each is written from the paper's steps, not from the library's code. `split` is the exact law of
what `verify` executes, mistake included, so that the exact-law check and the Monte Carlo check are
tested on the same mutant.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

import otm
from otm._machine.arrays import inverse_cdf

Follow = Callable[[tuple[int, ...]], tuple[list[float], np.ndarray]]
"""A row → the probability that each of its drafts is accepted, and the residual after all."""


@dataclasses.dataclass(frozen=True, eq=False)
class Sequential(otm.verifiers.Conditional):
    """Accept the drafts of a row in turn, else draw from the residual; fresh uniforms or one for
    all.
    """

    follow: Follow
    reuse: bool = False

    @property
    def num_uniforms(self) -> int:
        return self.problem.num_drafts + 1

    def split(self, drafts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        accepted, residuals = np.zeros((2, len(drafts), self.problem.num_tokens))
        for i, row in enumerate(drafts):
            keep, residual = self.follow(tuple(row))
            reached, highest = 1.0, 0.0
            for x, chance in zip(row, keep, strict=True):
                # one uniform accepts at this stage iff max(keep before) ≤ η < keep here
                taken = max(chance - highest, 0.0) if self.reuse else reached * chance
                accepted[i, x] += taken
                reached, highest = reached - taken, max(highest, chance)
            residuals[i] = reached * residual
        return accepted, residuals

    def verify(
        self, drafts: np.ndarray, uniforms: np.ndarray, state: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        output, accepted = np.empty(len(drafts), dtype=np.int64), np.zeros(len(drafts), dtype=bool)
        for row in np.unique(drafts, axis=0):
            here = np.flatnonzero((drafts == row).all(axis=1))
            keep, residual = self.follow(tuple(row))
            coins = uniforms[here, :1] if self.reuse else uniforms[here, : len(keep)]
            wins = coins < np.asarray(keep)
            accepted[here] = wins.any(axis=1)
            drawn = inverse_cdf(residual, uniforms[here, -1])
            output[here] = np.where(accepted[here], row[wins.argmax(axis=1)], drawn)
        return output, accepted


@dataclasses.dataclass(frozen=True)
class Mutant(otm.Verifier):
    """Common plumbing: a scheme for i.i.d. drafts that claims to be lossless."""

    lossless = True
    laws: ClassVar[tuple[type[otm.Law], ...]] = (otm.IID,)

    def acceptance(self, problem: otm.Problem, by: Any) -> Any:
        raise NotImplementedError("mutants are only enumerated and sampled")


def _ratio(r: np.ndarray, p: np.ndarray) -> np.ndarray:
    return np.minimum(1.0, np.divide(r, p, out=np.zeros_like(p), where=p > 0))


def _stages(problem: otm.Problem, *, renormalise: bool = True) -> Follow:
    """Recursive rejection, the residual normalised at each stage or not."""
    p, r, keep = problem.draft, problem.target, []
    for _ in range(problem.num_drafts):
        keep.append(_ratio(r, p))
        r = np.maximum(r - p, 0.0)
        if r.sum() == 0.0:  # nothing is ever rejected here
            r = problem.target
        elif renormalise:
            r = r / r.sum()
    return lambda row: ([stage[x] for stage, x in zip(keep, row, strict=True)], r / r.sum())


@dataclasses.dataclass(frozen=True)
class Faithful(Mutant):
    """No mistake: recursive rejection. The control that shows the checks do not fire
    on everything.
    """

    def prepare(self, problem: otm.Problem) -> Sequential:
        return Sequential(problem, _stages(problem))


@dataclasses.dataclass(frozen=True)
class NoRenormalisation(Mutant):
    """Recursive rejection that forgets to renormalise the residual before the next draft."""

    def prepare(self, problem: otm.Problem) -> Sequential:
        return Sequential(problem, _stages(problem, renormalise=False))


@dataclasses.dataclass(frozen=True)
class ReusedUniform(Mutant):
    """Recursive rejection that draws one uniform and compares this one at every accept step."""

    def prepare(self, problem: otm.Problem) -> Sequential:
        return Sequential(problem, _stages(problem), reuse=True)


def _kseq(problem: otm.Problem, gamma: float) -> Follow:
    p, q, k = problem.draft, problem.target, problem.num_drafts
    keep = _ratio(q, gamma * p)
    beta = (p * keep).sum()
    residual = np.maximum(q - p * keep * (1 - (1 - beta) ** k) / beta, 0.0)
    return lambda row: ([keep[x] for x in row], residual / residual.sum())


@dataclasses.dataclass(frozen=True)
class ReusedUniformKSeq(Mutant):
    """K-SEQ at γ* that draws one uniform and compares this one at every accept step."""

    def prepare(self, problem: otm.Problem) -> Sequential:
        gamma = float(otm.verifiers.gamma_star(problem))
        return Sequential(problem, _kseq(problem, gamma), reuse=True)


@dataclasses.dataclass(frozen=True)
class ClippedKSeq(Mutant):
    """K-SEQ with γ halfway between 1 and γ*, the negative residual clipped away."""

    def prepare(self, problem: otm.Problem) -> Sequential:
        gamma = 0.5 * (1 + float(otm.verifiers.gamma_star(problem)))
        return Sequential(problem, _kseq(problem, gamma))


@dataclasses.dataclass(frozen=True)
class Distinct(Mutant):
    """Recursive rejection without replacement, path by path from the definition, with one mistake
    or none.

    mistake: "" none; "not renormalised" compares with p instead of p over the tokens left (the
    wrong conditional law); "one minus" renormalises by 1 − the mass taken; "reuse" compares one
    uniform at every accept step.
    """

    mistake: str = ""

    laws = (otm.WithoutReplacement,)

    def prepare(self, problem: otm.Problem) -> Sequential:
        def follow(row: tuple[int, ...]) -> tuple[list[float], np.ndarray]:
            p, r, keep = problem.draft.copy(), problem.target, []
            taken = 0.0
            for x in row:
                left = {"not renormalised": 1.0, "one minus": 1.0 - taken}.get(
                    self.mistake, p.sum()
                )
                law = p / left if left > 0 else np.zeros_like(p)
                keep.append(min(1.0, r[x] / law[x]) if law[x] > 0 else 1.0)
                excess = np.maximum(r - law, 0.0)
                r = excess / excess.sum() if excess.sum() > 0 else r
                taken += p[x]
                p[x] = 0.0
            return keep, r

        return Sequential(problem, follow, reuse=self.mistake == "reuse")


@dataclasses.dataclass(frozen=True)
class RawTarget(Mutant):
    """Recursive rejection against the plain softmax although the processed distribution
    (temperature, top-k) must come out.
    """

    raw: tuple[float, ...]

    def prepare(self, problem: otm.Problem) -> Sequential:
        other = otm.Problem(draft=problem.draft, target=list(self.raw), law=problem.law)
        return Sequential(problem, _stages(other))


@dataclasses.dataclass(frozen=True)
class ForgottenChoice(Mutant):
    """Optimal without replacement, with the chosen draft compared as if alone."""

    laws = (otm.WithoutReplacement,)

    def prepare(self, problem: otm.Problem) -> Chosen:
        rule: Any = otm.prepare(otm.WithoutReplacementOptimal(), problem)
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
