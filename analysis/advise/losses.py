"""Losses of first drafts along sampled texts, and the tokens within reach of the best drafter.

The parts are `otm.losses.acceptance_losses` at random positions of the texts, from both models'
logits: of one draft, and of as many as the advised plan begins with, drawn independently. Where the
draft model computes in bfloat16, what drafts drawn from masses so rounded would change stands
beside them (`otm.losses.draft_rounding`). Beside these the clairvoyant bound of a context: no tree
of N drafts and L levels that a context determines wins more than 1 + Σ Q(u) over the N paths u that
the target itself holds likeliest. Drafts that are drawn may: one draft from the target is always
accepted. The same tree grown by the draft shows how much of it is the draft's to win.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from otm.losses import acceptance_losses, draft_rounding
from otm.results.statistics import Estimate
from otm.sequence import (
    Decoder,
    DraftSelection,
    LanguageModel,
    LikeliestTree,
    StaticDecoder,
    matched_tokens,
)
from otm.sequence.best_first import grown_best_first

from ..models.causal import CausalModel
from ..models.processing import Setting
from ..run.loss_columns import PARTS
from ..statistics import means_by_group

POSITIONS, TREES = 8, 2
"""Positions of a text at which the parts, and the trees, are looked at."""

SEVERAL = {name: words for name, words in PARTS.items() if name != "ranking"} | {
    "verifier": "the scheme: the best verifier wins this on the same drafts"
}
"""Parts of 1 − α of several drafts, in words."""


@dataclasses.dataclass(frozen=True)
class SeveralLosses:
    """Acceptance and losses of several first drafts, drawn independently.

    Attributes:
        drafts: k.
        verifier: who checks them, in words.
        accepted: how often one of them is accepted.
        parts: losses by cause; with `accepted` they add up to 1.
    """

    drafts: int
    verifier: str
    accepted: Estimate
    parts: dict[str, Estimate]


@dataclasses.dataclass(frozen=True)
class RoundedDrafts:
    """Changes where drafts are drawn from masses in bfloat16 and verified by exact ratios.

    Attributes:
        gain: acceptance of one draft, against exact masses; a loss is negative.
        output_tv: total variation from the target's law to that of the output, with one draft.
        draft_tv: from the exact draft to the rounded one. k drafts change nothing by more than k
            times this.
    """

    gain: Estimate
    output_tv: Estimate
    draft_tv: Estimate


@dataclasses.dataclass(frozen=True)
class DraftLosses:
    """Acceptance and losses of first drafts.

    Attributes:
        accepted: the share of single drafts that the best verifier accepts.
        parts: losses by cause; with `accepted` they add up to 1.
        size, length: N and L of the trees.
        tokens: per call, with the draft's likeliest tree.
        clairvoyant: per call, with the target's likeliest tree.
        positions: number of measured positions.
        several: the same of as many drafts as the advised plan begins with; None for one.
        rounding: the effect of bfloat16, where the draft model computes in it.
    """

    accepted: Estimate
    parts: dict[str, Estimate]
    size: int
    length: int
    tokens: Estimate
    clairvoyant: Estimate
    positions: int
    several: SeveralLosses | None = None
    rounding: RoundedDrafts | None = None


def measure_losses(
    draft: CausalModel,
    target: CausalModel,
    sampled: Sequence[tuple[int, tuple[int, ...], tuple[int, ...]]],
    *,
    decoder: Decoder,
    tree: LikeliestTree,
    eos: int | None,
    seconds: float,
    rng: np.random.Generator,
    rounded: bool = False,
) -> DraftLosses:
    """Measure losses at random positions of texts until the time is over, of one text at least.

    Args:
        draft, target: the models.
        sampled: texts as (prompt, its tokens, the continuation).
        decoder: the advised plan.
        tree: numbers of tokens and levels of the grown trees.
        eos: the token that ends a text, beyond which nothing is won.
        seconds: of looking.
        rng: chooses texts and positions.
        rounded: whether drafts are drawn in bfloat16.

    Cost: 73 optimal acceptances of one draft at each position, as many of the plan's number, a
        target call per level at some.
    """
    deadline = time.perf_counter() + seconds
    setting, owners, rows, expected = Setting(draft.processing, target.processing), [], [], []
    order, k = rng.permutation(len(sampled)).tolist(), 0
    verifier = decoder.verifier if isinstance(decoder, DraftSelection) else None
    # In random order, so that whatever time allows is a sample of the texts.
    for number in order:
        prompt, prefix, continuation = sampled[number]
        count = min(POSITIONS, len(continuation))
        ends = np.sort(rng.choice(len(continuation), size=count, replace=False)).tolist()
        contexts = [(*prefix, *continuation[:end]) for end in ends]
        k = k or first_drafts(decoder, draft, contexts)
        logits = [model.logits(contexts).double().cpu().numpy() for model in (draft, target)]
        found = acceptance_losses(*logits, draft=setting.draft, target=setting.target)
        parts = [found.acceptance, *(getattr(found, name) for name in PARTS)]
        if k > 1:
            found = acceptance_losses(
                *logits, k=k, draft=setting.draft, target=setting.target, verifier=verifier
            )
            parts += [found.acceptance, *(getattr(found, name) for name in SEVERAL)]
        if rounded:
            change = draft_rounding(
                draft=setting.draft(logits[0]), target=setting.target(logits[1])
            )
            parts += [change.gain, change.output_tv, change.draft_tv]
        rows.append(np.stack(parts, axis=-1).sum(axis=0))
        some = rng.permutation(count)[:TREES].tolist()
        expected.append(
            np.sum([_expected(draft, target, contexts[i], tree, eos) for i in some], axis=0)
        )
        owners.append((prompt, count, len(some)))
        if time.perf_counter() > deadline:
            break
    prompts, columns = [owner[0] for owner in owners], len(rows[0])
    looked = np.array([[owner[1]] * columns + [owner[2]] * 2 for owner in owners], dtype=float)
    means = means_by_group(np.concatenate([rows, expected], axis=1), looked, prompts)
    shares = iter([means.at(column) for column in range(columns + 2)])
    accepted, parts_of_one = next(shares), {name: next(shares) for name in PARTS}
    several = None
    if k > 1:
        words = "the best verifier" if verifier is None else str(verifier)
        several = SeveralLosses(k, words, next(shares), {name: next(shares) for name in SEVERAL})
    return DraftLosses(
        accepted=accepted,
        parts=parts_of_one,
        several=several,
        rounding=RoundedDrafts(next(shares), next(shares), next(shares)) if rounded else None,
        size=tree.size,
        length=tree.depth,
        tokens=next(shares),
        clairvoyant=next(shares),
        positions=sum(owner[1] for owner in owners),
    )


def first_drafts(
    decoder: Decoder, draft: LanguageModel, contexts: Sequence[tuple[int, ...]]
) -> int:
    """Return the number of drafts that a plan begins with; a rounded mean over contexts."""
    if isinstance(decoder, StaticDecoder):
        return len(decoder.shape.children(0))
    if not isinstance(decoder, LikeliestTree):
        return 1
    size, depth, width = decoder.size, decoder.depth, decoder.width
    grown, _ = grown_best_first(draft, contexts, size=size, depth=depth, width=width)
    trees = zip(contexts, grown, strict=True)
    begun = [
        sum(len(path.context) == len(context) + 1 for path in paths) for context, paths in trees
    ]
    return max(1, round(float(np.mean(begun))))


def _expected(
    draft: LanguageModel,
    target: LanguageModel,
    context: tuple[int, ...],
    tree: LikeliestTree,
    eos: int | None,
) -> list[float]:
    """Return the tokens per call of the draft's likeliest tree, and of the target's own."""
    given: dict[str, Any] = {"target": target, "context": context, "eos": eos}
    return [float(matched_tokens(tree, draft=one, **given)[-1]) for one in (draft, target)]
