"""Tokens per call against verified nodes: every scheme with as many different nodes, and as many
draft calls in a row.

Independent sequences share beginnings, and a node that two of them have is verified once. So a
scheme of K sequences of L tokens is placed at the mean number of its *different* nodes, and for a
budget the best L is taken, and K between two numbers, one for a part of the steps: what a step may
choose by a coin. Trees of N nodes are what they are.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import otm
from otm.sequence import (
    LanguageModel,
    LikeliestTree,
    NoiseTree,
    RefinedScores,
    Sampled,
    SampledTree,
    SharedNoise,
    TraversalVerification,
    fit_scale,
    matched_tokens,
    step,
)
from otm.sequence.decoder import evaluate
from otm.sequence.models import Context, DerivedModel, next_distribution, next_distributions
from otm.sequence.noise_tree import noise_texts, tokens_by_noise
from otm.sequence.shared_noise import perturbed
from otm.statistics import Estimate, ratio_of_means
from otm.trees import TreeShape

from ..statistics import Floats
from .steps import (
    BOUND,
    BY_VERTEX,
    CHAIN,
    REFINED,
    TRAVERSAL,
    block_kseq,
    bound_terms,
    by_vertex,
    check_contexts,
    ends_of,
    first_sequences,
    greedy_multipath,
    level_cuts,
    read_anew,
    refined_scores,
)

NOISE_TREE = "tree on shared noise"
LIKELIEST = "likeliest tree"
DEPTH = 8
NUMBERS = (1, 2, 3, 4, 6, 8, 12, 16, 24)
_TRAVERSED = (2, 4, 8)
_CANDIDATES = 64
"""Largest entries of a row that the scale is fitted on; the rest has no part in it."""


@dataclasses.dataclass(frozen=True)
class NodeRow:
    """Tokens per call of a scheme within a number of nodes.

    Attributes:
        name: the scheme.
        nodes: the budget.
        used: mean number of different nodes.
        plan: what is drafted.
        mean, low, high: tokens per call, with a 95 % t interval over contexts.
        less, less_low, less_high: how many fewer than the tree on shared noise, likewise.
    """

    name: str
    nodes: int
    used: float
    plan: str
    mean: float
    low: float
    high: float
    less: float
    less_low: float
    less_high: float


@dataclasses.dataclass(frozen=True)
class NodeTable:
    """What `compare_nodes` finds.

    Attributes:
        contexts: their number.
        noises: noises of each context.
        overlap: mean Σ min(p, q) after the contexts.
        entropy: mean entropy of the target there, in nats.
        scales: the two scales, each fitted on one half of the contexts and used on the other.
        rows: by budget, then by falling tokens.
    """

    contexts: int
    noises: int
    overlap: float
    entropy: float
    scales: tuple[float, ...]
    rows: tuple[NodeRow, ...]

    def __str__(self) -> str:
        scales = ", ".join(f"{scale:.2f}" for scale in self.scales)
        lines = [
            f"{self.contexts} contexts, overlap {self.overlap:.3f}, entropy {self.entropy:.2f}, "
            f"scales {scales}"
        ]
        lines += [
            f"{row.nodes:4d} {row.name:40s} {row.mean:.3f} [{row.low:.3f}, {row.high:.3f}]  "
            f"less {row.less:+.3f} [{row.less_low:+.3f}, {row.less_high:+.3f}]  "
            f"{row.plan}, {row.used:.1f} nodes"
            for row in self.rows
        ]
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True, eq=False)
class BlurredModel(DerivedModel):
    """A draft made of a model: its log-probabilities with normal noise, by context and token.

    p ∝ q·e^{σ z}, z standard normal, the same whenever a context is asked for.

    >>> from otm.sequence import ZerothOrder
    >>> BlurredModel(ZerothOrder([0.5, 0.5]), 0.0).next([1]).tolist()
    [0.5, 0.5]
    """

    model: LanguageModel
    deviation: float

    def next_batch(self, contexts: Sequence[Sequence[int]]) -> Floats:
        """Return the model's distributions, blurred."""
        rows = np.asarray(self.model.next_batch(contexts))
        noise = [
            np.random.default_rng([*context]).normal(size=rows.shape[1]) for context in contexts
        ]
        blurred = rows * np.exp(self.deviation * np.array(noise))
        return np.asarray(blurred / blurred.sum(axis=1, keepdims=True))


def compare_nodes(
    *,
    draft: LanguageModel,
    target: LanguageModel,
    contexts: Sequence[Context],
    nodes: Sequence[int],
    noises: int,
    numbers: Sequence[int] = NUMBERS,
    blur: float | None = None,
    rng: np.random.Generator,
) -> NodeTable:
    """Return tokens per call by scheme and number of verified nodes.

    A target without chance (temperature 0) has no use for noise: the tree on shared noise is the
    likeliest tree there, its scale the draft's temperature, and one chain stands beside it.

    Args:
        draft, target: two models over one vocabulary.
        contexts: at least six, independent or nearly so.
        nodes: the budgets.
        noises: noises of each context that trees are grown on.
        numbers: of independent sequences, ascending from 1.
        blur: deviation of the noise that makes a draft of the target; None for the draft.
        rng: the generator.

    Raises:
        AnalysisError: for fewer than six contexts.
    """
    check_contexts(contexts)
    if blur is not None:
        draft = BlurredModel(target, blur)
    if np.all(next_distribution(target, contexts[0], name="target") % 1.0 == 0.0):
        return _compare_certain(draft, target, contexts, nodes)
    seeds = [SharedNoise(int(seed)) for seed in rng.integers(1 << 53, size=noises)]
    halves = [fitted_scale(draft, target, contexts[half::2], seeds) for half in (0, 1)]
    scales = tuple(float(found.value) for found in halves)
    records: list[_Record] = []
    for number, context in enumerate(read_anew(contexts, "contexts", draft, target)):
        one = _Record(max(nodes))
        one.trees(draft, target, context, nodes, seeds, scales[1 - number % 2], rng)
        one.sequences(draft, target, context, numbers, rng)
        records.append(one)
    overlap, entropy = np.mean([one.pair for one in records], axis=0)
    rows = itertools.chain.from_iterable(_rows(records, budget, numbers) for budget in nodes)
    return NodeTable(len(contexts), noises, float(overlap), float(entropy), scales, tuple(rows))


def _compare_certain(
    draft: LanguageModel, target: LanguageModel, contexts: Sequence[Context], nodes: Sequence[int]
) -> NodeTable:
    """Compare the likeliest tree with one chain, for a target without chance."""
    size = max(nodes)
    found: dict[str, list[Floats]] = {NOISE_TREE: [], "chain of argmaxes": []}
    decoders = (LikeliestTree(size, DEPTH), LikeliestTree(min(size, DEPTH), DEPTH, 1))
    for context in read_anew(contexts, "contexts", draft, target):
        for each, decoder in zip(found.values(), decoders, strict=True):
            tokens = matched_tokens(decoder, draft=draft, target=target, context=context)
            each.append(np.pad(tokens, (0, size + 1 - len(tokens)), mode="edge"))
    tree, chain = (np.array(each) for each in found.values())
    answers = [next_distributions(model, contexts, name="given") for model in (draft, target)]
    overlap = np.mean([np.minimum(*(known[one] for known in answers)).sum() for one in contexts])
    rows = []
    for budget in nodes:
        for name, tokens, most in ((NOISE_TREE, tree, budget), ("chain of argmaxes", chain, DEPTH)):
            used = float(min(budget, most))
            values, reference = tokens[:, budget], tree[:, budget]
            rows.append(_row(name, budget, used, f"{used:g} nodes", values, reference))
    return NodeTable(len(contexts), 0, float(overlap), 0.0, (), tuple(rows))


def fitted_scale(
    draft: LanguageModel,
    target: LanguageModel,
    contexts: Sequence[Context],
    noises: Sequence[SharedNoise],
) -> Estimate:
    """Return the scale of noise trees by what the target writes after some contexts."""
    rows, chosen = [], []
    for context in read_anew(contexts, "contexts for the scale", draft, target):
        places = [context] * len(noises)
        texts = noise_texts(target, contexts=places, noises=noises, num_tokens=DEPTH)
        asked = [(*context, *text[:level]) for text in texts for level in range(DEPTH)]
        known = next_distributions(draft, asked, name="draft")
        for noise, text in zip(noises, texts, strict=True):
            for level, token in enumerate(text):
                mass = known[*context, *text[:level]]
                row = perturbed(mass, noise.row(len(context) + level, len(mass)))
                kept, place = likeliest_entries(row, token)
                rows.append(kept)
                chosen.append(place)
    return fit_scale(rows, chosen)


def likeliest_entries(row: Floats, token: int) -> tuple[Floats, int]:
    """Return the largest entries of a row with that of a token, and where it is among them."""
    most = min(_CANDIDATES, len(row) - 1)
    kept = np.union1d(np.argpartition(-row, most)[:most], token)
    padded = np.pad(row[kept], (0, most + 1 - len(kept)), constant_values=-np.inf)
    return padded, int(np.searchsorted(kept, token))


class _Record:
    """What one context says.

    Attributes:
        pair: Σ min(p, q) and the target's entropy.
        by_nodes: tokens `(most + 1,)` of trees, by how many nodes they have.
        plans: different nodes of K sequences of L tokens.
        by_plan: tokens of schemes, by K and L.
        cuts: of the bound, by K.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.pair = (0.0, 0.0)
        self.by_nodes: dict[str, Floats] = {}
        self.plans: dict[tuple[int, int], float] = {}
        self.by_plan: dict[str, dict[tuple[int, int], float]] = {}
        self.cuts: dict[int, Floats] = {}

    def trees(
        self,
        draft: LanguageModel,
        target: LanguageModel,
        context: Context,
        nodes: Sequence[int],
        seeds: Sequence[SharedNoise],
        scale: float,
        rng: np.random.Generator,
    ) -> None:
        """Grow the trees that know where they go."""
        both = {"draft": draft, "target": target}
        likeliest = matched_tokens(LikeliestTree(self.most, DEPTH), **both, context=context)
        grown = tokens_by_noise(
            NoiseTree(self.most, DEPTH, scale),
            **both,
            contexts=[context] * len(seeds),
            noises=seeds,
        )
        self.by_nodes[LIKELIEST] = np.pad(
            likeliest, (0, self.most + 1 - len(likeliest)), mode="edge"
        )
        self.by_nodes[NOISE_TREE] = grown.mean(axis=0)
        sampled = np.full(self.most + 1, np.nan)
        for size in nodes:
            decoder = SampledTree(size, DEPTH)
            once = [
                step(
                    decoder,
                    draft=draft,
                    target=target,
                    context=context,
                    randomness=Sampled(rng),
                )
                for _ in seeds
            ]
            sampled[size] = np.mean([1.0 + one.accepted for one in once])
        self.by_nodes["sampled tree, traversal"] = sampled

    def sequences(
        self,
        draft: LanguageModel,
        target: LanguageModel,
        context: Context,
        numbers: Sequence[int],
        rng: np.random.Generator,
    ) -> None:
        """Draft independent sequences, and let the first K of them be the drafts for every K."""
        randomness = Sampled(rng)
        drafted = RefinedScores(numbers[-1], DEPTH).draft(draft, context, randomness)
        known = evaluate(target, drafted)
        p, q = drafted.draft[context], known[context]
        self.pair = float(np.minimum(p, q).sum()), otm.trees.entropy_bits(q) * float(np.log(2))
        ends, asked = ends_of(drafted), known.__getitem__
        for k in numbers:
            here = ends[:k]
            gained = {REFINED: refined_scores(drafted, asked, here, k)}
            gained["block K-SEQ"] = block_kseq(drafted, asked, here, k)
            gained["greedy multi-path block verification"] = greedy_multipath(
                drafted, asked, here, k
            )
            for name, verifier in BY_VERTEX.items():
                gained[name] = by_vertex(drafted, asked, here, verifier, randomness)
            if k == 1:
                gained[CHAIN] = gained[REFINED]
            for length in range(1, DEPTH + 1):
                starts = {
                    end[: len(context) + level] for end in here for level in range(1, length + 1)
                }
                self.plans[k, length] = float(len(starts))
                for name, levels in gained.items():
                    self._enter(name, k, length, 1.0 + float(levels[:length].sum()))
                if length in _TRAVERSED:
                    shape = TreeShape.sequences(k, length)
                    once = TraversalVerification(shape, otm.IID(1)).verify(
                        first_sequences(drafted, k, length), asked, randomness
                    )
                    self._enter(TRAVERSAL, k, length, 1.0 + once.accepted)
            self.cuts[k] = level_cuts(drafted, known, here, k)

    def _enter(self, name: str, k: int, length: int, tokens: float) -> None:
        self.by_plan.setdefault(name, {})[k, length] = tokens


def _rows(records: list[_Record], budget: int, numbers: Sequence[int]) -> Iterator[NodeRow]:
    """Yield the rows of a budget, the bound first, then by falling tokens."""
    values: dict[str, tuple[float, str, Floats]] = {}
    for name in records[0].by_nodes:
        tokens = np.array([one.by_nodes[name][budget] for one in records])
        values[name] = float(budget), f"{budget} nodes", tokens
    by_plan: dict[str, dict[tuple[int, int], Floats]] = {
        name: {plan: np.array([one.by_plan[name][plan] for one in records]) for plan in plans}
        for name, plans in records[0].by_plan.items()
    }
    by_plan[BOUND] = {}
    for k in numbers:
        terms = bound_terms(np.array([one.cuts[k] for one in records]), k)
        by_plan[BOUND] |= {
            (k, length): 1.0 + terms[:, :length].sum(axis=1) for length in range(1, DEPTH + 1)
        }
    used = {plan: float(np.mean([one.plans[plan] for one in records])) for plan in records[0].plans}
    for name, plans in by_plan.items():
        values[name] = _within(plans, used, budget)
    reference = values[NOISE_TREE][2]
    rows = [
        _row(name, budget, nodes, plan, tokens, reference)
        for name, (nodes, plan, tokens) in values.items()
    ]
    yield from sorted(rows, key=lambda row: (row.name != BOUND, -row.mean))


def _within(
    plans: dict[tuple[int, int], Floats], used: dict[tuple[int, int], float], budget: int
) -> tuple[float, str, Floats]:
    """Return the best plan within a budget: its mean nodes, its words, and tokens by context.

    For each length the number of sequences is the one below the budget, and the next one for as
    many steps as the budget allows.
    """
    best: tuple[float, str, Floats] | None = None
    for length in sorted({length for _, length in plans}):
        numbers = sorted(k for k, other in plans if other == length)
        fitting = [k for k in numbers if used[k, length] <= budget]
        if not fitting:
            continue
        low = fitting[-1]
        high = next((k for k in numbers if k > low), low)
        first, second = used[low, length], used[high, length]
        part = 0.0 if high == low else (budget - first) / (second - first)
        tokens = (1.0 - part) * plans[low, length] + part * plans[high, length]
        if best is None or tokens.mean() > best[2].mean():
            more = f" to {high}" if part > 0 else ""
            words = f"K = {low}{more}, L = {length}"
            best = first + part * (second - first), words, tokens
    assert best is not None  # one draft fits into any budget
    return best


def _row(
    name: str, budget: int, used: float, plan: str, tokens: Floats, reference: Floats
) -> NodeRow:
    both = np.stack([tokens, reference - tokens], axis=1)
    means = ratio_of_means(both, np.ones_like(both))
    ends: list[Any] = [
        [float(part[i]) for part in (means.value, means.low, means.high)] for i in (0, 1)
    ]
    return NodeRow(name, budget, used, plan, *ends[0], *ends[1])
