"""Hierarchical speculative decoding by the paper's formulas, and with a lossy cap."""

from __future__ import annotations

import dataclasses

import numpy as np

from otm.sequence import BlockVerification, Randomness, Step
from otm.sequence.drafted_tree import Conditionals, DraftTree


@dataclasses.dataclass(frozen=True)
class Hierarchical(BlockVerification):
    """HSD by the paper's formulas: prefix ratios capped by the largest before, tests from the end.

    The tests compare branch divergences.

    Tests run from the end.
    """

    def capped(self, ratios: list[float], i: int) -> float:
        return ratios[i] / max(1.0, *ratios[: i + 1])

    def whole(self, ratios: list[float]) -> float:
        before = ratios[-2]
        return (
            min(1.0, self.capped(ratios, self.length - 1) * ratios[-1] / before)
            if before > 0
            else 0.0
        )

    def verify(self, tree: DraftTree, target: Conditionals, randomness: Randomness) -> Step:
        drafted = tuple(tree.tokens[1:].tolist())
        before = [drafted[:i] for i in range(self.length + 1)]
        ratios = [1.0]
        for i, token in enumerate(drafted):
            ratios.append(
                ratios[-1] * float(target(before[i])[token] / tree.draft[before[i]][token])
            )
        if randomness.accept(self.whole(ratios)):
            return Step((*drafted, randomness.choose(target(drafted))), self.length, "end_of_draft")
        for kept in reversed(range(self.length)):
            branch = self.capped(ratios, kept) * target(before[kept]) - tree.draft[before[kept]]
            more, less = np.maximum(branch, 0.0), np.maximum(-branch, 0.0)
            largest = max(more.sum(), less.sum())
            if kept == 0 or randomness.accept(float(more.sum() / largest) if largest > 0 else 1.0):
                break
        after = more if more.sum() > 0 else target(before[kept])
        return Step((*drafted[:kept], randomness.choose(after)), kept, "rejected")


@dataclasses.dataclass(frozen=True)
class CappedAtOne(Hierarchical):
    """HSD with min(1, r) for the cap and for the test of the whole draft."""

    def capped(self, ratios: list[float], i: int) -> float:
        return min(1.0, ratios[i])

    def whole(self, ratios: list[float]) -> float:
        return min(1.0, ratios[-1])
