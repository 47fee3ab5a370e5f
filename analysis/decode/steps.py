"""Tokens per call of several drafted sequences, decoder by decoder, on the same drafts.

Most of a step's luck can be integrated out. Given the drafted sequences, the tokens that refined
scores or a block scheme accept have an expectation that needs the conditionals at drafted nodes
only, a mean over sequences of sums over the vocabulary. So does verification vertex by vertex,
given the way that it took. What is left to chance is the drafts: few contexts tell decoders apart.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import numpy as np

import otm
from otm._progress import counted
from otm.sequence import (
    BlockKSeq,
    Gsd,
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
from otm.statistics import ratio_of_means
from otm.tabular import columns
from otm.trees import TreeShape

from ..errors import AnalysisError
from ..models.causal import CausalModel
from ..statistics import Floats

BOUND = "at most, by level cuts"
REFINED = "refined scores"
BY_VERTEX = {
    "optimal, vertex by vertex": otm.Optimal(),
    "K-SEQ, vertex by vertex": otm.KSeq(),
    "recursive rejection, vertex by vertex": otm.RecursiveRejection(),
}
CHAIN = "block verification, one sequence"
TRAVERSAL = "traversal verification"
_TREE = "recursive rejection, tree of different first tokens"
SLOPES = 32
"""Of the bound: their number."""
_THIRDS = 3
LEAST_CONTEXTS = 6
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


def check_contexts(contexts: Sequence[Context]) -> None:
    """Raise unless there are enough for intervals, and for what one part chooses for another."""
    if len(contexts) < LEAST_CONTEXTS:
        raise AnalysisError(
            f"Intervals, slopes and scales need at least {LEAST_CONTEXTS} contexts; got "
            f"{len(contexts)}. Take a longer text."
        )


def read_anew(contexts: Sequence[Context], what: str, *models: LanguageModel) -> Iterator[Context]:
    """Yield contexts; before each the models, or what they are made of, forget all others."""
    for context in counted(contexts, what):
        for model in itertools.chain(models, (getattr(one, "model", None) for one in models)):
            if isinstance(model, CausalModel):
                model.forget()
        yield context


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
    check_contexts(contexts)
    randomness = Sampled(rng)
    records: list[dict[str, float]] = []
    cuts = np.zeros((len(contexts), length, SLOPES))
    for number, context in enumerate(read_anew(contexts, "contexts", draft, target)):
        drafted = RefinedScores(num_drafts, length).draft(draft, context, randomness)
        known = evaluate(target, drafted)
        records.append(_values(drafted, known, num_drafts, length, randomness))
        cuts[number] = level_cuts(drafted, known, ends_of(drafted), num_drafts)
        tree = Gsd(TreeShape.sequences(num_drafts, length))
        other = tree.draft(draft, context, randomness)
        asked = evaluate(target, other)
        records[-1][_TREE] = 1.0 + tree.verify(other, asked.__getitem__, randomness).accepted
    for record, terms in zip(records, bound_terms(cuts, num_drafts), strict=True):
        record[BOUND] = 1.0 + float(terms.sum())
    return _table(records, num_drafts, length)


def _values(
    tree: DraftTree, known: dict[Context, Floats], num_drafts: int, length: int, randomness: Sampled
) -> dict[str, float]:
    """Return the tokens that each decoder has to expect of these drafts."""
    ends, target = ends_of(tree), known.__getitem__
    gained = {
        REFINED: refined_scores(tree, target, ends, num_drafts),
        CHAIN: refined_scores(tree, target, ends, 1),
        "block K-SEQ": block_kseq(tree, target, ends, num_drafts),
        "greedy multi-path block verification": greedy_multipath(tree, target, ends, num_drafts),
    }
    for name, verifier in BY_VERTEX.items():
        gained[name] = by_vertex(tree, target, ends, verifier, randomness)
    traversal = TraversalVerification(TreeShape.sequences(num_drafts, length), otm.IID(1))
    accepted = traversal.verify(tree, target, randomness).accepted
    return {name: 1.0 + float(levels.sum()) for name, levels in gained.items()} | {
        TRAVERSAL: 1.0 + accepted
    }


def ends_of(tree: DraftTree) -> list[Context]:
    """Return the contexts at the ends of the drafted sequences."""
    contexts = tree.contexts()
    return [contexts[path[-1]] or () for path in longest_paths(tree.shape)]


def first_sequences(tree: DraftTree, num_drafts: int, length: int) -> DraftTree:
    """Return the first tokens of the first of some drafted sequences, as a tree by themselves."""
    shape = TreeShape.sequences(num_drafts, length)
    tokens = np.full(shape.num_nodes + 1, -1, dtype=np.int64)
    for short, long in zip(longest_paths(shape), longest_paths(tree.shape), strict=False):
        tokens[list(short)] = tree.tokens[list(long[:length])]
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


def block_kseq(
    tree: DraftTree, target: Conditionals, ends: list[Context], num_drafts: int
) -> Floats:
    """Return the mean over sequences of Σ_y min(F q, γ* p) at each level; F ← min(F q/p, γ*)."""
    start = tree.context
    gamma = BlockKSeq(num_drafts, 1).gamma(tree.draft[start], target(start))
    found = np.zeros((len(ends), len(ends[0]) - len(start)))
    for number, end in enumerate(ends):
        weight = 1.0
        for level, (context, token) in enumerate(_along(tree, end)):
            p, q = tree.draft[context], target(context)
            found[number, level] = np.minimum(weight * q, gamma * p).sum()
            weight = min(weight * float(q[token]) / float(p[token]), gamma)
    return np.asarray(found.mean(axis=0))


def greedy_multipath(
    tree: DraftTree, target: Conditionals, ends: list[Context], num_drafts: int
) -> Floats:
    """Return Σ_y min(F q, s) at each level of the highest-ranked sequence; F ← min(F q/s, 1)."""
    context, odds, weight, found = tree.context, 0.0, 1.0, list[float]()
    while ends := _going_on(ends, context):
        q = target(context)
        ranked = RankedTokens.of(tree.draft[context], q, odds, num_drafts)
        found.append(float(np.minimum(weight * q, ranked.selected).sum()))
        token = max((end[len(context)] for end in ends), key=ranked.place.__getitem__)
        weight = min(weight * float(q[token]) / float(ranked.selected[token]), 1.0)
        odds, context = ranked.odds(token), (*context, token)
    return np.array(found)


def by_vertex(
    tree: DraftTree,
    target: Conditionals,
    ends: list[Context],
    verifier: otm.Verifier,
    randomness: Sampled,
) -> Floats:
    """Return the acceptance at each level on the way that the verifier takes, 0 beyond its end."""
    context, found = tree.context, np.zeros(len(ends[0]) - len(tree.context))
    while ends := _going_on(ends, context):
        p, q, law = tree.draft[context], target(context), otm.IID(len(ends))
        problem = otm.Problem(draft=p, target=q, law=law)
        found[len(context) - len(tree.context)] = otm.acceptance(verifier, problem)
        drafts = np.array([end[len(context)] for end in ends])
        token = randomness.verify(verifier, law, p, q, drafts)
        context = (*context, token)
    return found


def _going_on(ends: list[Context], context: Context) -> list[Context]:
    """Return those of the sequences that begin with a context and are longer."""
    return [end for end in ends if len(end) > len(context) and end[: len(context)] == context]


def _slopes(num_drafts: int) -> Floats:
    return np.asarray(num_drafts * np.linspace(0.0, 1.0, SLOPES + 1)[1:])


def level_cuts(
    tree: DraftTree, known: dict[Context, Floats], ends: list[Context], num_drafts: int
) -> Floats:
    """Return the mean over sequences of Σ_y min(r q, λ p) at each level, `(L, slopes)`."""
    slopes = _slopes(num_drafts).tolist()
    found = np.zeros((len(ends[0]) - len(tree.context), SLOPES))
    for end in ends:
        ratio = 1.0
        for level, (context, token) in enumerate(_along(tree, end)):
            p, q = tree.draft[context], known[context]
            found[level] += [np.minimum(ratio * q, slope * p).sum() for slope in slopes]
            ratio *= float(q[token]) / float(p[token])
    return np.asarray(found / len(ends))


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
