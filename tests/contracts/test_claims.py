"""The numbers of docs/claims.md: what papers and public code say of each other, by enumeration and by the best step."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np
import pytest

import otm
from otm.sequence import (
    BlockVerification,
    GreedyMultipath,
    SpeculativeSampling,
    Step,
    ZerothOrder,
    best_step,
    expected_step,
    step_law,
)
from otm.sequence.decoder import Conditionals, DraftTree
from otm.sequence.source import Source
from tests.house.test_repository import ROOT
from tests.sequence.toys import bias, distance, random_models, smooth_models

PAGE = " ".join((ROOT / "docs" / "claims.md").read_text(encoding="utf-8").split())
GOLD = {"draft": ZerothOrder([2 / 3, 1 / 3]), "target": ZerothOrder([1 / 3, 2 / 3])}


@dataclasses.dataclass(frozen=True)
class Hierarchical(BlockVerification):
    """HSD by its own formulas: prefix ratios r, capped by the largest before; branch divergences; tests from the end."""

    def capped(self, ratios: list[float], i: int) -> float:
        return ratios[i] / max(1.0, *ratios[: i + 1])

    def whole(self, ratios: list[float]) -> float:
        before = ratios[-2]
        return min(1.0, self.capped(ratios, self.length - 1) * ratios[-1] / before) if before > 0 else 0.0

    def verify(self, tree: DraftTree, target: Conditionals, source: Source) -> Step:
        drafted = tuple(tree.tokens[1:].tolist())
        before = [drafted[:i] for i in range(self.length + 1)]
        ratios = [1.0]
        for i, token in enumerate(drafted):
            ratios.append(ratios[-1] * float(target(before[i])[token] / tree.draft[before[i]][token]))
        if source.accept(self.whole(ratios)):
            return Step((*drafted, source.choose(target(drafted))), self.length, "end_of_draft")
        for kept in reversed(range(self.length)):
            branch = self.capped(ratios, kept) * target(before[kept]) - tree.draft[before[kept]]
            more, less = np.maximum(branch, 0.0), np.maximum(-branch, 0.0)
            largest = max(more.sum(), less.sum())
            if kept == 0 or source.accept(float(more.sum() / largest) if largest > 0 else 1.0):
                break
        after = more if more.sum() > 0 else target(before[kept])
        return Step((*drafted[:kept], source.choose(after)), kept, "rejected")


@dataclasses.dataclass(frozen=True)
class CappedAtOne(Hierarchical):
    """The same with min(1, r) for the cap and for the test of the whole draft."""

    def capped(self, ratios: list[float], i: int) -> float:
        return min(1.0, ratios[i])

    def whole(self, ratios: list[float]) -> float:
        return min(1.0, ratios[-1])


class TestHierarchicalSpeculativeDecoding:
    @pytest.mark.parametrize("seed", range(6))
    def test_is_block_verification(self, seed: int) -> None:
        draft, target = smooth_models(3, 3, seed) if seed < 3 else random_models(3, 3, np.random.default_rng([31, seed]))
        models = {"draft": draft, "target": target, "context": []}
        assert distance(step_law(Hierarchical(3), **models), step_law(BlockVerification(3), **models)) <= 1e-15

    @pytest.mark.parametrize(
        ("length", "tokenwise", "block"),
        [(1, Fraction(2, 3), Fraction(2, 3)), (2, Fraction(10, 9), Fraction(11, 9)), (3, Fraction(38, 27), Fraction(5, 3))],
    )
    def test_the_gold_instance(self, length: int, tokenwise: Fraction, block: Fraction) -> None:
        tokens = expected_step(SpeculativeSampling(length), **GOLD, context=[]).block_efficiency
        assert tokens == pytest.approx(1 + float(tokenwise), abs=1e-14)
        for decoder in (BlockVerification(length), Hierarchical(length)):
            assert step_law(decoder, **GOLD, context=[]).block_efficiency == pytest.approx(1 + float(block), abs=1e-14)
        assert best_step(BlockVerification(length), **GOLD, context=[]).value == pytest.approx(1 + float(block), abs=1e-9)
        assert f"| {length} | {tokenwise} | {block} | {block} |" in PAGE

    def test_capped_at_one_it_accepts_too_much(self) -> None:
        law = step_law(CappedAtOne(2), **GOLD, context=[])
        assert law.block_efficiency == pytest.approx(1 + 4 / 3, abs=1e-14)
        assert bias(CappedAtOne(2), **GOLD, step=step_law) == pytest.approx(1 / 9, abs=1e-15)
        assert bias(Hierarchical(2), **GOLD, step=step_law) <= 1e-15
        assert "accepts 4/3 drafts at γ = 2" in PAGE
        assert "total variation of 1/9" in PAGE


class TestSpecTrGbv:
    """Σ p [1 − (1 − min(q/p, 1))^K] at one position."""

    @staticmethod
    def formula(draft: np.ndarray, target: np.ndarray, count: int) -> float:
        return float((draft * (1 - (1 - np.minimum(target / draft, 1.0)) ** count)).sum())

    def test_one_draft_is_single_draft_rejection(self) -> None:
        rng = np.random.default_rng(0)
        draft, target = rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(4))
        assert self.formula(draft, target, 1) == pytest.approx(np.minimum(draft, target).sum(), abs=1e-15)

    def test_more_than_the_optimum(self) -> None:
        draft, target = np.array([0.99, 0.01]), np.array([0.5, 0.5])
        assert self.formula(draft, target, 2) == pytest.approx(0.757475, abs=1e-6)
        best = otm.optimum(otm.Problem(draft=draft, target=target, law=otm.IID(2)))
        assert best.upper == pytest.approx(0.5199, abs=1e-9)
        assert "| (99/100, 1/100) | (1/2, 1/2) | .757475 | .5199 |" in PAGE

    def test_less_than_the_optimum(self) -> None:
        draft, target = np.array([0.5, 0.5]), np.array([1.0, 0.0])
        assert self.formula(draft, target, 2) == 0.5
        assert otm.optimal_acceptance(otm.Problem(draft=draft, target=target, law=otm.IID(2))) == 0.75
        assert "| (1/2, 1/2) | (1, 0) | 1/2 | 3/4 |" in PAGE


def test_greedy_multipath_on_equal_models() -> None:
    """Ties: tests/sequence/test_greedy_multipath.py."""
    model = ZerothOrder([0.5, 0.5])
    for count in (1, 2, 5):
        tokens = expected_step(GreedyMultipath(count, 1), draft=model, target=model, context=[]).block_efficiency
        assert tokens == pytest.approx(1.5 + 0.5**count, abs=1e-14)
    assert "TV = 1/6" in PAGE
    assert "TV = 7/130" in PAGE


@dataclasses.dataclass(frozen=True)
class Truncated(SpeculativeSampling):
    """Cuts a chain of drafts where a rule says so: on the tokens before draft i, or on draft i itself."""

    looks_at_itself: bool = False

    def verify(self, tree: DraftTree, target: Conditionals, source: Source) -> Step:
        drafted = tree.tokens[1:].tolist()
        decided_on = drafted if self.looks_at_itself else [-1, *drafted]
        length = next((i for i, token in enumerate(decided_on[: self.length]) if token == 0), self.length)
        if length == 0:
            return Step((source.choose(target(())),), 0, "end_of_draft")
        cut = dataclasses.replace(tree, shape=otm.trees.TreeShape.chain(length), tokens=tree.tokens[: length + 1])
        return SpeculativeSampling(length).verify(cut, target, source)


class TestTruncation:
    def test_on_what_was_drafted_before_it_is_lossless(self) -> None:
        for seed in range(6):
            draft, target = random_models(3, 3, np.random.default_rng([32, seed]))
            assert bias(Truncated(3), draft, target, step=step_law) <= 1e-14

    def test_on_the_draft_itself_it_is_biased(self) -> None:
        model = ZerothOrder([0.5, 0.5])
        assert bias(Truncated(1, looks_at_itself=True), model, model, step=step_law) == pytest.approx(0.25, abs=1e-15)
        assert bias(Truncated(1), model, model, step=step_law) <= 1e-15
        assert "output (1/4, 3/4), TV = 1/4" in PAGE
