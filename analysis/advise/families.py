"""Families of decoders that are compared: every plan within the limits, with an exact walk.

A family reads a law off each text once and then walks along it with as many plans as it likes.
"""

from __future__ import annotations

import abc
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, final

import numpy as np

import otm
from otm.sequence import (
    BlockVerification,
    Decoder,
    DraftSelection,
    Gsd,
    LanguageModel,
    LikeliestTree,
    NoiseTree,
    RefinedScores,
    SpeculativeSampling,
    StaticDecoder,
)
from otm.trees import optimal_tree

from ..models.from_logits import UNLIMITED
from ..run.ranks import drafting_widths
from ..steps.likeliest_trees import MatchLaw, match_law
from ..steps.noise_trees import noise_given, noise_law, noise_scale
from ..steps.texts import SampledText
from .laws import RankLaw, SurvivorLaw, kseq_survivors, optimal_survivors, rejection_ranks
from .walk import Walk, along_all_lengths, along_block, along_scores, along_tree

NUMBERS = (2, 3, 4, 6, 8, 12, 16)
"""Numbers of i.i.d. sequences that are compared."""

WIDTH = 8
"""Most children of a vertex of a tree."""

SIZES = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Sizes of trees that are compared, within the budget."""

MOST_ANSWERED = 1 << 17
"""Most numbers in the distributions of one tree, as trees that depend on the context are grown at
every position of every text; trees of 16 tokens are allowed in any case.
"""

DECODED = 16
"""Most places of a text at which steps of refined scores start: these decode a text of their own,
from a random place on.
"""

SCALE_TEXTS = 3
"""Texts that the scale of trees on shared noise is fitted on: the first ones, as they come."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of the plans: drafted nodes of a step, drafts in a row, and i.i.d. sequences."""

    nodes: int
    depth: int
    sequences: int = 4

    @property
    def numbers(self) -> tuple[int, ...]:
        """Numbers of sequences that are compared."""
        return tuple(k for k in NUMBERS if k <= min(self.sequences, self.nodes))


@dataclasses.dataclass(frozen=True)
class Work:
    """The work of a step: draft calls, contexts drafted in, and nodes to check."""

    calls: float
    drafting: float
    nodes: float

    @classmethod
    def of(cls, decoder: StaticDecoder) -> Work:
        """Return the work of a step whose tree has one shape."""
        return cls(
            decoder.shape.depth, sum(drafting_widths(decoder.shape)), decoder.shape.num_nodes
        )


@dataclasses.dataclass(frozen=True)
class WalkedPlan:
    """A decoder with the expected walk along each text and the work of a step.

    `text` is the decoder's call, `words` its name for readers. The work is an average where it
    depends on the context.
    """

    family: str
    text: str
    words: str
    decoder: Decoder
    walks: tuple[Walk, ...]
    work: Work


@dataclasses.dataclass(frozen=True)
class TextToRead:
    """A text whose laws are read, with models, limits and random numbers.

    Attributes:
        text: its positions are the contexts.
        draft, target: the models.
        limits: of the compared plans.
        starts: steps start before this position.
        eos: the token that ends a text.
        rng: of a law that is sampled.
        before: the first texts that were read before.
        longest: positions that both models have.
    """

    text: SampledText
    draft: LanguageModel
    target: LanguageModel
    limits: Limits
    starts: int
    eos: int | None
    rng: np.random.Generator
    before: tuple[SampledText, ...] = ()
    longest: int = UNLIMITED


class Family(abc.ABC):
    """A kind of decoders whose walks along a text follow from one law of drafts.

    `needs` names the requirements on an engine beyond a draft model.
    """

    name: str
    needs: str

    @abc.abstractmethod
    def law(self, reading: TextToRead) -> Any:
        """Return the law of drafts along a text, from which all plans are walked."""

    @abc.abstractmethod
    def plans(self, laws: Sequence[Any], *, limits: Limits, starts: int) -> Iterator[WalkedPlan]:
        """Yield every plan within the limits."""

    @abc.abstractmethod
    def probes(self, limits: Limits) -> Iterator[Decoder]:
        """Yield a few decoders whose timed steps determine the costs of the family."""


@final
class Chains(Family):
    """One sequence of drafts, as engines draft today."""

    name, needs = "chain", "the draft's probabilities"

    def law(self, reading: TextToRead) -> SurvivorLaw:
        """Return the law of a single draft, which every optimal verifier shares."""
        text = reading.text
        return kseq_survivors(text.draft, text.target, text.tokens, most=1, eos=reading.eos)

    def plans(
        self, laws: Sequence[SurvivorLaw], *, limits: Limits, starts: int
    ) -> Iterator[WalkedPlan]:
        """Yield the plans of all lengths."""
        walks = [
            along_all_lengths(
                law, num_drafts=1, most=min(limits.depth, limits.nodes), starts=starts
            )
            for law in laws
        ]
        for length, row in enumerate(zip(*walks, strict=True), start=1):
            decoder = SpeculativeSampling(length)
            text, words = f"SpeculativeSampling({length})", f"chain of {length}"
            yield WalkedPlan(self.name, text, words, decoder, row, Work.of(decoder))

    def probes(self, limits: Limits) -> Iterator[StaticDecoder]:
        """Yield lengths on a geometric scale."""
        for length in sorted(
            {min(length, limits.depth, limits.nodes) for length in (1, 2, 4, limits.depth)}
        ):
            yield SpeculativeSampling(length)


@final
class Blocks(Family):
    """One sequence of drafts, verified as a whole: the best of all rules for one sequence."""

    name, needs = "block verification", "the draft's probabilities"

    def law(self, reading: TextToRead) -> list[Walk]:
        """Return the walks of all lengths."""
        limits = reading.limits
        most, starts = min(limits.depth, limits.nodes), reading.starts
        return along_block(reading.text, most=most, starts=starts, eos=reading.eos)

    def plans(
        self, laws: Sequence[list[Walk]], *, limits: Limits, starts: int
    ) -> Iterator[WalkedPlan]:
        """Yield the plans of all lengths from 2 on, as length 1 is the chain's."""
        for length, row in list(enumerate(zip(*laws, strict=True), start=1))[1:]:
            decoder = BlockVerification(length)
            text, words = f"BlockVerification({length})", f"block verification of {length}"
            yield WalkedPlan(self.name, text, words, decoder, row, Work.of(decoder))

    def probes(self, limits: Limits) -> Iterator[StaticDecoder]:
        """Yield a short and the longest sequence."""
        most = min(limits.depth, limits.nodes)
        for length in sorted({min(2, most), most} - {1}):
            yield BlockVerification(length)


@final
class Sequences(Family):
    """K i.i.d. sequences of L drafts."""

    needs = "the draft's probabilities, several sequences in one call"

    def __init__(self, verifier: otm.Verifier, name: str) -> None:
        self.verifier, self.name = verifier, name

    def law(self, reading: TextToRead) -> SurvivorLaw:
        """Return the law of the survivors for up to the largest K."""
        survivors = optimal_survivors if isinstance(self.verifier, otm.Optimal) else kseq_survivors
        text, most = reading.text, max(reading.limits.numbers, default=1)
        return survivors(text.draft, text.target, text.tokens, most=most, eos=reading.eos)

    def plans(
        self, laws: Sequence[SurvivorLaw], *, limits: Limits, starts: int
    ) -> Iterator[WalkedPlan]:
        """Yield every K with every L."""
        for number in limits.numbers:
            most = min(limits.depth, limits.nodes // number)
            walks = [
                along_all_lengths(law, num_drafts=number, most=most, starts=starts) for law in laws
            ]
            for length, row in enumerate(zip(*walks, strict=True), start=1):
                decoder = DraftSelection(number, length, self.verifier)
                text = f"DraftSelection({number}, {length}, {type(self.verifier).__name__}())"
                words = f"{number} sequences x {length}, {self.verifier}"
                yield WalkedPlan(self.name, text, words, decoder, row, Work.of(decoder))

    def probes(self, limits: Limits) -> Iterator[StaticDecoder]:
        """Yield decoders with few and many, short and long sequences."""
        fewest, most = min(limits.numbers, default=0), max(limits.numbers, default=0)
        for number, length in {(fewest, 1), (fewest, 4), (most, 2), (most, 8)}:
            if number and (length := min(limits.depth, length, limits.nodes // number)):
                yield DraftSelection(number, length, self.verifier)


@final
class ScoredSequences(Family):
    """K i.i.d. sequences of L drafts, K the most that is allowed, by refined scores.

    Which one is kept depends on all of them, so every plan decodes a text of its own.
    """

    name = "K sequences, refined scores"
    needs = Sequences.needs

    def law(self, reading: TextToRead) -> list[Walk]:
        """Return the walks of all plans, from a place of the text on."""
        text, rng = reading.text, reading.rng
        last = min(len(text.tokens), reading.starts) - DECODED
        place = int(rng.integers(max(0, last) + 1))
        return [
            along_scores(
                reading.draft,
                reading.target,
                text.context(place),
                decoder=decoder,
                starts=min(DECODED, reading.starts),
                longest=reading.longest,
                eos=reading.eos,
                rng=rng,
            )
            for decoder in self.probes(reading.limits)
        ]

    def plans(
        self, laws: Sequence[list[Walk]], *, limits: Limits, starts: int
    ) -> Iterator[WalkedPlan]:
        """Yield the plans with at least one walked step."""
        for decoder, row in zip(self.probes(limits), zip(*laws, strict=True), strict=True):
            number, length = decoder.num_drafts, decoder.length
            text = f"RefinedScores({number}, {length})"
            words = f"{number} sequences x {length}, refined scores"
            if any(walk.steps for walk in row):
                yield WalkedPlan(self.name, text, words, decoder, row, Work.of(decoder))

    def probes(self, limits: Limits) -> Iterator[RefinedScores]:
        """Yield lengths on a geometric scale, all that are compared."""
        number = max(limits.numbers, default=0)
        most = min(limits.depth, limits.nodes // number) if number else 0
        for length in sorted({min(length, most) for length in (2, 4, 8)} - {0, 1}):
            yield RefinedScores(number, length)


@final
class StaticTrees(Family):
    """The optimal trees of children without replacement, verified by recursive rejection.

    The tree of each size and depth is the best for the acceptance by rank, averaged over all
    positions; what it is expected to do is then computed along the texts, where positions differ.
    """

    name, needs = "static tree", "the draft's probabilities, tree attention"

    def law(self, reading: TextToRead) -> RankLaw:
        """Return the law of the accepted rank."""
        text = reading.text
        most = min(WIDTH, reading.limits.nodes, text.draft.shape[1])
        return rejection_ranks(
            text.draft, text.target, text.tokens, most=most, eos=reading.eos, rng=reading.rng
        )

    def plans(
        self, laws: Sequence[RankLaw], *, limits: Limits, starts: int
    ) -> Iterator[WalkedPlan]:
        """Yield the optimal tree of every size and depth that branches."""
        mean = np.concatenate([law.accepted for law in laws]).mean(axis=0)
        vector = np.sort(np.clip(mean, 0.0, 1.0))[::-1]
        seen = set()
        # Budgets beyond what a depth can use give the same tree again, which is walked once.
        for depth, nodes in itertools.product(range(1, limits.depth + 1), SIZES):
            if nodes > limits.nodes or nodes <= depth:
                continue
            shape = optimal_tree(
                vector / max(1.0, vector.sum()), num_nodes=nodes, max_depth=depth
            ).shape
            if shape.width < 2 or shape in seen:
                continue
            seen.add(shape)
            walks = tuple(along_tree(law, shape=shape, starts=starts) for law in laws)
            decoder = Gsd(shape)
            yield WalkedPlan(
                self.name,
                f"Gsd(parents({shape.parents.tolist()}))",
                f"tree of {shape.num_nodes} nodes, depth {shape.depth}",
                decoder,
                walks,
                Work.of(decoder),
            )

    def probes(self, limits: Limits) -> Iterator[StaticDecoder]:
        """Yield trees of a drafter that is right every other time."""
        for nodes, depth in ((2, 1), (8, 3), (24, 5), (limits.nodes, limits.depth)):
            if 1 < nodes <= limits.nodes and depth <= limits.depth:
                yield Gsd(
                    optimal_tree([0.5, 0.15, 0.08, 0.04], num_nodes=nodes, max_depth=depth).shape
                )


class MatchedTrees(Family):
    """Trees of N tokens on at most L levels, of another shape in each context.

    They are verified by sampling the target.
    """

    @abc.abstractmethod
    def named(self, size: int, depth: int, scale: float | None) -> tuple[str, str, Decoder]:
        """Return the decoder's call, the name for readers, and the decoder."""

    def plans(
        self, laws: Sequence[MatchLaw], *, limits: Limits, starts: int
    ) -> Iterator[WalkedPlan]:
        """Yield every size with every depth up to the size."""
        for place, size in enumerate(size for size in laws[0].sizes if size > 1):
            for depth in range(1, min(limits.depth, size) + 1):
                walks = tuple(Walk.of(*law.at(size=size, depth=depth)) for law in laws)
                calls, drafting = (
                    float(np.mean([getattr(law, name)[depth - 1, place] for law in laws]))
                    for name in ("calls", "drafting")
                )
                named = self.named(size, depth, laws[-1].scale)
                yield WalkedPlan(self.name, *named, walks, Work(calls, drafting, size))

    def probes(self, limits: Limits) -> Iterator[Decoder]:
        """Yield small and large trees."""
        for size, depth in ((2, 1), (8, 3), (16, 5)):
            if size <= limits.nodes and depth <= limits.depth:
                yield self.named(size, depth, 1.0)[-1]


@final
class LikeliestTrees(MatchedTrees):
    """Trees of the draft's likeliest paths, as EAGLE-2 drafts."""

    name, needs = "likeliest tree", "tree attention"

    def law(self, reading: TextToRead) -> MatchLaw:
        """Return the matches of the text by trees of every size and depth."""
        return match_law(
            reading.draft,
            reading.text,
            sizes=_matched_sizes(reading),
            depth=reading.limits.depth,
            starts=reading.starts,
            eos=reading.eos,
        )

    def named(self, size: int, depth: int, scale: float | None) -> tuple[str, str, Decoder]:
        """Return call, name and decoder, which has no scale."""
        words = f"likeliest tree of {size}, depth {depth}"
        return f"LikeliestTree({size}, {depth})", words, LikeliestTree(size, depth)


@final
class NoiseTrees(MatchedTrees):
    """Trees of the target's likeliest paths given the noise that drafter and sampler share.

    Their scale is fitted on the first texts, on noise of its own; once these are read it stays, so
    that timings of one decoder add up.
    """

    name = "tree on shared noise"
    needs = "tree attention, the sampler's noise by seed and position"

    def law(self, reading: TextToRead) -> MatchLaw:
        """Return the matches of the text by all trees, on noise drawn given the text."""
        heard = (*reading.before, reading.text)[:SCALE_TEXTS]
        fitted = noise_scale(heard, [noise_given(text, reading.rng) for text in heard])
        return noise_law(
            reading.draft,
            reading.text,
            noise=noise_given(reading.text, reading.rng),
            scale=float(f"{fitted:.2g}"),  # as it is shown, and so as it is run
            sizes=_matched_sizes(reading),
            depth=reading.limits.depth,
            starts=reading.starts,
            eos=reading.eos,
        )

    def named(self, size: int, depth: int, scale: float | None) -> tuple[str, str, Decoder]:
        """Return call, name and decoder, with the scale of the laws."""
        assert scale is not None
        words = f"noise tree {size} x {depth}, scale {scale}"
        return f"NoiseTree({size}, {depth}, {scale})", words, NoiseTree(size, depth, scale)


def _matched_sizes(reading: TextToRead) -> tuple[int, ...]:
    most = min(reading.limits.nodes, max(16, MOST_ANSWERED // reading.draft.num_tokens))
    return tuple(size for size in SIZES if size <= most) or (1,)


FAMILIES: tuple[Family, ...] = (
    Chains(),
    Blocks(),
    Sequences(otm.KSeq(), "K sequences, K-SEQ"),
    Sequences(otm.Optimal(), "K sequences, optimal"),
    StaticTrees(),
    LikeliestTrees(),
    NoiseTrees(),
    ScoredSequences(),
)
"""Every family that is compared."""

NEEDS = {family.name: family.needs for family in FAMILIES}
"""Requirements on an engine for the plans of each family."""
