"""Chains of the draft model's likeliest tokens, kept by tests that relax exact matching.

A greedy chain is no random draft: what is random, if anything, is the target's part. So the law of
a step follows from the target's distributions along one path: the probability with which each
number of drafts is kept, and what is decoded after them. Loose speculative decoding (FLy) forgives
a mismatch if the drafts after it match; approximate speculative decoding (ASD) has a budget of
regret.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from otm._arrays import quiet
from otm.divergences import divergence_term
from otm.drafts.top_k import TopK
from otm.pmf import check_count, check_instance, check_real
from otm.scheme import parameter
from otm.sequence.decoder import (
    ChainDecoder,
    Conditionals,
    DraftTree,
    Step,
    check_step_arguments,
    evaluate,
)
from otm.sequence.exact_laws import StepModels, StepTally
from otm.sequence.models import Context, LanguageModel
from otm.sequence.randomness import Enumerated, Randomness
from otm.sequence.vertex_decoder import LawDecoder

TOP = 3
"""The number of likeliest tokens whose entropy decides."""


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
        """Weigh every number of drafts with the probability that it is kept."""
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
    """Return what one step of a greedy chain decodes, and how far from the target, exactly.

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
    """Return a chain's contexts, its tokens, and the target's distributions along it.

    Returns:
        The L + 1 contexts before each token and after the last, the tokens `(L,)`, and the rows
        `(L + 1, V)` of the contexts.
    """
    # The likeliest token is never missing.
    contexts = [context for context in tree.contexts() if context is not None]
    return contexts, tree.tokens[1:], np.stack([target(context) for context in contexts])


@dataclasses.dataclass(frozen=True)
class Fly(GreedyChain):
    """Keep greedy drafts that match, and a mismatch before W − 1 matches where the target wavers.

    At position j the target's token is its likeliest one (m = 0), or m independent samples, any of
    which may match. A mismatch is forgiven if −Σ q log q over the three likeliest tokens is at
    least h, positions j + 1, …, j + W − 1 match, and it is not among the last W positions. The
    first mismatch that is not forgiven is replaced by the first sample. With matches of probability
    1 − (1 − q(x))^m the law of a step is a product along the draft.

    One sample without forgiving, W > L, is lossless for a sampled target. Two samples, as shipped,
    are not even then: a draft with probability q comes out with 2q − q², at a total variation of up
    to ¼.

    Args:
        length: L ≥ 1.
        window: W ≥ 1.
        entropy: h ≥ 0 in nats.
        samples: m ≥ 0; 0 decodes greedily, at temperature 0.

    Raises:
        InvalidParameter: if one is out of range.

    Cost: L draft calls, one target call.
    Reference: FLy [Li et al. 2025], 2511.22972v2, as its public code AMD-AGI/FLy at 39ed6f8 has it,
        without its n-gram drafter: L = 15, W = 6, h = .3, m = 0 in its configuration, m = 2 at any
        other temperature. There a threshold of at most .01 means none, and the entropy, of three
        tokens, is not the one of the paper.

    >>> from otm.sequence import ZerothOrder, expected_step
    >>> models = {"draft": ZerothOrder([0.6, 0.4]), "target": ZerothOrder([0.5, 0.5])}
    >>> exact = Fly(3, window=4, samples=1)  # three matches of ½ in a row
    >>> expected_step(exact, **models, context=[]).block_efficiency
    1.875
    >>> loose = Fly(3, window=1, samples=1)  # one is enough
    >>> expected_step(loose, **models, context=[]).block_efficiency
    3.5
    """

    title = "FLy"
    display_fields = ("window", "entropy", "samples")

    window: int = parameter(check_count, default=6)
    entropy: float = parameter(check_real, default=0.3, low=0.0)
    samples: int = parameter(check_count, default=0, minimum=0)

    def verify(self, tree: DraftTree, target: Conditionals, randomness: Randomness) -> Step:
        """Compare all drafts with the target's tokens, then keep those before the first failure."""
        _, tokens, rows = read_chain(tree, target)
        drawn = [self._tokens(row, randomness) for row in rows]
        matches = [int(token) in at for token, at in zip(tokens, drawn, strict=False)]
        kept = 0
        while kept < self.length and (matches[kept] or self._forgiven(kept, matches, rows[kept])):
            kept += 1
        return tree.step_along(range(1, kept + 1), drawn[kept][0])

    def kept_law(self, tokens: NDArray[np.int64], rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Follow the drafts by the number of matches that a forgiven mismatch still needs."""
        kept = np.zeros(self.length + 1)
        owed = np.zeros(self.window)  # the chance that all stand so far, by matches still due
        owed[0] = 1.0
        for place, (token, row) in enumerate(zip(tokens.tolist(), rows, strict=True)):
            match = self._match(token, row)
            # A second mismatch while matches are due: the drafts before the first are kept.
            for due in (np.flatnonzero(owed[1:]) + 1).tolist():
                kept[place - (self.window - due)] += owed[due] * (1.0 - match)
            missed = owed[0] * (1.0 - match)
            # A match: one fewer is due.
            settled = owed[0] * match
            owed = np.append(owed[1:], 0.0) * match
            owed[0] += settled
            if self._forgiving(place, row):
                owed[self.window - 1] += missed
            else:
                kept[place] += missed
        kept[-1] = owed[0]  # nothing is owed in the last W positions
        return kept

    def next_token_law(self, row: NDArray[np.float64], rejected: int | None) -> NDArray[np.float64]:
        """Return q without a rejected draft; at temperature 0 the likeliest token."""
        if self.samples == 0:
            return np.asarray(np.arange(len(row)) == np.argmax(row), dtype=np.float64)
        left = row.copy()
        if rejected is not None:
            left[rejected] = 0.0
        return np.asarray(left / left.sum())

    def _tokens(self, row: NDArray[np.float64], randomness: Randomness) -> list[int]:
        return [randomness.choose(row) for _ in range(self.samples)] or [int(np.argmax(row))]

    def _match(self, token: int, row: NDArray[np.float64]) -> float:
        """Return the probability of a match."""
        if self.samples == 0:
            return float(token == np.argmax(row))
        return 1.0 - (1.0 - float(row[token])) ** self.samples

    def _forgiven(self, place: int, matches: list[bool], row: NDArray[np.float64]) -> bool:
        return self._forgiving(place, row) and all(matches[place + 1 : place + self.window])

    def _forgiving(self, place: int, row: NDArray[np.float64]) -> bool:
        """Whether a mismatch at this position may be forgiven."""
        likeliest = np.sort(row)[-TOP:]
        likeliest = likeliest[likeliest > 0]
        return (
            place < self.length - self.window
            and float(-(likeliest * np.log(likeliest)).sum()) >= self.entropy
        )


@dataclasses.dataclass(frozen=True)
class RegretBudget(GreedyChain):
    """Decode greedily, but keep other drafts x while their regret log(max q/q(x)) is affordable.

    At position i of L, counted from 0, a mismatch of regret r is kept if r/v ≤ g with v = (L −
    i)/L, the regrets of the block and `spent` add up to at most B, less was spent before, and it is
    at most the m-th of the block. The first that is not is replaced by the likeliest token. Nothing
    is random. B = `spent` or m = 0 is exact greedy decoding.

    A request's budget outlasts its blocks: the caller carries `spent` from step to step, `generate`
    begins every step with it.

    Args:
        length: L ≥ 1.
        budget: B ≥ 0 in nats.
        gate: g ≥ 0 in nats.
        mismatches: m ≥ 0 in a block.
        spent: what earlier blocks have spent, at most B.

    Raises:
        InvalidParameter: if one is out of range.

    Cost: L draft calls, one target call.
    Reference: ASD (2608.03447; transformers#48636), as its reference code Kissmetothemoon/ASD at
        4228d0f has it; the request's text and the code at c9d6b68 divide by L − i in the place of
        (L − i)/L, a gate L times as wide. One token: `otm.BoundedRegret`.

    >>> from otm.sequence import ZerothOrder, expected_step
    >>> models = {"draft": ZerothOrder([0.6, 0.4]), "target": ZerothOrder([0.4, 0.6])}
    >>> narrow = RegretBudget(3, budget=2, gate=1, mismatches=3)
    >>> wide = RegretBudget(3, budget=2, gate=2, mismatches=3)
    >>> expected_step(narrow, **models, context=[]).block_efficiency  # regrets of .405 are kept
    3.0
    >>> expected_step(wide, **models, context=[]).block_efficiency  # while .405/v ≤ g
    4.0
    """

    title = "regret budget"
    display_fields = ("budget", "gate", "mismatches")

    budget: float = parameter(check_real, default=2.0625, low=0.0)
    gate: float = parameter(check_real, default=2.0625, low=0.0)
    mismatches: int = parameter(check_count, default=1, minimum=0)
    spent: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(
            self, "spent", check_real(self.spent, name="spent", low=0.0, high=self.budget)
        )

    def verify(self, tree: DraftTree, target: Conditionals, randomness: Randomness) -> Step:
        """Keep the drafts that can be afforded, then go on with the likeliest token."""
        _, tokens, rows = read_chain(tree, target)
        kept = self._kept(tokens, rows[:-1])
        return tree.step_along(range(1, kept + 1), int(np.argmax(rows[kept])))

    def kept_law(self, tokens: NDArray[np.int64], rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return 1 for the one number of drafts that is kept."""
        return np.asarray(np.arange(self.length + 1) == self._kept(tokens, rows), dtype=np.float64)

    def next_token_law(self, row: NDArray[np.float64], rejected: int | None) -> NDArray[np.float64]:
        """Return the likeliest token."""
        return np.asarray(np.arange(len(row)) == np.argmax(row), dtype=np.float64)

    def _kept(self, tokens: NDArray[np.int64], rows: NDArray[np.float64]) -> int:
        risk, relaxed = self.spent, 0
        for place, (token, row) in enumerate(zip(tokens.tolist(), rows, strict=True)):
            if token == np.argmax(row):
                continue
            with quiet():
                regret = float(np.log(row.max()) - np.log(row[token]))
            value = (self.length - place) / self.length
            affordable = risk < self.budget and risk + regret <= self.budget
            if not (regret / value <= self.gate and affordable and relaxed < self.mismatches):
                return place
            risk, relaxed = risk + regret, relaxed + 1
        return self.length
