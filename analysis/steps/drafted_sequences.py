"""Expected gains of sequences drafted after a context, by scheme, and an upper bound."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np

import otm
from otm._machine.arrays import Floats
from otm.sequence import LanguageModel, RefinedScores, Sampled, TraversalVerification
from otm.sequence.decoding import evaluate
from otm.sequence.gains import (
    Gain,
    along,
    block_kseq_gain,
    ends_of,
    first_sequences,
    greedy_multipath_gain,
    refined_scores_gain,
    vertex_gain,
)
from otm.sequence.level_cuts import conjugate
from otm.sequence.models import Context
from otm.trees import TreeShape

REFINED = "refined scores"
CHAIN = "block verification, one sequence"
TRAVERSAL = "traversal verification"
SLOPES = 32
"""Number of slopes among which the bound chooses."""
_THIRDS = 3


class DraftedSequences:
    """K independent sequences of L tokens after a context, with the target's answers.

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

    def tokens(
        self, k: int, names: Iterable[str], traversed: Collection[int] = ()
    ) -> dict[str, Floats]:
        """Return the tokens per call of k sequences by scheme, `(L,)` by length of the cut.

        Traversal takes a step of its own for each length in `traversed` and is NaN at the others.
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
        """Return the number of different nodes of k sequences, `(L,)` by length of the cut."""
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
            for level, (context, token) in enumerate(along(self.tree, end)):
                p, q = self.tree.draft[context], self._known[context]
                drafted = np.flatnonzero(p)  # what is never drafted adds nothing
                found[level] += np.minimum(ratio * q[drafted], slopes * p[drafted]).sum(axis=1)
                ratio *= float(q[token]) / float(p[token])
        return found / k


SCHEMES: dict[str, Gain] = {
    REFINED: lambda tree, target, ends, _: refined_scores_gain(tree, target, ends, len(ends)),
    CHAIN: lambda tree, target, ends, _: refined_scores_gain(tree, target, ends, 1),
    "block K-SEQ": block_kseq_gain,
    "greedy multi-path block verification": greedy_multipath_gain,
    "optimal, vertex by vertex": vertex_gain(otm.Optimal()),
    "K-SEQ, vertex by vertex": vertex_gain(otm.KSeq()),
    "recursive rejection, vertex by vertex": vertex_gain(otm.RecursiveRejection()),
}
"""Gains of sequences by scheme; traversal, whose every length is a step of its own, apart."""


def _slopes(num_drafts: int) -> Floats:
    return np.asarray(num_drafts * np.linspace(0.0, 1.0, SLOPES + 1)[1:])


def bound_terms(cuts: Floats, num_drafts: int, texts: Sequence[int]) -> Floats:
    """Return the bound's terms by context and level, with slopes chosen on other texts."""
    offsets, levels, third = (
        conjugate(_slopes(num_drafts), num_drafts),
        np.arange(cuts.shape[1]),
        np.asarray(texts) % _THIRDS,
    )
    terms = np.empty(cuts.shape[:2])
    for part in range(_THIRDS):
        best = (cuts[third != part].mean(axis=0) + offsets).argmin(axis=1)
        terms[third == part] = offsets[best] + cuts[third == part][:, levels, best]
    return terms
