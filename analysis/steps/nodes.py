"""Tokens per call against verified nodes: every scheme with as many different nodes, and as many
draft calls in a row.

Independent sequences share beginnings, and a node that two of them have is verified once. So a
scheme of K sequences of L tokens is placed at the mean number of its *different* nodes, and for a
budget the best L is taken, and K between two numbers, one for a part of the steps: what a step may
choose by a coin. Trees of N nodes need no such choice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy

from otm._machine.arrays import Floats
from otm.sequence import (
    LanguageModel,
    LikeliestTree,
    NoiseTree,
    Sampled,
    SampledTree,
    SharedNoise,
    matched_tokens,
    step,
)
from otm.sequence.models import Context, next_distribution, next_distributions
from otm.sequence.noise_tree import tokens_by_noise

from ..errors import AnalysisError
from .belief import fitted_scale, rows_along, written_on
from .contexts import check_contexts, with_cleared_caches
from .drafted_sequences import CHAIN, SCHEMES, TRAVERSAL, DraftedSequences, bound_terms
from .rows import (
    BOUND,
    NOISE_TREE as NOISE_TREE,
    ChosenPlan,
    NodeRow,
    NodeTable,
    best_within,
    rows_within,
)

LIKELIEST = "likeliest tree"
SAMPLED = "sampled tree, traversal"
DEPTH = 8
NUMBERS = (1, 2, 3, 4, 6, 8, 12, 16, 24)
_TRAVERSED = (2, 4, 8)
ALL = (LIKELIEST, NOISE_TREE, SAMPLED, *SCHEMES, TRAVERSAL)


def compare_nodes(
    *,
    draft: LanguageModel,
    target: LanguageModel,
    contexts: Sequence[Context],
    nodes: Sequence[int],
    noises: int,
    numbers: Sequence[int] = NUMBERS,
    only: Sequence[str] | None = None,
    texts: Sequence[int] | None = None,
    rng: np.random.Generator,
) -> NodeTable:
    """Return tokens per call by scheme and number of verified nodes.

    A target without chance (temperature 0) has no use for noise: the tree on shared noise is the
    likeliest tree there, its scale the draft's temperature, and one chain stands beside it.

    Args:
        draft, target: two models over one vocabulary.
        contexts: of at least six texts, which are independent or nearly so.
        nodes: the budgets.
        noises: noises of each context that trees are grown on.
        numbers: of independent sequences; 1 is among them in any case.
        only: names of schemes, where the target has chance; the tree on shared noise and the bound
            are there besides. None for all.
        texts: of which text each context is, if several are of one: intervals are over texts, and
            what is fitted on some texts is used on others.
        rng: the generator.

    Raises:
        AnalysisError: for contexts of fewer than six texts, or on an unknown name.
    """
    whose, numbers = check_contexts(contexts, texts), sorted({1, *numbers})
    names = ALL if only is None else only
    if unknown := sorted({*names} - {*ALL}):
        raise AnalysisError(
            f"Schemes are {', '.join(ALL)}; got {unknown[0]!r:.60}. Pass some of them."
        )
    if np.all(next_distribution(target, contexts[0], name="target") % 1.0 == 0.0):
        return _compare_certain(draft, target, contexts, nodes, whose)
    seeds = [SharedNoise(int(seed)) for seed in rng.integers(1 << 53, size=noises)]
    written = written_on(target, contexts, seeds, DEPTH)
    halves = [
        {one: written[one] for one, text in zip(contexts, whose, strict=True) if text % 2 == half}
        for half in (0, 1)
    ]
    scales = tuple(fitted_scale(rows_along(draft, each, seeds)) for each in halves)
    randomness, by_nodes, sequences, pair = Sampled(rng), [], list[_Planned](), []
    for text, context in zip(
        whose, with_cleared_caches(contexts, "contexts", draft, target), strict=True
    ):
        on_noise = NoiseTree(max(nodes), DEPTH, scales[1 - text % 2]), seeds, written[context]
        by_nodes.append(_trees(draft, target, context, nodes, *on_noise, names, randomness))
        drafted = DraftedSequences(draft, target, context, numbers[-1], DEPTH, randomness)
        sequences.append(_planned(drafted, numbers, names))
        p, q = drafted.first
        pair.append((np.minimum(p, q).sum(), scipy.special.entr(q).sum()))
    trees = {name: np.array([one[name] for one in by_nodes]) for name in by_nodes[0]}
    different, plans, bound = _stacked(sequences, numbers, whose)
    rows = list[NodeRow]()
    for budget in nodes:
        chosen = {
            name: ChosenPlan(float(budget), f"{budget} nodes", tokens[:, budget])
            for name, tokens in trees.items()
        }
        for name, tokens in plans.items():
            chosen[name] = best_within(numbers, different, tokens, budget)
        chosen[BOUND] = best_within(numbers, different, bound, budget)
        found = rows_within(budget, chosen, NOISE_TREE, whose)
        rows += sorted(found, key=lambda row: row.name != BOUND)
    overlap, nats = np.mean(pair, axis=0).tolist()
    return NodeTable(len(contexts), len({*whose}), noises, overlap, nats, scales, tuple(rows))


_Planned = tuple[Floats, dict[str, Floats], list[Floats]]
"""Different nodes, tokens by scheme and the bound's cuts of one context, by number and length."""


def _planned(
    drafted: DraftedSequences,
    numbers: Sequence[int],
    names: Sequence[str],
) -> _Planned:
    """Return nodes, tokens by scheme and cuts of the first K sequences, for every K and length."""
    traversed = _TRAVERSED if TRAVERSAL in names else ()
    there = [name for name in SCHEMES if name in names]
    gained = [drafted.tokens(k, there, traversed) for k in numbers]
    tokens = {name: np.array([one[name] for one in gained]) for name in gained[0]}
    if CHAIN in tokens:
        tokens[CHAIN][1:] = np.nan  # a plan of one sequence only
    return np.array([drafted.nodes(k) for k in numbers]), tokens, [drafted.cuts(k) for k in numbers]


def _stacked(
    found: Sequence[_Planned], numbers: Sequence[int], texts: Sequence[int]
) -> tuple[Floats, dict[str, Floats], Floats]:
    """Return nodes, tokens by scheme and the bound of all contexts, `(contexts, K, L)` each."""
    tokens = {name: np.array([one[1][name] for one in found]) for name in found[0][1]}
    cuts = [np.array([one[2][i] for one in found]) for i in range(len(numbers))]
    terms = [bound_terms(one, k, texts) for one, k in zip(cuts, numbers, strict=True)]
    return np.array([one[0] for one in found]), tokens, 1.0 + np.stack(terms, axis=1).cumsum(axis=2)


def _trees(
    draft: LanguageModel,
    target: LanguageModel,
    context: Context,
    nodes: Sequence[int],
    tree: NoiseTree,
    seeds: Sequence[SharedNoise],
    texts: Sequence[Context],
    names: Sequence[str],
    randomness: Sampled,
) -> dict[str, Floats]:
    """Return tokens of trees after a context by scheme, `(most + 1,)` by number of nodes."""
    most = max(nodes)
    grown = tokens_by_noise(
        tree,
        draft=draft,
        target=target,
        contexts=[context] * len(seeds),
        noises=seeds,
        texts=texts,
    )
    found = {NOISE_TREE: grown.mean(axis=0)}
    if LIKELIEST in names:
        found[LIKELIEST] = _matched(LikeliestTree(most, DEPTH), draft, target, context, most)
    if SAMPLED in names:
        found[SAMPLED] = np.full(most + 1, np.nan)
        for size in nodes:
            decoder = SampledTree(size, DEPTH)
            once = [
                step(decoder, draft=draft, target=target, context=context, randomness=randomness)
                for _ in seeds
            ]
            found[SAMPLED][size] = np.mean([1.0 + one.accepted for one in once])
    return found


def _matched(
    decoder: LikeliestTree,
    draft: LanguageModel,
    target: LanguageModel,
    context: Context,
    most: int,
) -> Floats:
    """Return tokens of a likeliest tree by number of first nodes, `(most + 1,)`."""
    tokens = matched_tokens(decoder, draft=draft, target=target, context=context)
    return np.pad(tokens, (0, most + 1 - len(tokens)), mode="edge")


def _compare_certain(
    draft: LanguageModel,
    target: LanguageModel,
    contexts: Sequence[Context],
    nodes: Sequence[int],
    texts: Sequence[int],
) -> NodeTable:
    """Compare the likeliest tree with one chain, for a target without chance."""
    most = max(nodes)
    decoders = {
        NOISE_TREE: LikeliestTree(most, DEPTH),
        "chain of argmaxes": LikeliestTree(min(most, DEPTH), DEPTH, 1),
    }
    found = {name: list[Floats]() for name in decoders}
    for context in with_cleared_caches(contexts, "contexts", draft, target):
        for name, decoder in decoders.items():
            found[name].append(_matched(decoder, draft, target, context, most))
    tokens = {name: np.array(each) for name, each in found.items()}
    answers = [next_distributions(model, contexts, name="given") for model in (draft, target)]
    overlap = np.mean([np.minimum(*(known[one] for known in answers)).sum() for one in contexts])
    rows = list[NodeRow]()
    for budget in nodes:
        used = {name: min(budget, decoder.size) for name, decoder in decoders.items()}
        chosen = {
            name: ChosenPlan(float(size), f"{size} nodes", tokens[name][:, budget])
            for name, size in used.items()
        }
        rows += rows_within(budget, chosen, NOISE_TREE, texts)
    return NodeTable(len(contexts), len({*texts}), 0, float(overlap), 0.0, (), tuple(rows))
