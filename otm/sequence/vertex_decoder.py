"""Decoding vertex by vertex: at each visited vertex a verifier picks the output among the drafted
children.

The current vertices are those that agree with the output so far; they share one context. Their
children together are drafts of the next token, and a verifier for that many drafts picks the
output. The children *equal to the output* become the current vertices, whatever the rule accepted;
none ends the step, and current vertices without children end it with a bonus token from the target.

The children of *distinct* vertices with one context are independent given the past, those of one
vertex are drawn by the scheme's draft law. So the verifier is fed one draft per child, never one
per leaf: leaves that share a prefix are no independent drafts at its levels (docs/theory.md, "The
prefix-tree trap").
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from otm.drafts.base import PAD, Law
from otm.errors import InvalidParameter
from otm.sequence.decoder import Conditionals, DraftTree, StaticDecoder, Step, Stop, require_drafts
from otm.sequence.models import Context, LanguageModel, next_distributions
from otm.sequence.source import Source
from otm.trees.shape import TreeShape
from otm.verifiers.base import Verifier


@dataclasses.dataclass(frozen=True)
class LawDecoder(StaticDecoder):
    """A decoder that draws the children of every vertex by a draft law."""

    @abc.abstractmethod
    def law(self, num_drafts: int) -> Law:
        """The law by which that many children of one vertex, or of several that agree, are drawn."""

    def draft(self, model: LanguageModel, context: Context, source: Source) -> DraftTree:
        """Draw level by level, one call of the draft model per level."""
        return grow_by_law(self.shape, model, context, self.law, source)


@dataclasses.dataclass(frozen=True)
class VertexDecoder(LawDecoder):
    """One that verifies the children by a verifier that needs nothing but the drafts."""

    @property
    @abc.abstractmethod
    def verification(self) -> Verifier:
        """The verifier applied at each vertex."""

    @property
    def lossless(self) -> bool:
        """As its verifier (docs/theory.md, "Verify level by level" and "Trees")."""
        return self.verification.lossless

    def verify(self, tree: DraftTree, target: Conditionals, source: Source) -> Step:
        """Run the verifier at each vertex that the output reaches."""

        def output(vertices: list[int], context: Context, proposals: NDArray[np.int64]) -> int:
            rule = source.rule(
                self.verification, tree.draft[context], target(context), self.law(len(proposals))
            )
            return source.verify(rule, proposals)[0]

        return descend(tree, target, source, output)


def require_verifier(verifier: Verifier) -> None:
    """Raise `InvalidParameter` unless it is a verifier."""
    if not isinstance(verifier, Verifier):
        raise InvalidParameter(
            f"verifier must be an instance of one of otm.verifiers.VERIFIERS; got {verifier!r}. "
            "Pass otm.KSeq(), say."
        )


def grow(
    shape: TreeShape,
    model: LanguageModel,
    context: Context,
    children: Callable[[int, NDArray[np.float64], int], NDArray[np.int64]],
) -> DraftTree:
    """Draft a tree level by level.

    Args:
        shape: the tree's shape.
        model: the draft model, called once per level on the contexts that draft there.
        context: tokens before the root.
        children: (vertex, draft distribution, number of children) → their tokens, −1 for no draft.

    Returns:
        DraftTree, without races.
    """
    require_drafts(shape)
    below = children_of(shape)
    tokens = np.full(shape.num_nodes + 1, PAD, dtype=np.int64)
    contexts: dict[int, Context] = {0: context}
    known: dict[Context, NDArray[np.float64]] = {}
    level = [0]
    while drafting := [vertex for vertex in level if below[vertex]]:
        known |= next_distributions(model, (contexts[vertex] for vertex in drafting), name="draft")
        level = []
        for vertex in drafting:
            drawn = children(vertex, known[contexts[vertex]], len(below[vertex]))
            for child, token in zip(below[vertex], drawn.tolist(), strict=True):
                if token != PAD:
                    tokens[child] = token
                    contexts[child] = (*contexts[vertex], token)
                    level.append(child)
    return DraftTree(shape=shape, context=context, tokens=tokens, draft=known)


def grow_by_law(
    shape: TreeShape,
    model: LanguageModel,
    context: Context,
    law: Callable[[int], Law],
    source: Source,
) -> DraftTree:
    """Draft a tree level by level, `law(n)` drawing the n children of a vertex; errors as the
    law's.
    """

    def children(vertex: int, mass: NDArray[np.float64], count: int) -> NDArray[np.int64]:
        drafts = law(count)
        drafts.align(mass, mass)  # refuses more drafts than the law can give from this vocabulary
        return source.draw(drafts, mass)

    return grow(shape, model, context, children)


def descend(
    tree: DraftTree,
    target: Conditionals,
    source: Source,
    output: Callable[[list[int], Context, NDArray[np.int64]], int],
) -> Step:
    """Follow the output through a drafted tree.

    Args:
        tree: the drafted tree.
        target: the target's distributions.
        source: draws the bonus token.
        output: (current vertices, their context, their children's tokens) → the output token.

    Returns:
        Step.
    """
    below, context = children_of(tree.shape), tree.context
    current = [0]
    survivors: list[tuple[int, ...]] = []
    while True:
        children = [child for vertex in current for child in below[vertex]]
        if not children:
            bonus = source.choose(target(context))
            return _step(tree, (*context, bonus), survivors, "end_of_draft")
        proposals = tree.tokens[children]
        token = output(current, context, proposals)
        context = (*context, token)
        current = [
            child
            for child, drafted in zip(children, proposals.tolist(), strict=True)
            if drafted == token
        ]
        if not current:
            return _step(tree, context, survivors, "rejected")
        survivors.append(tuple(current))


def _step(
    tree: DraftTree, context: Context, survivors: list[tuple[int, ...]], stopped: Stop
) -> Step:
    return Step(context[len(tree.context) :], len(survivors), stopped, tuple(survivors))


@functools.lru_cache(maxsize=64)
def children_of(shape: TreeShape) -> list[tuple[int, ...]]:
    """Return the children of every vertex, listed once per shape.

    >>> children_of(TreeShape.sequences(2, 2))
    [(1, 2), (3,), (4,), (), ()]
    """
    return [shape.children(vertex) for vertex in range(shape.num_nodes + 1)]
