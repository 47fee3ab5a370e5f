"""Decoders of `otm.sequence` that verify by a kernel, where this is faster."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import torch

from otm.sequence import Decoder, RefinedScores, Sampled
from otm.sequence.drafted_tree import Conditionals, DraftTree, Step
from otm.sequence.randomness import Randomness

from .grid import ScoreGrid
from .scores import refined_scores

LEAST_TOKENS = 4096
"""Tokens of a vocabulary from which on the kernel is faster on a CPU."""


@dataclasses.dataclass(frozen=True)
class RefinedScoresByBins(RefinedScores):
    """Refined scores whose steps are verified in float32, by bins of q/p.

    As lossless as `RefinedScores`, by other scores and other random numbers. A vocabulary below
    `LEAST_TOKENS`, an enumeration, and rows that float32 makes no step of are left to
    `RefinedScores`.
    """

    @functools.cached_property
    def grid(self) -> ScoreGrid:
        """The bins and cells, made once."""
        return ScoreGrid.of(self.num_drafts, "cpu", cells=self.cells)

    def verify(self, tree: DraftTree, target: Conditionals, randomness: Randomness) -> Step:
        """Verify all sequences by the kernel, one request of as many nodes as are drafted."""
        contexts = [context for context in tree.contexts() if context is not None]
        few = len(tree.draft[tree.context]) < LEAST_TOKENS
        if few or not isinstance(randomness, Sampled) or len(contexts) < len(tree.tokens):
            return super().verify(tree, target, randomness)
        # vertices go level by level, and those of the last level have drafted nothing
        inner = contexts[: len(contexts) - self.num_drafts]
        target_rows, draft_rows = (
            torch.from_numpy(np.stack(rows, dtype=np.float32, casting="same_kind"))[None]
            for rows in ([target(one) for one in contexts], [tree.draft[one] for one in inner])
        )
        uniforms = torch.from_numpy(randomness.rng.random((1, len(contexts) + 1)))
        found = refined_scores(
            torch.from_numpy(tree.tokens)[None],
            torch.arange(1, len(contexts)).view(1, self.length, self.num_drafts).mT,
            target_rows,
            draft_rows,
            uniforms[:, :-1],
            uniforms[:, -1],
            self.grid,
        )
        kept = int(found.count[0]) - 1
        # float32 has no p(x) for this draft: so seldom that a choice by drafts weighs nothing
        if kept < 0:
            return super().verify(tree, target, randomness)
        return tree.step_along(found.nodes[0, 1 : kept + 1].tolist(), int(found.tokens[0, kept]))


@functools.cache
def _by_bins(decoder: RefinedScores) -> RefinedScoresByBins:
    return RefinedScoresByBins(decoder.num_drafts, decoder.length, cells=decoder.cells)


def by_kernel(decoder: Decoder) -> Decoder:
    """Return a faster decoder that verifies by a kernel, or the decoder if there is none.

    >>> by_kernel(RefinedScores(8, 4))
    RefinedScoresByBins(num_drafts=8, length=4, cells=64)
    """
    return _by_bins(decoder) if type(decoder) is RefinedScores else decoder
