"""The base of decoding algorithms: draft a tree of tokens, then verify the tree.

Drafting sees the draft model only. Between drafting and verification the target is evaluated at
every vertex of the drafted tree together, in one batch: the one serial call of the target that a
step costs. Verification then reads those distributions. Both stages take their random steps from a
`Randomness`, so that the same lines of a decoder are sampled and enumerated exactly.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from typing import ClassVar

import numpy as np

from otm.drafts.base import Law
from otm.drafts.iid import IID
from otm.errors import InvalidParameter, Unsupported
from otm.pmf import settle_counts
from otm.scheme import Scheme
from otm.sequence.drafted_tree import Conditionals, DraftTree, Step
from otm.sequence.models import Context, LanguageModel
from otm.sequence.randomness import Randomness
from otm.trees.shape import TreeShape


@dataclasses.dataclass(frozen=True)
class Decoder(Scheme):
    """A decoding algorithm with the parameters as fields.

    Attributes:
        carries_noise: whether a step looks at noise of positions that it may not reach. Then the
            steps after it, and a target that goes on alone, must sample on the same noise: texts
            have the target's law, the tokens of one step and fresh samples after them have not.
    """

    carries_noise: ClassVar[bool] = False

    @property
    @abc.abstractmethod
    def lossless(self) -> bool:
        """True if a step followed by target samples has the target's law, for all models."""

    @property
    @abc.abstractmethod
    def num_nodes(self) -> int:
        """The largest number of vertices that a step drafts."""

    @property
    @abc.abstractmethod
    def depth(self) -> int:
        """The largest number of drafts that a step can accept."""

    @abc.abstractmethod
    def draft(self, model: LanguageModel, context: Context, randomness: Randomness) -> DraftTree:
        """Draft a tree after `context`, from the draft model alone."""

    @abc.abstractmethod
    def verify(self, tree: DraftTree, target: Conditionals, randomness: Randomness) -> Step:
        """Decode tokens from a drafted tree and the target's distributions at the vertices."""


class StaticDecoder(Decoder):
    """A decoder whose drafted tree has one shape in every context.

    Attributes:
        drafts: the law of siblings, for any number of them; None where it is no draft law.
    """

    drafts: Law | None = None

    @property
    @abc.abstractmethod
    def shape(self) -> TreeShape:
        """The shape of the drafted tree."""

    @property
    def num_nodes(self) -> int:
        """The drafted vertices of the shape."""
        return self.shape.num_nodes

    @property
    def depth(self) -> int:
        """The levels of the shape."""
        return self.shape.depth


@dataclasses.dataclass(frozen=True)
class ChainDecoder(StaticDecoder):
    """A decoder that drafts one sequence of L tokens."""

    length: int

    def __post_init__(self) -> None:
        settle_counts(self, length=1)
        super().__post_init__()

    @functools.cached_property
    def shape(self) -> TreeShape:
        """A chain."""
        return TreeShape.chain(self.length)


@dataclasses.dataclass(frozen=True)
class SequencesDecoder(StaticDecoder):
    """A decoder that drafts K sequences of L tokens after a common stem of `stem` tokens."""

    stem = 0
    num_drafts: int
    length: int

    def __post_init__(self) -> None:
        settle_counts(self, num_drafts=1, length=1)
        super().__post_init__()

    @functools.cached_property
    def shape(self) -> TreeShape:
        """K chains at the end of the stem."""
        return TreeShape.delayed(self.stem, self.num_drafts, self.length)


@dataclasses.dataclass(frozen=True)
class TreeDecoder(StaticDecoder):
    """A decoder that drafts a tree of any shape, of at least one token."""

    tree: TreeShape

    def __post_init__(self) -> None:
        require_drafts(self.tree)
        super().__post_init__()

    @property
    def shape(self) -> TreeShape:
        """The tree."""
        return self.tree


@dataclasses.dataclass(frozen=True)
class SizedTree(Decoder):
    """A decoder that drafts up to N tokens on at most L levels, in a free shape."""

    size: int
    length: int

    def __post_init__(self) -> None:
        settle_counts(self, size=1, length=1)
        super().__post_init__()

    @property
    def num_nodes(self) -> int:
        """N."""
        return self.size

    @property
    def depth(self) -> int:
        """The smaller of L and N."""
        return min(self.length, self.size)


def independent_sequences(decoder: Decoder) -> int | None:
    """Return K if a decoder drafts K independent sequences of equal length, None if not."""
    if not isinstance(decoder, StaticDecoder) or not isinstance(decoder.drafts, IID):
        return None
    per_level = np.bincount(decoder.shape.levels)[1:]
    straight = np.all(decoder.shape.num_children[1:] <= 1)
    return int(per_level[0]) if straight and np.all(per_level == per_level[0]) else None


def require_fresh(decoder: Decoder) -> None:
    """Raise `Unsupported` if a decoder carries noise, since then no step stands alone."""
    if decoder.carries_noise:
        raise Unsupported(
            "Steps that begin afresh are asked for; "
            f"{decoder!r} carries noise from one to the next. Estimate with "
            "otm.sequence.noise_tokens."
        )


def require_drafts(shape: TreeShape) -> None:
    """Raise `InvalidParameter` if a shape drafts nothing."""
    if not isinstance(shape, TreeShape):
        raise InvalidParameter(
            f"A tree is an otm.trees.TreeShape; got {shape!r}. Write TreeShape.chain(8), say."
        )
    if shape.num_nodes == 0:
        raise InvalidParameter(
            f"A decoder needs a tree of at least one drafted token; got {shape!r}. For plain "
            "sampling from the target draw from target.next."
        )
