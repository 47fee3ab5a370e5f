"""Drafting level by level and descending with the output: what decoders of trees share."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from otm.drafts.base import PAD, Law
from otm.sequence.decoder import (
    Conditionals,
    DraftTree,
    StaticDecoder,
    Step,
    Stop,
    children_of,
    require_drafts,
)
from otm.sequence.deferred import DeferredDecoder
from otm.sequence.models import Context, LanguageModel, next_distributions
from otm.sequence.randomness import Randomness
from otm.trees.shape import TreeShape


@dataclasses.dataclass(frozen=True)
class LawDecoder(StaticDecoder, DeferredDecoder):
    """A decoder that draws the children of every vertex by a draft law."""

    @abc.abstractmethod
    def law(self, num_drafts: int) -> Law:
        """The law of that many children of one vertex, or of several that agree."""

    def draft(self, model: LanguageModel, context: Context, randomness: Randomness) -> DraftTree:
        """Draw level by level, with one call of the draft model per level."""
        return grow_by_law(self.shape, model, context, self.law, randomness)


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
    randomness: Randomness,
) -> DraftTree:
    """Draft a tree level by level, the n children of a vertex by `law(n)`."""

    def children(vertex: int, mass: NDArray[np.float64], count: int) -> NDArray[np.int64]:
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
