"""Decoders that draft level by level by a draft law, and verify vertex by vertex.

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

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from otm.drafts.base import PAD, CountedLaw, Law, live_drafts
from otm.drafts.iid import IID
from otm.drafts.without_replacement import WithoutReplacement
from otm.errors import Unsupported
from otm.pmf import check_counts, check_instance
from otm.sequence.decoder import ChainDecoder, SequencesDecoder, StaticDecoder, TreeDecoder
from otm.sequence.drafted_tree import Conditionals, DraftTree, Step, Stop, children_of
from otm.sequence.exact_laws import (
    MAX_ENTRIES,
    DeferredDecoder,
    StepModels,
    StepTally,
    Transition,
    require_table,
    sum_by_agreement,
    walk_levels,
)
from otm.sequence.models import Context, LanguageModel, next_distributions
from otm.sequence.randomness import Randomness, prepare_conditional
from otm.trees.shape import TreeShape
from otm.verifiers.base import Verifier
from otm.verifiers.kseq import KSeq
from otm.verifiers.maximal import Maximal
from otm.verifiers.recursive_rejection import RecursiveRejection


class LawDecoder(StaticDecoder, DeferredDecoder):
    """A decoder that draws the children of every vertex by a draft law, independent by default."""

    drafts: Law = IID(1)

    def law(self, num_drafts: int) -> Law:
        """The law of several children of one vertex, or of vertices that agree."""
        return self.drafts.of_size(num_drafts)

    def draft(self, model: LanguageModel, context: Context, randomness: Randomness) -> DraftTree:
        """Draw level by level, with one call of the draft model per level."""
        return grow_by_law(self.shape, model, context, self.law, randomness)


class VertexDecoder(LawDecoder):
    """A decoder that verifies children by a verifier that needs only the drafts.

    Attributes:
        verifier: picks the output among the children of the current vertices.
    """

    verifier: Verifier

    def __post_init__(self) -> None:
        super().__post_init__()
        check_instance(self.verifier, Verifier, name="verifier")
        if not check_instance(self.drafts, CountedLaw, name="drafts").one_drafter:
            raise Unsupported(
                f"A tree is drafted by one model; {self.drafts!r} draws from several. Choose "
                "otm.IID(1), say."
            )

    @property
    def lossless(self) -> bool:
        """True if the verifier is lossless (docs/theory.md, "Verify level by level" and
        "Trees").
        """
        return self.verifier.lossless

    def verify(self, tree: DraftTree, target: Conditionals, randomness: Randomness) -> Step:
        """Run the verifier at each vertex that the output reaches."""
        return descend_by_verifier(tree, target, randomness, self.verifier, self.law)

    def tally(self, models: StepModels) -> StepTally:
        """Enumerate the drafts of one vertex at a time, with the verifier's law of the output."""

        def transitions(context: Context, count: int) -> list[Transition]:
            law, draft, target = self.law(count), models.draft(context), models.target(context)
            law.align(draft, target)
            table = live_drafts(law, draft)
            tokens, mass = table.tokens, table.mass
            require_table(len(mass), len(draft), MAX_ENTRIES)
            rule = prepare_conditional(self.verifier, law, draft, target)

            def joint(block: slice) -> NDArray[np.float64]:
                accepted, residual = rule.split(tokens[block])
                return mass[block, None] * (accepted + residual)

            return sum_by_agreement(tokens, len(draft), joint)

        return walk_levels(self.shape, models, transitions)


@dataclasses.dataclass(frozen=True)
class SpeculativeSampling(ChainDecoder, VertexDecoder):
    """Draft `length` tokens in a row and verify one token after the other until a rejection.

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

    verifier: Verifier = Maximal()


@dataclasses.dataclass(frozen=True)
class DraftSelection(SequencesDecoder, VertexDecoder):
    """Draft K i.i.d. sequences of L tokens and verify the next tokens together, level by level.

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

    verifier: Verifier = KSeq()


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

    @functools.cached_property
    def shape(self) -> TreeShape:
        """The full tree with these factors."""
        return TreeShape.prefix_tree(self.factors)


@dataclasses.dataclass(frozen=True)
class Gsd(TreeDecoder, VertexDecoder):
    """Draw children without replacement and verify siblings in order by recursive rejection.

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

    >>> import otm
    >>> from otm.sequence import ZerothOrder, step_law
    >>> draft, target = ZerothOrder([0.937, 0.063]), ZerothOrder([0.777, 0.223])
    >>> law = step_law(Gsd(otm.trees.TreeShape.batch(2)), draft=draft, target=target, context=[])
    >>> round(law.block_efficiency, 12)  # both tokens drafted
    2.0
    """

    title = "GSD"

    drafts = WithoutReplacement(1)
    verifier = RecursiveRejection()


@dataclasses.dataclass(frozen=True)
class TreeVerification(TreeDecoder, VertexDecoder):
    """Draw children by any draft law and verify the drafts by any verifier for that law.

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

    >>> import otm
    >>> from otm.sequence import ZerothOrder, step_law
    >>> draft, target = ZerothOrder([0.75, 0.25]), ZerothOrder([0.5, 0.5])
    >>> best = TreeVerification(otm.trees.TreeShape.batch(2), otm.IID(1), otm.Optimal())
    >>> law = step_law(best, draft=draft, target=target, context=[])
    >>> round(law.block_efficiency, 12)  # 1 + 15/16
    1.9375
    """

    title = "tree verification"

    drafts: Law = dataclasses.field()
    verifier: Verifier


def grow(
    shape: TreeShape,
    model: LanguageModel,
    context: Context,
    children: Callable[[Context, NDArray[np.float64], int], NDArray[np.int64]],
) -> DraftTree:
    """Draft a tree level by level.

    Args:
        shape: the tree's shape.
        model: the draft model, called once per level on the contexts that draft there.
        context: tokens before the root.
        children: (context, draft distribution, number of children) → their tokens, −1 for none.

    Returns:
        DraftTree, of which no noise is known.
    """
    below = children_of(shape)
    tokens = np.full(shape.num_nodes + 1, PAD, dtype=np.int64)
    contexts: dict[int, Context] = {0: context}
    known: dict[Context, NDArray[np.float64]] = {}
    level = [0]
    while drafting := [vertex for vertex in level if below[vertex]]:
        known |= next_distributions(model, (contexts[vertex] for vertex in drafting), name="draft")
        level = []
        for vertex in drafting:
            here = contexts[vertex]
            drawn = children(here, known[here], len(below[vertex]))
            for child, token in zip(below[vertex], drawn.tolist(), strict=True):
                if token != PAD:
                    tokens[child] = token
                    contexts[child] = (*here, token)
                    level.append(child)
    return DraftTree(shape=shape, context=context, tokens=tokens, draft=known)


def grow_by_law(
    shape: TreeShape,
    model: LanguageModel,
    context: Context,
    law: Callable[[int], Law],
    randomness: Randomness,
) -> DraftTree:
    """Draft a tree level by level, the n children of a vertex by `law(n)`."""

    def children(here: Context, mass: NDArray[np.float64], count: int) -> NDArray[np.int64]:
        drafts = law(count)
        drafts.align(mass, mass)  # refuses more drafts than the law can give from this vocabulary
        return randomness.draw(drafts, mass)

    return grow(shape, model, context, children)


def descend(
    tree: DraftTree,
    target: Conditionals,
    randomness: Randomness,
    output: Callable[[list[int], Context, NDArray[np.int64]], int],
) -> Step:
    """Follow the output through a drafted tree.

    Args:
        tree: the drafted tree.
        target: the target's distributions.
        randomness: draws the token after the last draft.
        output: (current vertices, their context, their children's tokens) → the output token.

    Returns:
        Step.
    """
    below, context = children_of(tree.shape), tree.context
    stopped: Stop = "rejected"
    current = [0]
    survivors: list[tuple[int, ...]] = []
    while current:
        children = [child for vertex in current for child in below[vertex]]
        if not children:
            context, stopped = (*context, randomness.choose(target(context))), "end_of_draft"
            break
        proposals = tree.tokens[children]
        token = output(current, context, proposals)
        context = (*context, token)
        # All children equal to the output go on, whichever of them the verifier accepted.
        drafted = zip(children, proposals.tolist(), strict=True)
        current = [child for child, proposal in drafted if proposal == token]
        if current:
            survivors.append(tuple(current))
    return Step(context[len(tree.context) :], len(survivors), stopped, tuple(survivors))


def descend_by_verifier(
    tree: DraftTree,
    target: Conditionals,
    randomness: Randomness,
    verifier: Verifier,
    law: Callable[[int], Law],
) -> Step:
    """Run a verifier among the children of each vertex that the output reaches.

    Args:
        tree: the drafted tree.
        target: the target's distributions.
        randomness: runs the verifier.
        verifier: any that needs nothing but the drafts.
        law: number of children → the law that they were drawn by.
    """

    def output(vertices: list[int], context: Context, proposals: NDArray[np.int64]) -> int:
        return randomness.verify(
            verifier, law(len(proposals)), tree.draft[context], target(context), proposals
        )

    return descend(tree, target, randomness, output)
