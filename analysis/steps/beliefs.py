"""Trees on shared noise by what their drafter believes: other scales, and one by level.

Beliefs are fitted on every second context and judged on the others, against the fitted scale.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from otm._arrays import Floats
from otm.sequence import LanguageModel, Memoised, NoiseTree, SharedNoise
from otm.sequence.models import Context
from otm.sequence.noise_tree import tokens_by_noise

from .belief import Seen, fitted_scale, seen_along, written_on
from .contexts import check_contexts, entropy, read_anew
from .nodes import DEPTH, NOISE_TREE
from .rows import Chosen, NodeRow, NodeTable, rows_within

BY_LEVEL = "one scale by level"
FACTORS = (0.25, 0.5, 0.7, 1.4, 2.0, 4.0)
"""Times the fitted scale."""


def compare_beliefs(
    *,
    draft: LanguageModel,
    target: LanguageModel,
    contexts: Sequence[Context],
    nodes: Sequence[int],
    noises: int,
    rng: np.random.Generator,
) -> NodeTable:
    """Return tokens per call of trees on shared noise by belief and verified nodes.

    Args:
        draft, target: two models over one vocabulary.
        contexts: at least six, independent or nearly so.
        nodes: the budgets.
        noises: noises of each context that trees are grown on.
        rng: the generator.

    Raises:
        AnalysisError: for fewer than six contexts.
    """
    whose = check_contexts(contexts)
    seeds = [SharedNoise(int(seed)) for seed in rng.integers(1 << 53, size=noises)]
    written = [written_on(target, contexts[half::2], seeds, DEPTH) for half in (0, 1)]
    seen = [list(seen_along(draft, each, seeds)) for each in written]
    beliefs = [_beliefs(each) for each in seen]
    tokens: dict[str, list[Floats]] = {name: [] for name in beliefs[0]}
    first = []
    for number, context in enumerate(read_anew(contexts, "contexts", draft, target)):
        drafter, judge = Memoised(draft), Memoised(target)
        for name, belief in beliefs[1 - number % 2].items():
            found = tokens_by_noise(
                NoiseTree(max(nodes), DEPTH, belief),
                draft=drafter,
                target=judge,
                contexts=[context] * noises,
                noises=seeds,
                texts=written[number % 2][context],
            )
            tokens[name].append(found.mean(axis=0))
        p, q = drafter.next(context), judge.next(context)
        first.append((float(np.minimum(p, q).sum()), entropy(q)))
    table = list[NodeRow]()
    for budget in nodes:
        chosen = {
            name: Chosen(float(budget), f"{budget} nodes", np.array(each)[:, budget])
            for name, each in tokens.items()
        }
        table += rows_within(budget, chosen, NOISE_TREE, whose)
    overlap, nats = np.mean(first, axis=0).tolist()
    scales = tuple(map(fitted_scale, seen))
    return NodeTable(len(contexts), len(whose), noises, overlap, nats, scales, tuple(table))


def _beliefs(seen: Sequence[Seen]) -> dict[str, float | tuple[float, ...]]:
    """Return the beliefs that something seen teaches, by name."""
    scale = fitted_scale(seen)
    by_level = (fitted_scale(one for one in seen if one.level == level) for level in range(DEPTH))
    return {
        NOISE_TREE: scale,
        BY_LEVEL: tuple(by_level),
        **{f"{factor:g} times the scale": factor * scale for factor in FACTORS},
    }
