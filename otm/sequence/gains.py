"""Expected accepted tokens of drafted sequences, with the verifier's randomness integrated out.

Given the drafted sequences, the tokens that refined scores or a block scheme accept have an
expectation that needs the conditionals at drafted nodes only, a mean over sequences of sums over
the vocabulary. So does verification vertex by vertex, given the way that it took. What is left to
chance is the drafts: their mean is that of `otm.sequence.expected_step`, and few contexts tell
decoders apart.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from otm._machine.arrays import Floats
from otm.drafts.iid import IID
from otm.problem import Problem
from otm.sequence.block_kseq import BlockKSeq
from otm.sequence.drafted_tree import Conditionals, DraftTree, longest_paths
from otm.sequence.greedy_multipath import RankedTokens
from otm.sequence.models import Context
from otm.sequence.randomness import Randomness
from otm.sequence.refined_scores import ScoredPaths
from otm.trees.shape import TreeShape
from otm.verbs import acceptance
from otm.verifiers.base import Verifier

_CELLS = 64

Gain = Callable[[DraftTree, Conditionals, list[Context], Randomness], Floats]
"""Expected acceptance at each level, `(L,)`, from a tree and the ends of the tree's sequences."""


def ends_of(tree: DraftTree) -> list[Context]:
    """Return the contexts at the ends of the drafted sequences."""
    contexts = tree.contexts()
    return [contexts[path[-1]] or () for path in longest_paths(tree.shape)]


def first_sequences(tree: DraftTree, shape: TreeShape) -> DraftTree:
    """Return the first tokens of the first drafted sequences, as a tree of a smaller shape."""
    tokens = np.full(shape.num_nodes + 1, -1, dtype=np.int64)
    for short, long in zip(longest_paths(shape), longest_paths(tree.shape), strict=False):
        tokens[list(short)] = tree.tokens[list(long[: len(short)])]
    return dataclasses.replace(tree, shape=shape, tokens=tokens)


def along(tree: DraftTree, end: Context) -> list[tuple[Context, int]]:
    """Return the contexts along a sequence, each with the next token."""
    return [(end[:place], end[place]) for place in range(len(tree.context), len(end))]


def refined_scores_gain(
    tree: DraftTree,
    target: Conditionals,
    ends: list[Context],
    num_drafts: int,
    eos: int | None = None,
) -> Floats:
    """Return the mean over sequences of Σ_y min(F q, p a) at each level, `(L,)`.

    A token that ends the text, and what is drafted after it, do not count.
    """
    paths = ScoredPaths(num_drafts, _CELLS, tree.context, tree.draft.__getitem__, target)

    def won(context: Context) -> float:
        masses = paths.accepted(context)
        if eos is None:
            return float(masses.sum())
        over = eos in context[len(tree.context) :]
        return 0.0 if over else float(masses.sum() - masses[eos])

    found = [[won(context) for context, _ in along(tree, end)] for end in ends]
    return np.asarray(np.mean(found, axis=0))


def block_kseq_gain(
    tree: DraftTree, target: Conditionals, ends: list[Context], _: Randomness
) -> Floats:
    """Return the mean over sequences of Σ_y min(F q, γ* p) at each level; F ← min(F q/p, γ*)."""
    start = tree.context
    gamma = BlockKSeq(len(ends), 1).gamma(tree.draft[start], target(start))
    found = np.zeros((len(ends), len(ends[0]) - len(start)))
    for number, end in enumerate(ends):
        weight = 1.0
        for level, (context, token) in enumerate(along(tree, end)):
            p, q = tree.draft[context], target(context)
            found[number, level] = np.minimum(weight * q, gamma * p).sum()
            weight = min(weight * float(q[token]) / float(p[token]), gamma)
    return np.asarray(found.mean(axis=0))


def greedy_multipath_gain(
    tree: DraftTree, target: Conditionals, ends: list[Context], _: Randomness
) -> Floats:
    """Return Σ_y min(F q, s) at each level of the highest-ranked sequence; F ← min(F q/s, 1)."""
    context, odds, weight, found = tree.context, 0.0, 1.0, list[float]()
    num_drafts = len(ends)
    while ends := _longer_continuations(ends, context):
        q = target(context)
        ranked = RankedTokens.of(tree.draft[context], q, odds, num_drafts)
        found.append(float(np.minimum(weight * q, ranked.selected).sum()))
        token = max((end[len(context)] for end in ends), key=ranked.place.__getitem__)
        weight = min(weight * float(q[token]) / float(ranked.selected[token]), 1.0)
        odds, context = ranked.odds(token), (*context, token)
    return np.array(found)


def vertex_gain(verifier: Verifier) -> Gain:
    """Return the gain that sums acceptances along the path of a verifier, 0 beyond the end."""

    def gain(
        tree: DraftTree, target: Conditionals, ends: list[Context], randomness: Randomness
    ) -> Floats:
        context, found = tree.context, np.zeros(len(ends[0]) - len(tree.context))
        while ends := _longer_continuations(ends, context):
            p, q, law = tree.draft[context], target(context), IID(len(ends))
            problem = Problem(draft=p, target=q, law=law)
            found[len(context) - len(tree.context)] = acceptance(verifier, problem)
            drafts = np.array([end[len(context)] for end in ends])
            context = (*context, randomness.verify(verifier, law, p, q, drafts))
        return found

    return gain


def _longer_continuations(ends: list[Context], context: Context) -> list[Context]:
    """Return the sequences that begin with a context and are longer."""
    return [end for end in ends if len(end) > len(context) and end[: len(context)] == context]
