"""Tokens per call of several drafted sequences, decoder by decoder, on the same drafts.

Most of a step's luck can be integrated out. Given the drafted sequences, the tokens that refined
scores or a block scheme accept have an expectation that needs the conditionals at drafted nodes
only, a mean over sequences of sums over the vocabulary. So does verification vertex by vertex,
given the way that it took. What is left to chance is the drafts: few contexts tell decoders apart.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

import otm
from otm.sequence import (
    BlockKSeq,
    Gsd,
    LanguageModel,
    RefinedScores,
    Sampled,
    TraversalVerification,
)
from otm.sequence.decoder import Conditionals, DraftTree, children_of, evaluate
from otm.sequence.greedy_multipath import RankedTokens
from otm.sequence.level_cuts import conjugate
from otm.sequence.models import Context
from otm.sequence.refined_scores import ScoredPaths
from otm.statistics import ratio_of_means
from otm.tabular import columns
from otm.trees import TreeShape

from ..errors import AnalysisError
from ..models.causal import CausalModel
from ..statistics import Floats

BOUND = "at most, by level cuts"
REFINED = "refined scores"
_BY_VERTEX = {
    "optimal, vertex by vertex": otm.Optimal(),
    "K-SEQ, vertex by vertex": otm.KSeq(),
    "recursive rejection, vertex by vertex": otm.RecursiveRejection(),
}
_TREE = "recursive rejection, tree of different first tokens"
_SLOPES = 32
_THIRDS = 3
_CELLS = 64


@dataclasses.dataclass(frozen=True)
class Row:
    """Tokens per call of a decoder, or of the bound, and how many fewer than refined scores.

    Both with the half-widths of their intervals.
    """

    name: str
    mean: float
    half: float
    less: float
    less_half: float


@dataclasses.dataclass(frozen=True)
class StepTable:
    """Rows in descending order of the mean, the bound first.

    Half-widths are of 95 % t intervals over contexts.
    """

    num_drafts: int
    length: int
    contexts: int
    rows: tuple[Row, ...]

    def __str__(self) -> str:
        rows = [("tokens per call", "mean", "less than refined scores")]
        for row in self.rows:
            less = "" if row.name == REFINED else f"{row.less:+.3f} ± {row.less_half:.3f}"
            rows.append((row.name, f"{row.mean:.3f} ± {row.half:.3f}", less))
        title = f"K = {self.num_drafts} sequences of L = {self.length}, {self.contexts} contexts"
        return "\n".join([title, *columns(rows, right=(1, 2))])


def windows(
    tokens: Sequence[int], length: int, count: int, rng: np.random.Generator
) -> list[Context]:
    """Return up to `count` stretches of a text, none of which overlap, in random order.

    >>> import numpy as np
    >>> windows([5, 6, 7, 8], 2, 9, np.random.default_rng(0))
    [(7, 8), (5, 6)]
    """
    places = rng.permutation(len(tokens) // length)[:count] * length
    return [tuple(tokens[place : place + length]) for place in places.tolist()]


def compare_steps(
    *,
    draft: LanguageModel,
    target: LanguageModel,
    contexts: Sequence[Context],
    num_drafts: int,
    length: int,
    rng: np.random.Generator,
) -> StepTable:
    """Return tokens per call of K i.i.d. sequences of L tokens by decoder, and a bound for all.

    The bound is the mean over contexts of 1 + Σ_ℓ min_λ [φ*(λ) + Σ_{|u|=ℓ} min(Q(u), λP(u))], one λ
    for each level, chosen on two thirds of the contexts for the last
    (`otm.sequence.level_cut_upper`); it is no decoder's value.

    Args:
        draft, target: two models over one vocabulary.
        contexts: at least six, independent or nearly so.
        num_drafts, length: K and L.
        rng: the generator.

    Returns:
        StepTable.

    Raises:
        AnalysisError: for fewer than six contexts.
    """
    if len(contexts) < 6:
        raise AnalysisError(
            f"Intervals and the bound's slopes need at least 6 contexts; got {len(contexts)}. Take "
            "a longer text."
        )
    randomness = Sampled(rng)
    slopes = num_drafts * np.linspace(0.0, 1.0, _SLOPES + 1)[1:]
    records: list[dict[str, float]] = []
    cuts = np.zeros((len(contexts), length, _SLOPES))
    for number, context in enumerate(contexts):
        for model in (draft, target):
            if isinstance(model, CausalModel):
                model.forget()
        drafted = RefinedScores(num_drafts, length).draft(draft, context, randomness)
        known = evaluate(target, drafted)
        records.append(_values(drafted, known, num_drafts, length, randomness))
        cuts[number] = _level_cuts(drafted, known, length, slopes)
        tree = Gsd(TreeShape.sequences(num_drafts, length))
        other = tree.draft(draft, context, randomness)
        asked = evaluate(target, other)
        records[-1][_TREE] = 1.0 + tree.verify(other, asked.__getitem__, randomness).accepted
    for record, term in zip(records, _bound(cuts, slopes, num_drafts).tolist(), strict=True):
        record[BOUND] = term
    return _table(records, num_drafts, length)


def _values(
    tree: DraftTree, known: dict[Context, Floats], num_drafts: int, length: int, randomness: Sampled
) -> dict[str, float]:
    """Return the tokens that each decoder has to expect of these drafts."""
    ends, target = _ends(tree), known.__getitem__
    values = {
        REFINED: _refined(tree, target, ends, num_drafts),
        "block verification, one sequence": _refined(tree, target, ends, 1),
        "block K-SEQ": _block_kseq(tree, target, ends, num_drafts),
        "greedy multi-path block verification": _greedy(tree, target, ends, num_drafts),
    }
    for name, verifier in _BY_VERTEX.items():
        values[name] = _by_vertex(tree, target, ends, verifier, randomness)
    traversal = TraversalVerification(TreeShape.sequences(num_drafts, length), otm.IID(1))
    values["traversal verification"] = 1.0 + traversal.verify(tree, target, randomness).accepted
    return values


def _ends(tree: DraftTree) -> list[Context]:
    """Return the contexts at the ends of the drafted sequences."""
    below, contexts = children_of(tree.shape), tree.contexts()
    ends = []
    for vertex in below[0]:
        while below[vertex]:
            vertex = below[vertex][0]
        ends.append(contexts[vertex] or ())
    return ends


def _along(tree: DraftTree, end: Context) -> list[tuple[Context, int]]:
    """Return the contexts along a sequence, each with its next token."""
    return [(end[:place], end[place]) for place in range(len(tree.context), len(end))]


def _refined(tree: DraftTree, target: Conditionals, ends: list[Context], num_drafts: int) -> float:
    """Return 1 + the mean over sequences of Σ_ℓ Σ_y min(F q, p a)."""
    paths = ScoredPaths(num_drafts, _CELLS, tree.context, tree.draft.__getitem__, target)
    return 1.0 + float(
        np.mean(
            [sum(paths.accepted(context).sum() for context, _ in _along(tree, end)) for end in ends]
        )
    )


def _block_kseq(
    tree: DraftTree, target: Conditionals, ends: list[Context], num_drafts: int
) -> float:
    """Return 1 + the mean over sequences of Σ_ℓ Σ_y min(F q, γ* p), F ← min(F q/p, γ*)."""
    start = tree.context
    gamma = BlockKSeq(num_drafts, 1).gamma(tree.draft[start], target(start))
    totals = []
    for end in ends:
        weight, total = 1.0, 0.0
        for context, token in _along(tree, end):
            p, q = tree.draft[context], target(context)
            total += float(np.minimum(weight * q, gamma * p).sum())
            weight = min(weight * float(q[token]) / float(p[token]), gamma)
        totals.append(total)
    return 1.0 + float(np.mean(totals))


def _greedy(tree: DraftTree, target: Conditionals, ends: list[Context], num_drafts: int) -> float:
    """Return 1 + Σ_ℓ Σ_y min(F q, s) along the highest-ranked sequence, F ← min(F q/s, 1)."""
    context, odds, weight, total = tree.context, 0.0, 1.0, 0.0
    while ends := [
        end for end in ends if len(end) > len(context) and end[: len(context)] == context
    ]:
        q = target(context)
        ranked = RankedTokens.of(tree.draft[context], q, odds, num_drafts)
        total += float(np.minimum(weight * q, ranked.selected).sum())
        token = max((end[len(context)] for end in ends), key=ranked.place.__getitem__)
        weight = min(weight * float(q[token]) / float(ranked.selected[token]), 1.0)
        odds, context = ranked.odds(token), (*context, token)
    return 1.0 + total


def _by_vertex(
    tree: DraftTree,
    target: Conditionals,
    ends: list[Context],
    verifier: otm.Verifier,
    randomness: Sampled,
) -> float:
    """Return 1 + the acceptances on the way that the verifier takes."""
    context, total = tree.context, 1.0
    while ends := [
        end for end in ends if len(end) > len(context) and end[: len(context)] == context
    ]:
        p, q, law = tree.draft[context], target(context), otm.IID(len(ends))
        total += float(otm.acceptance(verifier, otm.Problem(draft=p, target=q, law=law)))
        drafts = np.array([end[len(context)] for end in ends])
        token = randomness.verify(verifier, law, p, q, drafts)
        context = (*context, token)
    return total


def _level_cuts(
    tree: DraftTree, known: dict[Context, Floats], length: int, slopes: Floats
) -> Floats:
    """Return the mean over sequences of Σ_y min(r q, λ p) at each level, `(L, slopes)`."""
    found, ends = np.zeros((length, len(slopes))), _ends(tree)
    for end in ends:
        ratio = 1.0
        for level, (context, token) in enumerate(_along(tree, end)):
            p, q = tree.draft[context], known[context]
            found[level] += [np.minimum(ratio * q, slope * p).sum() for slope in slopes.tolist()]
            ratio *= float(q[token]) / float(p[token])
    return np.asarray(found / len(ends))


def _bound(cuts: Floats, slopes: Floats, num_drafts: int) -> Floats:
    """Return the bound's terms, those of each third with slopes that the other thirds choose."""
    offsets, levels, third = (
        conjugate(slopes, num_drafts),
        np.arange(cuts.shape[1]),
        np.arange(len(cuts)) % _THIRDS,
    )
    terms = np.empty(len(cuts))
    for part in range(_THIRDS):
        best = (cuts[third != part].mean(axis=0) + offsets).argmin(axis=1)
        terms[third == part] = (
            1.0 + offsets[best].sum() + cuts[third == part][:, levels, best].sum(axis=1)
        )
    return terms


def _table(records: list[dict[str, float]], num_drafts: int, length: int) -> StepTable:
    names = list(records[0])
    values = np.array([[record[name] for name in names] for record in records])
    both = np.concatenate([values, values[:, [names.index(REFINED)]] - values], axis=1)
    means = ratio_of_means(both, np.ones_like(both))
    mean, half = means.value.tolist(), (means.high - means.value).tolist()
    # No step yields more than L + 1, whatever the cuts of a sample say.
    rows = [
        Row(name, min(mean[i], length + 1.0), half[i], mean[i + len(names)], half[i + len(names)])
        for i, name in enumerate(names)
    ]
    rows.sort(key=lambda row: (row.name != BOUND, -row.mean))
    return StepTable(num_drafts, length, len(records), tuple(rows))
