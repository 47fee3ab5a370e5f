"""The run that Figure 4 of SpecTr draws: K-SEQ selects among K = 6 drafts of L = 4 tokens.

The capture searches for a run worth drawing, the figure repeats it from captured conditionals;
neither torch nor models are needed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import otm
from otm.sequence import DraftSelection, DraftTree, LanguageModel, Sampled, Step
from otm.sequence.decoding import evaluate

NUM_DRAFTS, LENGTH = 6, 4
SCHEME = DraftSelection(NUM_DRAFTS, LENGTH, otm.KSeq())


def draft(model: LanguageModel, context: Sequence[int], rng: np.random.Generator) -> DraftTree:
    """Draw the six drafts of four tokens."""
    return SCHEME.draft(model, tuple(context), Sampled(rng))


def select(target: LanguageModel, tree: DraftTree, rng: np.random.Generator) -> Step:
    """Select among the drafts by K-SEQ."""
    return SCHEME.verify(tree, evaluate(target, tree).__getitem__, Sampled(rng))


def table_of(tree: DraftTree) -> list[list[int]]:
    """Return the drafts as K rows of L tokens."""
    rows: list[list[int]] = tree.tokens[1:].reshape(LENGTH, NUM_DRAFTS).T.tolist()
    return rows


def survivors(one: Step) -> list[list[int]]:
    """List the surviving drafts of each round."""
    alive = [
        list(range(NUM_DRAFTS)),
        *([(vertex - 1) % NUM_DRAFTS for vertex in row] for row in one.survivors),
    ]
    return alive[:LENGTH]  # what survives the last round earns the bonus token
