"""Exponential-race speculative decoding: one race per vertex, shared by drafter and verifier (ERSD,
Algorithms 2 and 5).
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from otm.drafts.without_replacement import WithoutReplacement
from otm.sequence.decoder import Conditionals, DraftTree, StaticDecoder, Step, require_drafts
from otm.sequence.models import Context, LanguageModel
from otm.sequence.source import RaceState, Source
from otm.sequence.vertex_decoder import descend, grow
from otm.trees.shape import TreeShape


@dataclasses.dataclass(frozen=True)
class Ersd(StaticDecoder):
    """Run one exponential race at every vertex of a tree: first arrivals under p are children, the
    winner under q is output.

    The clocks travel with the drafts. The output descends while the winner is a child; at a vertex
    without children its race is run all the same, on fresh clocks: the bonus token.

    Args:
        tree: the shape, at least one drafted token.

    Raises:
        InvalidParameter: on an empty tree; when drafting, if a vertex has more children than there
            are tokens.

    Cost: one draft call per level, one target call; O(V) clocks per drafting vertex.
    Reference: ERSD [Kobus & Gündüz 2025], Section 3, Algorithms 2 and 5.

    >>> from otm.sequence import ZerothOrder, step_law
    >>> draft, target = (
    ...     ZerothOrder([0.5, 0.2, 0.15, 0.1, 0.05]),
    ...     ZerothOrder([0.1, 0.3, 0.05, 0.25, 0.3]),
    ... )
    >>> pair = Ersd(TreeShape.batch(2))
    >>> round(
    ...     step_law(pair, draft=draft, target=target, context=[]).block_efficiency, 6
    ... )  # 1 + the race's .724113
    1.724113
    """

    title = "ERSD"

    tree: TreeShape

    def __post_init__(self) -> None:
        require_drafts(self.tree)

    @property
    def lossless(self) -> bool:
        """Always: the target's winner has the target's law, whatever the drafter does."""
        return True

    @property
    def shape(self) -> TreeShape:
        """The tree."""
        return self.tree

    def draft(self, model: LanguageModel, context: Context, source: Source) -> DraftTree:
        """Race level by level, one call of the draft model per level."""
        races: dict[int, RaceState] = {}

        def children(vertex: int, mass: NDArray[np.float64], count: int) -> NDArray[np.int64]:
            WithoutReplacement(count).align(mass, mass)  # refuses more children than tokens
            races[vertex] = source.race(mass, count)
            return races[vertex].drafts

        return dataclasses.replace(grow(self.tree, model, context, children), races=races)

    def verify(self, tree: DraftTree, target: Conditionals, source: Source) -> Step:
        """Run the target's race at each vertex that the output reaches."""

        def output(vertices: list[int], context: Context, proposals: NDArray[np.int64]) -> int:
            (vertex,) = (
                vertices  # children of one race differ, so one vertex agrees with the output
            )
            return source.winner(target(context), tree.races[vertex])

        return descend(tree, target, source, output)
