"""Exponential-race speculative decoding: drafter and verifier share one race per vertex."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from otm.drafts.without_replacement import WithoutReplacement
from otm.problem import Problem
from otm.sequence.decoder import TreeDecoder
from otm.sequence.drafted_tree import DraftTree
from otm.sequence.exact_laws import (
    DeferredDecoder,
    StepModels,
    StepTally,
    Transition,
    require_table,
    sum_by_agreement,
    walk_levels,
)
from otm.sequence.matching import MatchingDecoder
from otm.sequence.models import Context, LanguageModel
from otm.sequence.randomness import RaceState, Randomness
from otm.sequence.vertex_decoder import grow
from otm.verifiers.race import Race

MAX_RACE_ENTRIES = 1 << 27
"""Largest number of (draft, output) pairs of a race, whose table is held."""


@dataclasses.dataclass(frozen=True)
class Ersd(TreeDecoder, MatchingDecoder, DeferredDecoder):
    """Run a race per vertex: the first arrivals under p are children, the winner under q is output.

    The clocks travel with the drafts, or both sides make them of a seed and the position
    (`SharedNoise`): the races of one level may share clocks, for the output reaches one of them.
    It descends while the winner is a child; at a vertex without children a race is run all the
    same, on clocks that nobody has seen: the bonus token. `NoiseTree` chooses the shape by the
    clocks as well.

    Args:
        tree: the shape, at least one drafted token.

    Raises:
        InvalidParameter: on an empty tree; when drafting, if a vertex has more children than there
            are tokens.

    Cost: one draft call per level, one target call; O(V) clocks per drafting vertex.
    Reference: ERSD [Kobus & Gündüz 2025], Section 3, Algorithms 2 and 5.

    >>> import otm
    >>> from otm.sequence import ZerothOrder, step_law
    >>> draft = ZerothOrder([0.5, 0.2, 0.15, 0.1, 0.05])
    >>> target = ZerothOrder([0.1, 0.3, 0.05, 0.25, 0.3])
    >>> law = step_law(Ersd(otm.trees.TreeShape.batch(2)), draft=draft, target=target, context=[])
    >>> round(law.block_efficiency, 6)  # 1 + the race's .724113
    1.724113
    """

    title = "ERSD"

    def draft(self, model: LanguageModel, context: Context, randomness: Randomness) -> DraftTree:
        """Race level by level, one call of the draft model per level."""
        races: dict[Context, RaceState] = {}

        def children(here: Context, mass: NDArray[np.float64], count: int) -> NDArray[np.int64]:
            WithoutReplacement(count).align(mass, mass)  # refuses more children than tokens
            races[here] = randomness.race(mass, count, len(here))
            return races[here].drafts

        return dataclasses.replace(grow(self.tree, model, context, children), shared=races)

    def tally(self, models: StepModels) -> StepTally:
        """Couple first arrivals and winner at one vertex at a time."""

        def transitions(context: Context, count: int) -> list[Transition]:
            law = WithoutReplacement(count)
            problem = Problem(draft=models.draft(context), target=models.target(context), law=law)
            num_live = int(np.count_nonzero(problem.draft))
            require_table(num_live, problem.num_tokens, MAX_RACE_ENTRIES)
            joint = Race().prepare(problem).joint()
            return sum_by_agreement(
                joint.drafts, problem.num_tokens, lambda block: joint.joint[block].toarray()
            )

        return walk_levels(self.tree, models, transitions)
