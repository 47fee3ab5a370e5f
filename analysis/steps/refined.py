"""What refined scores gain by drafts of another kind, at as many verified nodes.

Drafts at a temperature of their own, and numbers and lengths by context: verification is lossless
for the law that the drafts have, and nothing but the context and the draft model chooses that law
(docs/theory.md, "Refined scores").
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from otm.sequence import LanguageModel, Sampled
from otm.sequence.models import Context

from ..statistics import Floats
from .contexts import check_contexts, entropy, read_anew
from .drafters import TemperedModel
from .gains import BOUND, REFINED, DraftedSequences
from .nodes import DEPTH, NUMBERS, Planned, planned, stacked
from .rows import Chosen, NodeRow, NodeTable, best_within, rows_within

BY_CONTEXT = f"{REFINED}, K and L by the draft's entropy"
_GROUPS = 3
_PRICES = np.geomspace(1.0, 1e-4, 200)
"""Tokens for a node, at which a group of contexts takes what is worth it."""


def compare_refined(
    *,
    draft: LanguageModel,
    target: LanguageModel,
    contexts: Sequence[Context],
    nodes: Sequence[int],
    temperatures: Sequence[float],
    numbers: Sequence[int] = NUMBERS,
    rng: np.random.Generator,
) -> NodeTable:
    """Return tokens per call of refined scores by verified nodes, against those as they are.

    Args:
        draft, target: two models over one vocabulary.
        contexts: at least six, independent or nearly so.
        nodes: the budgets.
        temperatures: τ of drafts from p^{1/τ}.
        numbers: of sequences, ascending from 1.
        rng: the generator.

    Raises:
        AnalysisError: for fewer than six contexts.
    """
    check_contexts(contexts)
    drafters = {REFINED: draft} | {
        f"{REFINED}, drafts at temperature {value:g} of their own": TemperedModel(draft, value)
        for value in temperatures
    }
    randomness, pair, sure = Sampled(rng), [], list[float]()
    found: dict[str, list[Planned]] = {name: [] for name in drafters}
    for context in read_anew(contexts, "contexts", draft, target):
        for name, model in drafters.items():
            drafted = DraftedSequences(model, target, context, numbers[-1], DEPTH, randomness)
            found[name].append(planned(drafted, numbers, (REFINED,)))
            if name == REFINED:
                p, q = drafted.first
                pair.append((float(np.minimum(p, q).sum()), entropy(q)))
                sure.append(entropy(p))
    arrays = {name: stacked(each, numbers) for name, each in found.items()}
    different, tokens, bound = arrays[REFINED]
    rows = list[NodeRow]()
    for budget in nodes:
        chosen = {
            name: best_within(numbers, one[0], one[1][REFINED], budget)
            for name, one in arrays.items()
        }
        chosen[BOUND] = best_within(numbers, different, bound, budget)
        chosen[BY_CONTEXT] = by_context(np.array(sure), different, tokens[REFINED], budget)
        rows += sorted(rows_within(budget, chosen, REFINED), key=lambda row: row.name != BOUND)
    overlap, nats = np.mean(pair, axis=0).tolist()
    return NodeTable(len(contexts), 0, overlap, nats, (), tuple(rows))


def by_context(sure: Floats, nodes: Floats, tokens: Floats, budget: int) -> Chosen:
    """Return what K and L chosen by thirds of the draft's entropy yield within a budget.

    Every second context chooses for the others: the ends of the thirds, and for each third and
    price of a node the K and L of most tokens less nodes paid. The price is the one at which the
    mean number of nodes, which the draft alone decides, is the budget.

    Args:
        sure: `(n,)` entropy of the draft after the contexts.
        nodes, tokens: `(n, K, L)`.
        budget: mean different nodes.
    """
    flat = [each.reshape(len(sure), -1) for each in (nodes, tokens)]
    paid, won = np.empty((len(_PRICES), len(sure))), np.empty((len(_PRICES), len(sure)))
    for half in (0, 1):
        here = np.arange(len(sure)) % 2 == half
        ends = np.quantile(sure[~here], np.arange(1, _GROUPS) / _GROUPS)
        group = np.searchsorted(ends, sure)
        for g in range(_GROUPS):
            known = ~here & (group == g)
            known = known if known.any() else ~here  # equal entropies leave groups empty
            used, gained = (each[known].mean(axis=0) for each in flat)
            plans = (gained - _PRICES[:, None] * used).argmax(axis=1)
            there = np.flatnonzero(here & (group == g))
            paid[:, there], won[:, there] = (each[there][:, plans].T for each in flat)
    used = np.maximum.accumulate(paid.mean(axis=1))
    after = min(int(np.searchsorted(used, budget)), len(used) - 1)
    before = max(after - 1, 0)
    gap = used[after] - used[before]
    part = min(1.0, (budget - used[before]) / gap) if gap > 0 else 1.0
    mixed = (1.0 - part) * won[before] + part * won[after]
    return Chosen(
        float(used[before] + part * gap), f"{_GROUPS} groups by the draft's entropy", mixed
    )
