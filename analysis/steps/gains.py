"""What drafted sequences gain by each scheme: the tokens that one call of the target yields.

Most of a step's luck can be integrated out. Given the drafted sequences, the tokens that refined
scores or a block scheme accept have an expectation that needs the conditionals at drafted nodes
only, a mean over sequences of sums over the vocabulary. So does verification vertex by vertex,
given the way that it took. What is left to chance is the drafts: few contexts tell decoders apart.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable

import numpy as np

import otm
from otm._arrays import Floats
from otm.sequence import (
    BlockKSeq,
    LanguageModel,
    RefinedScores,
    Sampled,
    TraversalVerification,
)
from otm.sequence.decoder import Conditionals, DraftTree, evaluate, longest_paths
from otm.sequence.greedy_multipath import RankedTokens
from otm.sequence.level_cuts import conjugate
from otm.sequence.models import Context
from otm.sequence.refined_scores import ScoredPaths
from otm.trees import TreeShape

BOUND = "at most, by level cuts"
REFINED = "refined scores"
CHAIN = "block verification, one sequence"
TRAVERSAL = "traversal verification"
SLOPES = 32
"""Of the bound: their number."""
_THIRDS = 3
_CELLS = 64

Gain = Callable[[DraftTree, Conditionals, list[Context], Sampled], Floats]
"""What is accepted at each level, `(L,)`, of the sequences of a tree that end so."""


class DraftedSequences:
    """K independent sequences of L tokens after a context, with the target's answers along them.

    The first k of them are k independent sequences, so one draft serves every number.

    Args:
        draft, target: the models.
        context: tokens so far.
        num_drafts, length: K and L.
        randomness: of the drafts, and of the ways that verifiers take.

    Attributes:
        tree: the drafts.
        first: the distributions p and q after the context.
    """

    def __init__(
        self,
        draft: LanguageModel,
        target: LanguageModel,
        context: Context,
        num_drafts: int,
        length: int,
        randomness: Sampled,
    ) -> None:
        self.tree = RefinedScores(num_drafts, length).draft(draft, context, randomness)
        self._known = evaluate(target, self.tree)
        self._ends = ends_of(self.tree)
        self._randomness = randomness
        self.first = self.tree.draft[context], self._known[context]

    def gained(
        self, k: int, names: Iterable[str], traversed: Collection[int] = ()
    ) -> dict[str, Floats]:
        """Return the tokens per call of k sequences, `(L,)` by the level that they are cut at.

        Traversal is a step by itself for each of the levels in `traversed`, NaN at the others.
        """
        target, ends = self._known.__getitem__, self._ends[:k]
        found = {
            name: 1.0 + np.cumsum(SCHEMES[name](self.tree, target, ends, self._randomness))
            for name in names
        }
        if traversed:
            found[TRAVERSAL] = np.full(self.tree.shape.depth, np.nan)
        for length in traversed:
            shape = TreeShape.sequences(k, length)
            cut = first_sequences(self.tree, shape)
            once = TraversalVerification(shape, otm.IID(1)).verify(cut, target, self._randomness)
            found[TRAVERSAL][length - 1] = 1.0 + once.accepted
        return found

    def nodes(self, k: int) -> Floats:
        """Return how many different nodes k sequences have, `(L,)` by the level of the cut."""
        start, depth = len(self.tree.context), self.tree.shape.depth
        levels = [
            len({end[: start + level + 1] for end in self._ends[:k]}) for level in range(depth)
        ]
        return np.cumsum(np.array(levels, dtype=float))

    def cuts(self, k: int) -> Floats:
        """Return the mean over k sequences of Σ_y min(r q, λ p) at each level, `(L, slopes)`."""
        slopes = _slopes(k)[:, None]
        found = np.zeros((self.tree.shape.depth, SLOPES))
        for end in self._ends[:k]:
            ratio = 1.0
            for level, (context, token) in enumerate(_along(self.tree, end)):
                p, q = self.tree.draft[context], self._known[context]
                found[level] += np.minimum(ratio * q, slopes * p).sum(axis=1)
                ratio *= float(q[token]) / float(p[token])
        return found / k


def ends_of(tree: DraftTree) -> list[Context]:
    """Return the contexts at the ends of the drafted sequences."""
    contexts = tree.contexts()
    return [contexts[path[-1]] or () for path in longest_paths(tree.shape)]


def first_sequences(tree: DraftTree, shape: TreeShape) -> DraftTree:
    """Return the first tokens of the first of some drafted sequences, as a tree by themselves."""
    tokens = np.full(shape.num_nodes + 1, -1, dtype=np.int64)
    for short, long in zip(longest_paths(shape), longest_paths(tree.shape), strict=False):
        tokens[list(short)] = tree.tokens[list(long[: len(short)])]
    return dataclasses.replace(tree, shape=shape, tokens=tokens)


def _along(tree: DraftTree, end: Context) -> list[tuple[Context, int]]:
    """Return the contexts along a sequence, each with its next token."""
    return [(end[:place], end[place]) for place in range(len(tree.context), len(end))]


def refined_scores(
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

    found = [[won(context) for context, _ in _along(tree, end)] for end in ends]
    return np.asarray(np.mean(found, axis=0))


def block_kseq(tree: DraftTree, target: Conditionals, ends: list[Context], _: Sampled) -> Floats:
    """Return the mean over sequences of Σ_y min(F q, γ* p) at each level; F ← min(F q/p, γ*)."""
    start = tree.context
    gamma = BlockKSeq(len(ends), 1).gamma(tree.draft[start], target(start))
    found = np.zeros((len(ends), len(ends[0]) - len(start)))
    for number, end in enumerate(ends):
        weight = 1.0
        for level, (context, token) in enumerate(_along(tree, end)):
            p, q = tree.draft[context], target(context)
            found[number, level] = np.minimum(weight * q, gamma * p).sum()
            weight = min(weight * float(q[token]) / float(p[token]), gamma)
    return np.asarray(found.mean(axis=0))


def greedy_multipath(
    tree: DraftTree, target: Conditionals, ends: list[Context], _: Sampled
) -> Floats:
    """Return Σ_y min(F q, s) at each level of the highest-ranked sequence; F ← min(F q/s, 1)."""
    context, odds, weight, found = tree.context, 0.0, 1.0, list[float]()
    num_drafts = len(ends)
    while ends := _going_on(ends, context):
        q = target(context)
        ranked = RankedTokens.of(tree.draft[context], q, odds, num_drafts)
        found.append(float(np.minimum(weight * q, ranked.selected).sum()))
        token = max((end[len(context)] for end in ends), key=ranked.place.__getitem__)
        weight = min(weight * float(q[token]) / float(ranked.selected[token]), 1.0)
        odds, context = ranked.odds(token), (*context, token)
    return np.array(found)


def by_vertex(verifier: otm.Verifier) -> Gain:
    """Return the gain that sums acceptances on the way that a verifier takes, 0 beyond its end."""

    def gain(
        tree: DraftTree, target: Conditionals, ends: list[Context], randomness: Sampled
    ) -> Floats:
        context, found = tree.context, np.zeros(len(ends[0]) - len(tree.context))
        while ends := _going_on(ends, context):
            p, q, law = tree.draft[context], target(context), otm.IID(len(ends))
            problem = otm.Problem(draft=p, target=q, law=law)
            found[len(context) - len(tree.context)] = otm.acceptance(verifier, problem)
            drafts = np.array([end[len(context)] for end in ends])
            context = (*context, randomness.verify(verifier, law, p, q, drafts))
        return found

    return gain


def _going_on(ends: list[Context], context: Context) -> list[Context]:
    """Return those of the sequences that begin with a context and are longer."""
    return [end for end in ends if len(end) > len(context) and end[: len(context)] == context]


SCHEMES: dict[str, Gain] = {
    REFINED: lambda tree, target, ends, _: refined_scores(tree, target, ends, len(ends)),
    CHAIN: lambda tree, target, ends, _: refined_scores(tree, target, ends, 1),
    "block K-SEQ": block_kseq,
    "greedy multi-path block verification": greedy_multipath,
    "optimal, vertex by vertex": by_vertex(otm.Optimal()),
    "K-SEQ, vertex by vertex": by_vertex(otm.KSeq()),
    "recursive rejection, vertex by vertex": by_vertex(otm.RecursiveRejection()),
}
"""What sequences gain, by scheme; traversal, whose every length is a step of its own, apart."""


def _slopes(num_drafts: int) -> Floats:
    return np.asarray(num_drafts * np.linspace(0.0, 1.0, SLOPES + 1)[1:])


def bound_terms(cuts: Floats, num_drafts: int) -> Floats:
    """Return the bound's terms by context and level, with slopes that other thirds choose."""
    offsets, levels, third = (
        conjugate(_slopes(num_drafts), num_drafts),
        np.arange(cuts.shape[1]),
        np.arange(len(cuts)) % _THIRDS,
    )
    terms = np.empty(cuts.shape[:2])
    for part in range(_THIRDS):
        best = (cuts[third != part].mean(axis=0) + offsets).argmin(axis=1)
        terms[third == part] = offsets[best] + cuts[third == part][:, levels, best]
    return terms
