"""Decoding vertex by vertex: at each visited vertex a verifier picks the output among the drafted
children.

The current vertices are those that agree with the output so far; they share one context. Their
children together are drafts of the next token, and a verifier for that many drafts picks the
output. The children *equal to the output* become the current vertices, whatever the rule accepted;
none ends the step, and current vertices without children end it with a token from the target.

The children of *distinct* vertices with one context are independent given the past, those of one
vertex are drawn by the scheme's draft law. So the verifier is fed one draft per child, never one
per leaf: leaves that share a prefix are no independent drafts at its levels (docs/theory.md, "The
prefix-tree trap").

A scheme of this kind is a shape, a draft law and a verifier; the five below are those in use.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from otm.drafts.base import Law, enumerate_drafts
from otm.drafts.iid import IID
from otm.drafts.without_replacement import WithoutReplacement
from otm.errors import InvalidParameter, Unsupported
from otm.pmf import check_counts, check_instance, settle_counts
from otm.sequence.decoder import Conditionals, DraftTree, Step, require_drafts
from otm.sequence.deferred import (
    MAX_ENTRIES,
    StepModels,
    StepTally,
    Transition,
    require_table,
    sum_by_agreement,
    walk_levels,
)
from otm.sequence.law_decoder import LawDecoder, descend
from otm.sequence.models import Context
from otm.sequence.randomness import Randomness, prepare_conditional
from otm.trees.shape import TreeShape
from otm.verifiers.base import Verifier
from otm.verifiers.kseq import KSeq
from otm.verifiers.maximal import Maximal
from otm.verifiers.recursive_rejection import RecursiveRejection


class VertexScheme(NamedTuple):
    """Where drafts stand, the law of one vertex's children, and what verifies them."""

    shape: TreeShape
    law: Law
    verifier: Verifier


@dataclasses.dataclass(frozen=True)
class VertexDecoder(LawDecoder):
    """A decoder that verifies children by a verifier that needs nothing but the drafts."""

    @abc.abstractmethod
    def scheme(self) -> VertexScheme:
        """Return what the decoder's parameters stand for."""

    def __post_init__(self) -> None:
        tree, drafts, verifier = self.scheme()
        require_drafts(tree)
        if not isinstance(verifier, Verifier):
            raise InvalidParameter(
                "verifier must be an instance of one of otm.verifiers.VERIFIERS; got "
                f"{verifier!r}. Pass otm.KSeq(), say."
            )
        if not check_instance(drafts, Law, name="drafts").one_drafter:
            raise Unsupported(
                f"A tree is drafted by one model; {drafts!r} draws from several. Choose "
                "otm.IID(1), say."
            )

    @functools.cached_property
    def _scheme(self) -> VertexScheme:
        """What the parameters stand for, made once."""
        return self.scheme()

    @property
    def shape(self) -> TreeShape:
        """The shape of the drafted tree."""
        return self._scheme.shape

    @property
    def lossless(self) -> bool:
        """As its verifier (docs/theory.md, "Verify level by level" and "Trees")."""
        return self._scheme.verifier.lossless

    def law(self, num_drafts: int) -> Law:
        """The draft law with that many drafts."""
        return self._scheme.law.with_k(num_drafts)

    def verify(self, tree: DraftTree, target: Conditionals, randomness: Randomness) -> Step:
        """Run the verifier at each vertex that the output reaches."""
        verifier = self._scheme.verifier

        def output(vertices: list[int], context: Context, proposals: NDArray[np.int64]) -> int:
            rule = randomness.rule(
                verifier, tree.draft[context], target(context), self.law(len(proposals))
            )
            return randomness.verify(rule, proposals)[0]

        return descend(tree, target, randomness, output)

    def tally(self, models: StepModels) -> StepTally:
        """Enumerate the drafts of one vertex at a time, with the verifier's law of the output."""
        verifier = self._scheme.verifier

        def transitions(context: Context, count: int) -> list[Transition]:
            law, draft, target = self.law(count), models.draft(context), models.target(context)
            law.align(draft, target)
            table = enumerate_drafts(law, draft)
            live = table.mass > 0
            tokens, mass = table.tokens[live], table.mass[live]
            require_table(len(mass), len(draft), MAX_ENTRIES)
            rule = prepare_conditional(verifier, draft, target, law)

            def joint(block: slice) -> NDArray[np.float64]:
                accepted, residual = rule.split(tokens[block])
                return mass[block, None] * (accepted + residual)

            return sum_by_agreement(tokens, len(draft), joint)

        return walk_levels(self.shape, models, transitions)


@dataclasses.dataclass(frozen=True)
class SpeculativeSampling(VertexDecoder):
    """Draft `length` tokens in a row and verify each of them until one is rejected.

    E[tokens] = 1 + Σ_i Pr(the first i drafts are accepted); (1 − a^{γ+1})/(1 − a) when every draft
    is accepted with probability a.

    With a lossy verifier (`otm.Mentored`, `otm.Lenience`, `otm.TypicalAcceptance`, `otm.Fuzzy`)
    this is that scheme at sequence level; `otm.sequence.divergence_by_position` gives its exact KL.

    Args:
        length: γ ≥ 1 drafted tokens. SpecTr's Algorithm 4 calls γ + 1 its L.
        verifier: any that supports `IID(1)` and needs nothing but the draft.

    Raises:
        InvalidParameter: if `length` is no integer of at least 1.

    Cost: γ draft calls and one target call per step.
    Reference: Leviathan et al. 2023, Algorithm 1; Chen et al. 2023; SpecTr, Algorithm 4.

    >>> from otm.sequence import ZerothOrder, step_law
    >>> draft, target = ZerothOrder([0.75, 0.25]), ZerothOrder([0.5, 0.5])
    >>> law = step_law(SpeculativeSampling(2), draft=draft, target=target, context=[])
    >>> round(law.block_efficiency, 12)  # each accepted with probability 3/4: 1 + 3/4 + 9/16
    2.3125
    """

    title = "speculative sampling"

    length: int
    verifier: Verifier = Maximal()

    def __post_init__(self) -> None:
        settle_counts(self, length=1)
        super().__post_init__()

    def scheme(self) -> VertexScheme:
        """Return a chain, independent drafts and the verifier."""
        return VertexScheme(TreeShape.chain(self.length), IID(1), self.verifier)


@dataclasses.dataclass(frozen=True)
class DraftSelection(VertexDecoder):
    """Draft K i.i.d. sequences of L tokens and verify their next tokens together, level by level.

    Level by level: Y ~ verifier(next tokens of the survivors); keep the survivors whose next token
    is Y, by token equality; stop when there are none; after level L with survivors, add one token
    from the target.

    Args:
        num_drafts: K ≥ 1 sequences.
        length: L ≥ 1 tokens each.
        verifier: any that supports `IID(m)` for every m ≤ K and needs nothing but the drafts.

    Raises:
        InvalidParameter: if a count is no integer of at least 1.

    Cost: L draft calls and one target call per step, at most L preparations of the verifier.
    Reference: SpecTr, Algorithm 3 and Theorem 3.

    >>> from otm.sequence import ZerothOrder, step_law
    >>> draft, target = ZerothOrder([0.75, 0.25]), ZerothOrder([0.5, 0.5])
    >>> law = step_law(DraftSelection(2, 1), draft=draft, target=target, context=[])
    >>> round(law.block_efficiency, 6)  # 1 + K-SEQ's .847597
    1.847597
    """

    title = "draft selection"

    num_drafts: int
    length: int
    verifier: Verifier = KSeq()

    def __post_init__(self) -> None:
        settle_counts(self, num_drafts=1, length=1)
        super().__post_init__()

    def scheme(self) -> VertexScheme:
        """Return K chains, independent drafts and the verifier."""
        return VertexScheme(
            TreeShape.sequences(self.num_drafts, self.length), IID(1), self.verifier
        )


@dataclasses.dataclass(frozen=True)
class PrefixTree(VertexDecoder):
    """Draw k_{i+1} i.i.d. children at every vertex of level i, and verify one draft per child.

    SpecTr's Algorithm 5 drafts so; its leaves must not be handed to draft selection as if they were
    i.i.d. sequences, because those that share a prefix are one draft there, not several: that is
    lossy (docs/theory.md, "The prefix-tree trap"). m surviving vertices give m·k_{i+1} drafts, and
    the output is exact.

    Args:
        factors: (k₁, …, k_L), children per vertex of each level, each at least 1; (K, 1, …, 1) is
            `DraftSelection`.
        verifier: any that supports `IID(m)` for every m that occurs and needs nothing but the
            drafts.

    Raises:
        InvalidParameter: if there is no factor, or one is no integer of at least 1.

    Cost: L draft calls and one target call, on Σ_i k₁⋯k_i vertices.
    Reference: SpecTr, Appendix E, Algorithm 5.

    >>> from otm.sequence import ZerothOrder, step_law
    >>> model = ZerothOrder([0.5, 0.5])
    >>> step_law(PrefixTree((2, 2)), draft=model, target=model, context=[]).block_efficiency
    3.0
    """

    title = "prefix tree"

    factors: tuple[int, ...]
    verifier: Verifier = KSeq()

    def __post_init__(self) -> None:
        object.__setattr__(self, "factors", tuple(check_counts(self.factors, name="factors")))
        super().__post_init__()

    def scheme(self) -> VertexScheme:
        """Return the full tree with these factors, independent drafts and the verifier."""
        return VertexScheme(TreeShape.prefix_tree(self.factors), IID(1), self.verifier)


@dataclasses.dataclass(frozen=True)
class Gsd(VertexDecoder):
    """Draw children without replacement and verify them in order by recursive rejection.

    The drafting strategies are shapes: `TreeShape.chain(n)` sequence (`chain(1)` simple),
    `batch(n)`, `specinfer(L)`, any tree, and the optimal one, `otm.trees.optimal_tree`.

    Args:
        tree: the shape, at least one drafted token.

    Raises:
        InvalidParameter: on an empty tree; when drafting, if a vertex has more children than there
            are tokens.

    Cost: one draft call per level, one target call; O(c·V) per visited vertex with c children.
    Reference: ERSD [Kobus & Gündüz 2025], Section 2 and Algorithm 4; Jeon et al. 2024; Sequoia
        2024.

    >>> from otm.sequence import ZerothOrder, step_law
    >>> draft, target = ZerothOrder([0.937, 0.063]), ZerothOrder([0.777, 0.223])
    >>> law = step_law(Gsd(TreeShape.batch(2)), draft=draft, target=target, context=[])
    >>> round(law.block_efficiency, 12)  # both tokens drafted
    2.0
    """

    title = "GSD"

    tree: TreeShape

    def scheme(self) -> VertexScheme:
        """Return the tree, successive draws of which none is twice, and recursive rejection."""
        return VertexScheme(self.tree, WithoutReplacement(1), RecursiveRejection())


@dataclasses.dataclass(frozen=True)
class TreeVerification(VertexDecoder):
    """Draw children by any draft law and verify them by any verifier for that law.

    `TreeVerification(tree, otm.IID(1), otm.Optimal())` is the optimal verifier at every vertex,
    `TreeVerification(tree, otm.TopK(1), otm.Naive())` a tree of the most likely tokens.

    Args:
        tree: the shape, at least one drafted token.
        drafts: the draft law; its k is replaced by each vertex's number of children.
        verifier: any that supports the law for every number of children that occurs and needs
            nothing but the drafts.

    Raises:
        InvalidParameter: on an empty tree; when drafting, if a vertex has more children than the
            law can give.
        Unsupported: for laws of different drafters (`Product`), which are several models.

    Cost: one draft call per level, one target call, one preparation of the verifier per visited
        vertex.
    Reference: SpecInfer [Miao et al. 2024]; losslessness: docs/theory.md, "Trees".

    >>> from otm.sequence import ZerothOrder, step_law
    >>> draft, target = ZerothOrder([0.75, 0.25]), ZerothOrder([0.5, 0.5])
    >>> best = TreeVerification(TreeShape.batch(2), otm.IID(1), otm.Optimal())
    >>> law = step_law(best, draft=draft, target=target, context=[])
    >>> round(law.block_efficiency, 12)  # 1 + 15/16
    1.9375
    """

    title = "tree verification"

    tree: TreeShape
    drafts: Law
    verifier: Verifier

    def scheme(self) -> VertexScheme:
        """Return its three parameters."""
        return VertexScheme(self.tree, self.drafts, self.verifier)
