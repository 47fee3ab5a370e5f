"""Chains of the draft model's likeliest tokens, kept by tests that relax exact matching.

A greedy chain is no random draft: what is random, if anything, is the target's part. So the law of
a step follows from the target's distributions along one path: the probability with which each
number of drafts is kept, and what is decoded after them.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from otm.divergences import divergence_term
from otm.drafts.top_k import TopK
from otm.pmf import check_instance
from otm.sequence.decoder import ChainDecoder
from otm.sequence.decoding import check_step_arguments, evaluate
from otm.sequence.drafted_tree import Conditionals, DraftTree
from otm.sequence.exact_laws import StepModels, StepTally
from otm.sequence.models import Context, LanguageModel
from otm.sequence.randomness import Enumerated
from otm.sequence.vertex_decoder import LawDecoder


@dataclasses.dataclass(frozen=True)
class GreedyChain(ChainDecoder, LawDecoder):
    """A lossy decoder that drafts the likeliest token again and again and tests the chain."""

    lossless = False

    drafts = TopK(1)

    @abc.abstractmethod
    def kept_law(self, tokens: NDArray[np.int64], rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probability `(L + 1,)` that 0, …, L drafts are kept.

        Args:
            tokens: the drafts `(L,)`.
            rows: the target's distributions before each of them `(L, V)`.
        """

    @abc.abstractmethod
    def next_token_law(self, row: NDArray[np.float64], rejected: int | None) -> NDArray[np.float64]:
        """Return the law `(V,)` of the token after the kept drafts.

        Args:
            row: the target's distribution there `(V,)`.
            rejected: the draft that is not kept there; None after the whole chain.
        """

    def tally(self, models: StepModels) -> StepTally:
        """Weight every number of drafts by the probability of keeping that number."""
        tree = self.draft(models.drafter, models.start, Enumerated({}))
        contexts, tokens, rows = read_chain(tree, models.target)
        tally = StepTally(tree.shape, models.start)
        kept = self.kept_law(tokens, rows[:-1])
        for level, (context, mass) in enumerate(zip(contexts, kept.tolist(), strict=True)):
            if mass > 0:
                rejected = int(tokens[level]) if level < self.length else None
                tally.end_by(context, mass * self.next_token_law(rows[level], rejected))
        tally.reached[1:] = np.cumsum(kept[::-1])[::-1][1:]
        return tally


@dataclasses.dataclass(frozen=True)
class LooseStep:
    """Expected tokens and distance to the target of one step of a greedy chain.

    Attributes:
        block_efficiency: expected tokens per target call.
        total_variation: distance of the text, the step's tokens and the target's after them, to the
            target's text.
        kl: KL(target‖output) of the two, in nats.
        frontier: the largest expected number of tokens of any verification of this chain that is
            within `total_variation`.
    """

    block_efficiency: float
    total_variation: float
    kl: float
    frontier: float


def loose_step(
    decoder: GreedyChain, *, draft: LanguageModel, target: LanguageModel, context: Sequence[int]
) -> LooseStep:
    """Return the exact tokens per step of a greedy chain and the distance to the target.

    Texts fall into those that follow the chain for exactly j tokens and go on with y, and beyond
    both laws are the target's. So with K_j the probability of keeping j drafts, f_j the law of the
    next token and Q_j that of the first j drafts

        TV = ½ Σ_{j,y} |K_j f_j(y) − Q_j q_{j+1}(y) 1[y ≠ x_{j+1}]|.

    A text that leaves the chain after j tokens gains at most L − j by following it: the frontier
    moves mass TV, the smallest j first.

    Args:
        decoder: a greedy chain, such as `Fly` or `RegretBudget`.
        draft, target: two models, of any vocabulary.
        context: tokens so far.

    Returns:
        LooseStep.

    Cost: L draft calls, one target call, O(L V).
    Accuracy: rounding of sums and of products along the chain.
    Reference: docs/theory.md, "Greedy chains".

    >>> from otm.sequence import Fly, ZerothOrder
    >>> half = ZerothOrder([0.5, 0.5])
    >>> pair = Fly(1, samples=2)  # keeps with ¾ in the place of ½: that costs ¼ and wins ¼
    >>> loose_step(pair, draft=half, target=half, context=[])
    LooseStep(block_efficiency=1.75, total_variation=0.25, kl=0.14384103622589045, frontier=1.75)
    """
    start = check_step_arguments(
        check_instance(decoder, GreedyChain, name="decoder"),
        draft=draft,
        target=target,
        context=context,
    )
    tree = decoder.draft(draft, start, Enumerated({}))
    _, tokens, rows = read_chain(tree, evaluate(target, tree).__getitem__)
    kept, follows, leaving = decoder.kept_law(tokens, rows[:-1]), 1.0, np.empty(decoder.length + 1)
    distance, divergence = 0.0, 0.0
    for level, row in enumerate(rows):
        rejected = int(tokens[level]) if level < decoder.length else None
        wanted = follows * row
        if rejected is not None:
            follows, wanted[rejected] = float(wanted[rejected]), 0.0
        leaving[level] = wanted.sum()
        output = np.zeros_like(row)
        if kept[level] > 0:
            output = kept[level] * decoder.next_token_law(row, rejected)
        distance += 0.5 * float(np.abs(output - wanted).sum())
        divergence += float(divergence_term(wanted, output).sum())
    moved = np.minimum(np.cumsum(leaving), distance)
    gains = (decoder.length - np.arange(decoder.length + 1)) * np.diff(moved, prepend=0.0)
    levels = np.arange(1, decoder.length + 2)
    return LooseStep(
        float(levels @ kept), distance, divergence, float(levels @ leaving + gains.sum())
    )


def read_chain(
    tree: DraftTree, target: Conditionals
) -> tuple[list[Context], NDArray[np.int64], NDArray[np.float64]]:
    """Return a chain's contexts and tokens, and the target's distributions along the chain.

    Returns:
        The L + 1 contexts before each token and after the last, the tokens `(L,)`, and the rows
        `(L + 1, V)` of the contexts.
    """
    # The likeliest token is never missing.
    contexts = [context for context in tree.contexts() if context is not None]
    return contexts, tree.tokens[1:], np.stack([target(context) for context in contexts])
