"""What first drafts are lost to along the sampled texts, and what a drafter that knew the target would win.

The parts are `otm.acceptance_losses` at random positions of the texts, from both models' logits. Beside them the clairvoyant bound
of a context: no tree of N drafts and L levels that a context determines wins more than 1 + Σ Q(u) over the N paths u that the
target itself holds likeliest. Drafts that are drawn may: one draft from the target is always accepted. The same tree grown by the
draft shows how much of it is the draft's to win.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

import numpy as np
import torch

from otm.losses import acceptance_losses
from otm.sequence import LanguageModel, LikeliestTree
from otm.sequence.likeliest_tree import Path, levels
from otm.sequence.models import next_distributions

from ..models.causal import CausalModel
from ..models.processing import Setting
from ..run.losses import PARTS
from ..statistics import clustered_means

POSITIONS, TREES = 8, 2
"""Positions of a text at which the parts, and the trees, are looked at."""


@dataclasses.dataclass(frozen=True)
class Share:
    """A mean with its interval over prompts; NaN limits where one prompt is all there is."""

    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Lost:
    """What becomes of first drafts.

    Attributes:
        accepted: the share that the best verifier accepts.
        parts: what the others are lost to, by name; with `accepted` they add up to 1.
        size, length: N and L of the trees.
        tokens: per call, with the tree that the draft holds likeliest.
        clairvoyant: with the one that the target does.
        positions: how many were looked at.
    """

    accepted: Share
    parts: dict[str, Share]
    size: int
    length: int
    tokens: Share
    clairvoyant: Share
    positions: int


def lost(
    draft: CausalModel,
    target: CausalModel,
    sampled: Sequence[tuple[int, tuple[int, ...], tuple[int, ...]]],
    *,
    tree: LikeliestTree,
    eos: int | None,
    seconds: float,
    rng: np.random.Generator,
) -> Lost:
    """Look at random positions of texts until the time is over, at those of one text at least.

    Args:
        draft, target: the models.
        sampled: texts as (prompt, its tokens, the continuation).
        tree: of how many tokens and levels trees are grown.
        eos: the token that ends a text, beyond which nothing is won.
        seconds: of looking.
        rng: chooses texts and positions.

    Cost: some 70 optimal acceptances of one draft at each position, and a target call per level at some.
    """
    deadline = time.perf_counter() + seconds
    setting, owners, rows, expected = Setting(draft.processing, target.processing), [], [], []
    for number in rng.permutation(len(sampled)).tolist():
        prompt, prefix, continuation = sampled[number]
        count = min(POSITIONS, len(continuation))
        ends = np.sort(rng.choice(len(continuation), size=count, replace=False)).tolist()
        contexts = [(*prefix, *continuation[:end]) for end in ends]
        logits = [_numbers(model.logits(contexts)) for model in (draft, target)]
        parts = acceptance_losses(*logits, draft=setting.draft, target=setting.target)
        rows.append(np.stack([parts.acceptance, *(getattr(parts, name) for name in PARTS)], axis=-1).sum(axis=0))
        some = rng.permutation(count)[:TREES].tolist()
        expected.append(np.sum([_expected(draft, target, contexts[i], tree, eos) for i in some], axis=0))
        owners.append((prompt, count, len(some)))
        if time.perf_counter() > deadline:
            break
    prompts, place = np.unique([owner[0] for owner in owners], return_inverse=True)
    sums = np.zeros((len(prompts), 3 + len(PARTS)))
    counts = np.zeros_like(sums)
    np.add.at(sums, place, np.concatenate([rows, expected], axis=1))
    np.add.at(counts, place, np.array([[owner[1]] * (1 + len(PARTS)) + [owner[2]] * 2 for owner in owners], dtype=float))
    means = clustered_means(sums, counts)
    shares = [Share(*map(float, one)) for one in zip(means.mean, means.low, means.high, strict=True)]
    return Lost(
        accepted=shares[0],
        parts=dict(zip(PARTS, shares[1:], strict=False)),
        size=tree.size,
        length=tree.depth,
        tokens=shares[-2],
        clairvoyant=shares[-1],
        positions=sum(owner[1] for owner in owners),
    )


def _numbers(logits: torch.Tensor) -> np.ndarray:
    return logits.double().cpu().numpy()


def _expected(
    draft: LanguageModel, target: LanguageModel, context: tuple[int, ...], tree: LikeliestTree, eos: int | None
) -> tuple[float, float]:
    """Return 1 + Σ Q(u) over the paths that the draft, and those that the target, holds likeliest."""
    won = []
    for model in (draft, target):
        paths: list[Path] = []
        for grown, _ in levels(tree, model, [context]):
            paths = grown[0]
        reached = {context: 1.0}
        inner = dict.fromkeys(path.context[:-1] for path in paths[1:])
        rows = next_distributions(target, inner, name="target")
        for path in paths[1:]:
            before, token = path.context[:-1], path.context[-1]
            reached[path.context] = reached[before] * float(rows[before][token])
        won.append(sum(value for path, value in reached.items() if eos is None or eos not in path[len(context) :]))
    return won[0], won[1]
