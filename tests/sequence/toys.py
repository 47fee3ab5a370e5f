"""Toy models with every irregularity, and decoders of a size, for the tests of this folder."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

import otm
from otm.sequence import (
    DECODERS,
    BlockKSeq,
    BlockMarginals,
    BlockVerification,
    Decoder,
    DraftSelection,
    Ersd,
    GreedyMultipath,
    Gsd,
    LikeliestTree,
    Memoised,
    NoiseTree,
    PrefixTree,
    Randomness,
    RefinedScores,
    SampledTree,
    SpeculativeSampling,
    Staged,
    StochasticBeam,
    TableModel,
    TraversalVerification,
    TreeVerification,
    ZerothOrder,
    outcomes,
)
from otm.trees import TreeShape
from tests import strategies

IID, DISTINCT = otm.IID(1), otm.WithoutReplacement(1)


def random_row(num_tokens: int, rng: np.random.Generator) -> np.ndarray:
    """A distribution: smooth, with zeros and ties, a point mass or uniform."""
    kind = rng.choice(["smooth", "smooth", "peaked", "ties", "point", "uniform"])
    if kind in ("smooth", "peaked"):
        return rng.dirichlet(np.full(num_tokens, 1.0 if kind == "smooth" else 0.3))
    if kind == "point":
        return np.eye(num_tokens)[rng.integers(num_tokens)]
    weights = np.ones(num_tokens) if kind == "uniform" else rng.integers(0, 3, num_tokens) + 0.0
    return weights / weights.sum() if weights.sum() else np.full(num_tokens, 1 / num_tokens)


def random_pair_of_rows(num_tokens: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draft and target of one context: unrelated, equal, or with disjoint supports."""
    draft, target = random_row(num_tokens, rng), random_row(num_tokens, rng)
    relation = rng.choice(["unrelated", "unrelated", "unrelated", "equal", "disjoint"])
    if relation == "equal":
        return draft, draft
    if relation == "disjoint" and num_tokens > 1:
        cut = int(rng.integers(1, num_tokens))
        left, right = np.zeros(num_tokens), np.zeros(num_tokens)
        left[:cut], right[cut:] = random_row(cut, rng), random_row(num_tokens - cut, rng)
        return (left, right) if rng.random() < 0.5 else (right, left)
    return draft, target


def contexts(num_tokens: int, depth: int) -> list[tuple[int, ...]]:
    """Every context of up to `depth` tokens."""
    lengths = range(depth + 1)
    return [c for n in lengths for c in itertools.product(range(num_tokens), repeat=n)]


def random_models(
    num_tokens: int, depth: int, rng: np.random.Generator
) -> tuple[TableModel, TableModel]:
    """Return a draft and a target with a distribution for every context."""
    every = contexts(num_tokens, depth)
    rows = {context: random_pair_of_rows(num_tokens, rng) for context in every}
    draft, target = (TableModel({c: pair[i] for c, pair in rows.items()}) for i in (0, 1))
    return draft, target


def smooth_models(num_tokens: int, depth: int, seed: int) -> tuple[TableModel, TableModel]:
    """Return models without irregularities, whose positive masses show every mistake."""
    rng, every = np.random.default_rng(seed), contexts(num_tokens, depth)
    draft, target = (
        TableModel({c: rng.dirichlet(np.ones(num_tokens)) for c in every}) for _ in range(2)
    )
    return draft, target


def asked(models: tuple[Any, Any], context: Sequence[int] = ()) -> dict[str, Any]:
    """Arguments of a step on a draft and a target."""
    return {"draft": models[0], "target": models[1], "context": list(context)}


def block_drafter(num_tokens: int, length: int, rng: np.random.Generator) -> BlockMarginals:
    """A drafter of a block at the start of a text, with a transition of rank two."""
    rows = [random_row(num_tokens, rng) for _ in range(length)]
    left, right = rng.normal(size=(2, num_tokens, 2))
    return BlockMarginals(rows, 0, (left, right))


def random_tree(depth: int, width: int, num_nodes: int, rng: np.random.Generator) -> TreeShape:
    """A tree within these limits, grown vertex by vertex."""
    parents: list[int] = []
    levels, counts = [0], [0]
    for _ in range(num_nodes):
        open_vertices = [v for v in range(len(levels)) if levels[v] < depth and counts[v] < width]
        if not open_vertices:
            break
        parent = int(rng.choice(open_vertices))
        counts[parent] += 1
        parents.append(parent)
        levels.append(levels[parent] + 1)
        counts.append(0)
    return TreeShape(parents)


@dataclasses.dataclass(frozen=True)
class Size:
    """V tokens, L levels, K drafts per vertex."""

    num_tokens: int
    length: int
    width: int


SIZES = [
    Size(*size)
    for size in itertools.product((1, 2, 3), repeat=3)
    if size[0] > 1 or size[1] == size[2]
]
CORNER = Size(3, 3, 3)

ONE_DRAFT = [
    otm.Maximal(),
    otm.RecursiveRejection(),
    otm.Optimal(),
    otm.Naive(),
    otm.TransportPlan(),
    otm.SelectThenReject(),
]
INDEPENDENT = [
    otm.KSeq(),
    otm.RecursiveRejection(),
    otm.Optimal(),
    otm.TransportPlan(),
    otm.Naive(),
    otm.NaiveTree(),
    otm.KSeq(gamma=32.0),  # lossless for any number of drafts here, and not γ*
    otm.SelectThenReject(),
    otm.Optimal(bins=4),
]
SUCCESSIVE = [None, otm.RecursiveRejection(), otm.Naive()]
ANY_LAW: list[tuple[otm.Law, otm.Verifier]] = [
    (IID, otm.RecursiveRejection()),
    (DISTINCT, otm.Naive()),
    (otm.Greedy(1), otm.GreedyOptimal()),
    (otm.TopK(1), otm.Naive()),
    (DISTINCT, otm.TransportPlan()),
    (IID, otm.Optimal()),
    (DISTINCT, otm.RecursiveRejection()),
    (otm.Greedy(1), otm.TransportPlan()),
]


def usual_arguments(cls: type[Decoder], *, length: int, width: int, tree: TreeShape) -> Any:
    """Arguments of a decoder by the names that all decoders use; the rest have defaults."""
    usual = {"length": length, "num_drafts": width, "size": 4, "tree": tree}
    parameters = inspect.signature(cls).parameters.values()
    return {one.name: usual[one.name] for one in parameters if one.default is one.empty}


def with_further(
    listed: list[Decoder], *, length: int, width: int, tree: TreeShape
) -> list[Decoder]:
    """Return the listed decoders, and one of each registered decoder that is not listed."""
    further: set[Any] = set(DECODERS) - {type(decoder) for decoder in listed}
    return listed + [
        cls(**usual_arguments(cls, length=length, width=width, tree=tree))
        for cls in sorted(further, key=lambda cls: cls.__name__)
    ]


def decoders(size: Size, index: int, rng: np.random.Generator) -> list[Decoder]:
    """One instance of every registered decoder, traversal with both laws; verifiers and shapes
    change with the index.
    """
    length, narrow = size.length, min(size.width, size.num_tokens)
    tree = random_tree(length, narrow, 5 if size.num_tokens < 3 else 4, rng)
    law, verifier = ANY_LAW[index % len(ANY_LAW)]
    factors = (1,) * length
    # about as many vertices as there are in the other trees
    while sum(np.cumprod(factors)) < size.width + length - 1:
        factors = tuple(int(f) for f in rng.integers(1, size.width + 1, length))
        factors = factors if sum(np.cumprod(factors)) <= 8 else (1,) * length
    listed = [
        SpeculativeSampling(length, ONE_DRAFT[index % len(ONE_DRAFT)]),
        DraftSelection(size.width, length, INDEPENDENT[index % len(INDEPENDENT)]),
        PrefixTree(factors, INDEPENDENT[(index + 4) % len(INDEPENDENT)]),
        TreeVerification(tree, law, verifier),
        Gsd(tree),
        Ersd(tree),
        BlockVerification(length),
        TraversalVerification(tree),
        TraversalVerification(tree, IID),
        GreedyMultipath(size.width, length - (stem := int(length > 1 and index % 3 == 0)), stem),
        LikeliestTree(4, length, (None, 1, 2)[index % 3]),
        NoiseTree(4, min(length, 2), (0.5, (2.0, 0.1))[index % 2], cells=2),
        SampledTree(4, length, SUCCESSIVE[index % 3]),
        StochasticBeam(
            min(size.width, 4 // min(length, 2)), min(length, 2), SUCCESSIVE[(index + 1) % 3]
        ),
        Staged(
            SpeculativeSampling(1), ZerothOrder(random_row(size.num_tokens, rng)), min(length, 2)
        ),
        RefinedScores(size.width, length, cells=(64, 5)[index % 2]),
        BlockKSeq(size.width, length),
    ]
    return with_further(listed, length=length, width=size.width, tree=tree)


@st.composite
def decodings(draw: st.DrawFn) -> tuple[Decoder, dict[str, Any]]:
    """Draw a decoder and the arguments of a step on models with oddities of tests/strategies.py."""
    size = draw(st.sampled_from(SIZES))
    one = strategies.pairs(min_tokens=size.num_tokens, max_tokens=size.num_tokens)
    rows = {context: draw(one) for context in contexts(size.num_tokens, size.length)}
    draft, target = (TableModel({c: pair[i] for c, pair in rows.items()}) for i in (0, 1))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    listed = decoders(size, draw(st.integers(0, 71)), rng)
    return draw(st.sampled_from(listed)), asked((draft, target))


def num_trees(decoder: Decoder, num_tokens: int) -> int:
    """An upper bound on the number of drafted trees: V^n."""
    return int(num_tokens**decoder.num_nodes)


def outcomes_of(law: otm.sequence.StepLaw) -> dict[tuple[tuple[int, ...], int], float]:
    """A step's law by (tokens, accepted)."""
    rows = zip(law.tokens.tolist(), law.accepted.tolist(), law.mass.tolist(), strict=True)
    return {(tuple(t for t in tokens if t >= 0), accepted): mass for tokens, accepted, mass in rows}


def distance(law: otm.sequence.StepLaw, other: otm.sequence.StepLaw) -> float:
    """Largest difference of any outcome's mass."""
    left, right = outcomes_of(law), outcomes_of(other)
    return max(abs(left.get(key, 0.0) - right.get(key, 0.0)) for key in left | right)


def completed(decoder: Decoder, draft: TableModel, target: TableModel, length: int) -> np.ndarray:
    """The law of the first `length` tokens where the target goes on after a step by itself, on the
    noise that the step has looked at: enumerated with the step.
    """
    law = np.zeros((draft.num_tokens,) * length)
    drafter, judge = Memoised(draft), Memoised(target)

    def run(randomness: Randomness) -> tuple[int, ...]:
        tree = decoder.draft(drafter, (), randomness)
        text = decoder.verify(tree, judge.next, randomness).tokens[:length]
        while len(text) < length:
            text = (*text, randomness.sample(judge.next(text), len(text)))
        return text

    for text, mass in outcomes(run):
        law[text] += mass
    return law


def bias(
    decoder: Decoder, draft: TableModel, target: TableModel, *, step: Callable[..., Any]
) -> float:
    """Total variation between the output, completed by target samples, and the target's law."""
    length = decoder.depth + 1
    wanted = otm.sequence.sequence_law(target, [], length)
    if decoder.carries_noise:
        return float(0.5 * np.abs(completed(decoder, draft, target, length) - wanted).sum())
    found = step(decoder, draft=draft, target=target, context=[])
    law = getattr(found, "law", found)
    alone = otm.sequence.completed_law(law, target=target, context=[], length=length)
    return float(0.5 * np.abs(alone - wanted).sum())
