"""Chains of the draft model's likeliest tokens, judged by tests that relax exact matching; what
these rules share.

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
from otm.drafts.base import Law
from otm.drafts.top_k import TopK
from otm.pmf import check_instance, settle_counts
from otm.sequence.decoder import Conditionals, DraftTree, Step, check_asked, evaluate
from otm.sequence.models import Context, LanguageModel
from otm.sequence.source import Outcomes
from otm.sequence.vertex_decoder import LawDecoder
from otm.trees.shape import TreeShape


@dataclasses.dataclass(frozen=True)
class GreedyChain(LawDecoder):
    """A decoder that drafts the likeliest token again and again, and keeps drafts by a test of its
    own: lossy.
    """

    length: int

    def __post_init__(self) -> None:
        settle_counts(self, length=1)

    @property
    def lossless(self) -> bool:
        """Not in general."""
        return False

    @property
    def shape(self) -> TreeShape:
        """A chain."""
        return TreeShape.chain(self.length)

    def law(self, num_drafts: int) -> Law:
        """The likeliest token."""
        return TopK(num_drafts)

    @abc.abstractmethod
    def kept_law(self, tokens: NDArray[np.int64], rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probability `(L + 1,)` that 0, …, L drafts are kept.

        Args:
            tokens: the drafts `(L,)`; rows: the target's distributions before each `(L, V)`.
        """

    @abc.abstractmethod
    def following(self, row: NDArray[np.float64], rejected: int | None) -> NDArray[np.float64]:
        """Return the law `(V,)` of the token after the kept drafts, given the target's there and
        the draft rejected, if one is.
        """


@dataclasses.dataclass(frozen=True)
class LooseStep:
    """What a step of a greedy chain wins and loses.

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
    """Return the exact tokens of one step of a greedy chain, its exact distance to the target, and
    the best at that distance.

    Texts fall into those that follow the chain for exactly j tokens and go on with y, and beyond
    both laws are the target's. So with K_j the probability of keeping j drafts, f_j the law of the
    next token and Q_j that of the first j drafts

        TV = ½ Σ_{j,y} |K_j f_j(y) − Q_j q_{j+1}(y) 1[y ≠ x_{j+1}]|.

    A text that leaves the chain after j tokens gains at most L − j by following it: the frontier
    moves mass TV, the smallest j first.

    Args:
        decoder: a greedy chain, `Fly` or `RegretBudget`.
        draft, target: two models, of any vocabulary.
        context: tokens so far.

    Returns:
        LooseStep.

    Raises:
        As `otm.sequence.step`.

    Cost: L draft calls, one target call, O(L V). Accuracy: rounding of sums and of products along
        the chain.
    Reference: docs/theory.md, "Greedy chains".

    >>> from otm.sequence import Fly, ZerothOrder
    >>> half = ZerothOrder([0.5, 0.5])
    >>> loose_step(
    ...     Fly(1, samples=2), draft=half, target=half, context=[]
    ... )  # ¾ in the place of ½: it costs ¼ and wins ¼
    LooseStep(block_efficiency=1.75, total_variation=0.25, kl=0.14384103622589045, frontier=1.75)
    """
    start = check_asked(
        check_instance(decoder, GreedyChain, name="decoder"),
        draft=draft,
        target=target,
        context=context,
    )
    tree = decoder.draft(draft, start, Outcomes({}))
    _, tokens, rows = along(tree, evaluate(target, tree).__getitem__)
    kept, follows, leaving = decoder.kept_law(tokens, rows[:-1]), 1.0, np.empty(decoder.length + 1)
    distance, divergence = 0.0, 0.0
    for level, row in enumerate(rows):
        rejected = int(tokens[level]) if level < decoder.length else None
        wanted = follows * row
        if rejected is not None:
            follows, wanted[rejected] = float(wanted[rejected]), 0.0
        leaving[level] = wanted.sum()
        output = (
            kept[level] * decoder.following(row, rejected)
            if kept[level] > 0
            else np.zeros_like(row)
        )
        distance += 0.5 * float(np.abs(output - wanted).sum())
        divergence += float(divergence_term(wanted, output).sum())
    moved = np.minimum(np.cumsum(leaving), distance)
    gains = (decoder.length - np.arange(decoder.length + 1)) * np.diff(moved, prepend=0.0)
    levels = np.arange(1, decoder.length + 2)
    return LooseStep(
        float(levels @ kept), distance, divergence, float(levels @ leaving + gains.sum())
    )


def along(
    tree: DraftTree, target: Conditionals
) -> tuple[list[Context], NDArray[np.int64], NDArray[np.float64]]:
    """Return a chain's contexts, its tokens `(L,)` and the target's distributions before each and
    after the last `(L + 1, V)`.
    """
    contexts = [
        context for context in tree.contexts() if context is not None
    ]  # the likeliest token is never missing
    return contexts, tree.tokens[1:], np.stack([target(context) for context in contexts])


def ended(tree: DraftTree, kept: int, token: int) -> Step:
    """Return the step that keeps so many drafts of a chain and goes on with a token."""
    decoded = (*tree.tokens[1 : kept + 1].tolist(), token)
    survivors = tuple((vertex,) for vertex in range(1, kept + 1))
    return Step(
        decoded, kept, "end_of_draft" if kept == tree.shape.num_nodes else "rejected", survivors
    )
