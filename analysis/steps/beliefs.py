"""Trees on shared noise by what their drafter believes: other scales, one by level, features.

Beliefs are fitted on every second context and judged on the others, against the fitted scale.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import scipy

from otm._arrays import Floats
from otm.sequence import LanguageModel, Memoised, SharedNoise
from otm.sequence.best_first import grown_best_first
from otm.sequence.models import Context
from otm.sequence.noise_tree import noise_texts, tokens_held
from otm.sequence.shared_noise import perturbed

from .belief import Seen, fitted_scale, likeliest_places, seen_along
from .contexts import check_contexts, entropy, read_anew
from .nodes import DEPTH, NOISE_TREE
from .rows import Chosen, NodeRow, NodeTable, rows_within

BY_LEVEL = "one scale by level"
FEATURES = "log p, noise, depth and entropy"
FACTORS = (0.25, 0.5, 0.7, 1.4, 2.0, 4.0)
"""Times the fitted scale."""

Belief = Callable[[int, Floats, Floats], Floats]
"""(level, the draft's distribution, noise) → what the next token may be, `(V,)`."""


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
    check_contexts(contexts)
    seeds = [SharedNoise(int(seed)) for seed in rng.integers(1 << 53, size=noises)]
    seen = [list(seen_along(draft, target, contexts[half::2], seeds, DEPTH)) for half in (0, 1)]
    scales, beliefs = tuple(map(fitted_scale, seen)), [_beliefs(each) for each in seen]
    tokens: dict[str, list[Floats]] = {name: [] for name in beliefs[0]}
    first = []
    for number, context in enumerate(read_anew(contexts, "contexts", draft, target)):
        places, drafter = [context] * noises, Memoised(draft)
        texts = noise_texts(target, contexts=places, noises=seeds, num_tokens=DEPTH)
        rows = [
            [seed.row(len(context) + level, draft.num_tokens) for level in range(DEPTH)]
            for seed in seeds
        ]
        for name, belief in beliefs[1 - number % 2].items():

            def believed(
                place: int,
                after: Context,
                mass: Floats,
                belief: Belief = belief,
                rows: list[list[Floats]] = rows,
                start: int = len(context),
            ) -> Floats:
                level = len(after) - start
                return belief(level, mass, rows[place][level])

            trees, _ = grown_best_first(
                drafter, places, size=max(nodes), depth=DEPTH, belief=believed
            )
            held = [tokens_held(*one, size=max(nodes)) for one in zip(trees, texts, strict=True)]
            tokens[name].append(np.mean(held, axis=0))
        p, q = drafter.next(context), target.next(context)
        first.append((float(np.minimum(p, q).sum()), entropy(q)))
    table = list[NodeRow]()
    for budget in nodes:
        chosen = {
            name: Chosen(float(budget), f"{budget} nodes", np.array(each)[:, budget])
            for name, each in tokens.items()
        }
        table += rows_within(budget, chosen, NOISE_TREE)
    overlap, nats = np.mean(first, axis=0).tolist()
    return NodeTable(len(contexts), noises, overlap, nats, scales, tuple(table))


def _beliefs(seen: Sequence[Seen]) -> dict[str, Belief]:
    """Return the beliefs that something seen teaches, by name."""
    scale = fitted_scale(seen)
    by_level = [fitted_scale(one for one in seen if one.level == level) for level in range(DEPTH)]
    found = {NOISE_TREE: _by_scale([scale]), BY_LEVEL: _by_scale(by_level)}
    for factor in FACTORS:
        found[f"{factor:g} times the scale"] = _by_scale([factor * scale])
    return found | {FEATURES: logit(seen)}


def _by_scale(scales: Sequence[float]) -> Belief:
    def belief(level: int, mass: Floats, noise: Floats) -> Floats:
        scale = scales[min(level, len(scales) - 1)]
        return np.asarray(scipy.special.softmax(perturbed(mass, noise) / scale))

    return belief


def logit(seen: Sequence[Seen]) -> Belief:
    """Return the belief whose scores are linear in log p + g and log p, each by itself, times the
    depth and times the draft's entropy: a multinomial logit by maximum likelihood.
    """
    known = [one for one in seen if one.mass[one.token] > 0.0]
    places = [likeliest_places(perturbed(one.mass, one.noise), one.token) for one in known]
    shape = len(known), len(_features(0, known[0].mass, known[0].noise)), max(map(len, places))
    given, there = np.zeros(shape), np.zeros((shape[0], shape[2]), dtype=bool)
    for i, (one, kept) in enumerate(zip(known, places, strict=True)):
        given[i, :, : len(kept)] = _features(one.level, one.mass, one.noise)[:, kept]
        there[i, : len(kept)] = one.mass[kept] > 0.0
    chosen = [np.searchsorted(kept, one.token) for one, kept in zip(known, places, strict=True)]
    drawn = given[np.arange(len(known)), :, chosen]

    def loss(weights: Floats) -> tuple[float, Floats]:
        scores = np.where(there, np.einsum("f,nfx->nx", weights, given), -np.inf)
        value = scipy.special.logsumexp(scores, axis=1).sum() - (drawn @ weights).sum()
        mean = np.einsum("nx,nfx->f", scipy.special.softmax(scores, axis=1), given)
        return float(value), mean - drawn.sum(axis=0)

    start = np.zeros(shape[1])
    start[0] = 1.0  # the belief of scale 1
    weights = scipy.optimize.minimize(loss, start, jac=True, method="L-BFGS-B").x

    def belief(level: int, mass: Floats, noise: Floats) -> Floats:
        scores = np.where(mass > 0.0, weights @ _features(level, mass, noise), -np.inf)
        return np.asarray(scipy.special.softmax(scores))

    return belief


def _features(level: int, mass: Floats, noise: Floats) -> Floats:
    """Return log p + g and log p as they are, times the depth, and times the entropy, `(6, V)`."""
    logs = np.log(np.where(mass > 0.0, mass, 1.0))
    given = np.stack([logs + noise, logs])
    return np.concatenate([given, given * (level / DEPTH), given * entropy(mass)])
