"""Verifiers that need nothing but the drafts: their mutants, in the exact law and in samples, and
degenerate inputs to all.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest

import otm
from otm._arrays import inverse_cdf
from otm.verifiers.base import enumerated_acceptance
from tests.contracts.alarms import SAMPLES, alarms, joint_law, power, tabulate
from tests.tolerance import rounding


@dataclasses.dataclass(frozen=True, eq=False)
class PathRule(otm.verifiers.Conditional):
    """Recursive rejection without replacement, path by path from the definition, with one mistake
    or none.

    mistake: "" none; "not renormalised" compares with p instead of p over the tokens left (the
    wrong conditional law); "one minus" renormalises by 1 − the mass taken; "reuse" compares one
    uniform at every accept step.
    """

    mistake: str

    @property
    def num_uniforms(self) -> int:
        return self.problem.law.k + 1

    def follow(self, row: tuple[int, ...]) -> tuple[list[float], np.ndarray]:
        p, r, keep = self.problem.draft.copy(), self.problem.target, []
        taken = 0.0
        for x in row:
            left = {"not renormalised": 1.0, "one minus": 1.0 - taken}.get(self.mistake, p.sum())
            law = p / left if left > 0 else np.zeros_like(p)
            keep.append(min(1.0, r[x] / law[x]) if law[x] > 0 else 1.0)
            excess = np.maximum(r - law, 0.0)
            r = excess / excess.sum() if excess.sum() > 0 else r
            taken += p[x]
            p[x] = 0.0
        return keep, r

    def split(self, drafts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        accepted, residuals = np.zeros((2, len(drafts), self.problem.num_tokens))
        for i, row in enumerate(drafts):
            keep, residual = self.follow(tuple(row))
            reached, highest = 1.0, 0.0
            for x, probability in zip(row, keep, strict=True):
                taken = (
                    max(probability - highest, 0.0)
                    if self.mistake == "reuse"
                    else reached * probability
                )
                accepted[i, x] += taken
                reached, highest = reached - taken, max(highest, probability)
            residuals[i] = reached * residual
        return accepted, residuals

    def verify(
        self, drafts: np.ndarray, uniforms: np.ndarray, state: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        output, accepted = np.empty(len(drafts), dtype=np.int64), np.zeros(len(drafts), dtype=bool)
        for row in np.unique(drafts, axis=0):
            here = np.flatnonzero((drafts == row).all(axis=1))
            keep, residual = self.follow(tuple(row))
            coins = uniforms[here, :1] if self.mistake == "reuse" else uniforms[here, : len(keep)]
            wins = coins < np.asarray(keep)
            accepted[here] = wins.any(axis=1)
            output[here] = np.where(
                accepted[here], row[wins.argmax(axis=1)], inverse_cdf(residual, uniforms[here, -1])
            )
        return output, accepted


@dataclasses.dataclass(frozen=True)
class PathVerifier(otm.Verifier):
    mistake: str = ""

    lossless = True
    laws = (otm.WithoutReplacement,)

    def prepare(self, problem: otm.Problem) -> PathRule:
        return PathRule(problem, self.mistake)

    def acceptance(self, problem: otm.Problem, by: Any) -> Any:
        return np.asarray(enumerated_acceptance(self.prepare(problem), by))


_DRAFT, _TARGET = [0.5, 0.3, 0.15, 0.05], [0.2, 0.35, 0.2, 0.25]
_HEAVY_DRAFT = [1.0, 1e-17, 3e-17, 2e-17]  # 1 − p(0) is 0 in floating point
_MUTANTS = [
    pytest.param("not renormalised", _DRAFT, id="wrong conditional law without replacement"),
    pytest.param("reuse", _DRAFT, id="one uniform reused"),
    pytest.param("one minus", _HEAVY_DRAFT, id="p renormalised by 1 − p"),
]


class TestMutantsDie:
    @pytest.mark.parametrize("draft", [_DRAFT, _HEAVY_DRAFT])
    @pytest.mark.parametrize("k", [2, 3])
    def test_the_control_lives(self, draft: list[float], k: int) -> None:
        problem = otm.Problem(draft=draft, target=_TARGET, law=otm.WithoutReplacement(k))
        rows, claimed = joint_law(otm.RecursiveRejection(), problem)
        np.testing.assert_allclose(joint_law(PathVerifier(), problem)[1], claimed, atol=1e-14)
        draws = otm.sample(PathVerifier(), problem, size=SAMPLES, rng=np.random.default_rng(0))
        assert not alarms(tabulate(draws, rows, 4), claimed, SAMPLES).any()

    @pytest.mark.parametrize(("mistake", "draft"), _MUTANTS)
    @pytest.mark.parametrize("k", [2, 3])
    def test_in_the_exact_law(self, mistake: str, draft: list[float], k: int) -> None:
        problem = otm.Problem(draft=draft, target=_TARGET, law=otm.WithoutReplacement(k))
        loss = np.abs(
            otm.coupling(PathVerifier(mistake), problem).output_marginal - problem.target
        ).max()
        assert loss > 1e-3
        assert (
            np.abs(
                otm.coupling(otm.RecursiveRejection(), problem).output_marginal - problem.target
            ).max()
            < 1e-14
        )

    @pytest.mark.parametrize(("mistake", "draft"), _MUTANTS)
    def test_in_monte_carlo(self, mistake: str, draft: list[float]) -> None:
        problem = otm.Problem(draft=draft, target=_TARGET, law=otm.WithoutReplacement(3))
        rows, claimed = joint_law(otm.RecursiveRejection(), problem)
        truth = joint_law(PathVerifier(mistake), problem)[1]
        assert power(truth, claimed, SAMPLES) > 1 - 1e-6
        draws = otm.sample(
            PathVerifier(mistake), problem, size=SAMPLES, rng=np.random.default_rng(1)
        )
        assert alarms(tabulate(draws, rows, 4), claimed, SAMPLES).any()


_DEGENERATE = {
    "p = q": ([0.5, 0.3, 0.2], [0.5, 0.3, 0.2]),
    "disjoint": ([0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]),
    "point masses apart": ([1.0, 0.0, 0.0], [0.0, 0.0, 1.0]),
    "point masses together": ([0.0, 1.0, 0.0], [0.0, 1.0, 0.0]),
    "V = 1": ([1.0], [1.0]),
    "ties": ([0.25] * 4, [0.25] * 4),
    "masses of 1e-300": ([1.0, 1e-300, 2e-300], [1e-300, 0.4, 0.6]),
    "q a point": ([0.4, 0.35, 0.25], [0.0, 0.0, 1.0]),
}
_VERIFIERS = (
    otm.Naive(),
    otm.NaiveTree(),
    otm.RecursiveRejection(),
    otm.SpecHub(),
    otm.GreedyOptimal(),
    otm.SelectThenReject(),
)


@pytest.mark.parametrize("name", _DEGENERATE)
@pytest.mark.parametrize("verifier", _VERIFIERS, ids=lambda v: type(v).__name__)
def test_degenerate_inputs(name: str, verifier: otm.Verifier) -> None:
    draft, target = (np.asarray(x) for x in _DEGENERATE[name])
    draft = draft / math.fsum(draft)
    for make, k in itertools.product(
        (otm.IID, otm.WithoutReplacement, otm.Greedy, otm.TopK), (1, 2, 3)
    ):
        law = make(k)
        if not verifier.supports(law) or (k > len(draft) and make is not otm.IID):
            continue
        problem = otm.Problem(draft=draft, target=target, law=law)
        plan = otm.coupling(verifier, problem)
        tolerance = max(
            rounding(len(draft), k), 1e-9 if isinstance(verifier, otm.SelectThenReject) else 0.0
        )
        assert np.abs(plan.output_marginal - target).max() <= rounding(len(draft), k)
        value = otm.acceptance(verifier, problem)
        assert value == pytest.approx(plan.acceptance, abs=tolerance)
        assert otm.acceptance(verifier, problem, by="rule") <= value + tolerance
        assert value <= otm.optimal_acceptance(problem) + tolerance
        draws = otm.sample(verifier, problem, size=50, rng=np.random.default_rng(0))
        assert (target[draws.output] > 0).all()
    if name == "p = q" and not isinstance(verifier, otm.Naive):
        assert value == pytest.approx(1.0, abs=tolerance)
    if name == "disjoint":
        assert value == pytest.approx(0.0, abs=1e-15)
