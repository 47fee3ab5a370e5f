"""Drafting for a given target: the draft's processing, and rules that stop drafting.

Both are chosen on every other text and judged on the rest, so that the best of many does not look
better than it is.

A rule that stops before a draft is drawn, by the distribution that it would be drawn from, is
lossless: the number of drafts is a stopping time (docs/theory.md, "Sequences and trees"). The same
holds for argmax drafts, whatever the rule looks at. How many drafts a step makes depends on where
its own drafts lead, which is seen by drafting on from every fourth place of a text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy

from otm import Processing
from otm._machine.arrays import Floats, inverse_cdf
from otm.results.statistics import Estimate, ratio_of_means
from otm.sequence import LanguageModel

from ..advise.laws import SurvivorLaw, single_survivors
from ..advise.walk import along_all_lengths
from ..errors import AnalysisError
from ..statistics import sums_by_group
from .answer import LEAST_TEXTS, RuleWalks
from .rules import ReadText, chain_walk, likeliest
from .survivals import Survivals

TEMPERATURES = (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 1.7, 2.0)
TOP_PS = (None, 0.99, 0.97, 0.95, 0.9, 0.8)
TOP_KS = (None, 100, 50, 20, 10, 5)
MIN_PS = (None, 0.005, 0.01, 0.02, 0.05, 0.1)
_SWEEPS = 2
_ROWS = 32
"""Positions of a text that a processing is tried at."""

THRESHOLDS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
ENTROPIES = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
LONGEST = 8
"""Most drafts in a row, of stop rules and of the fixed lengths beside them."""
_EVERY = 4


@dataclasses.dataclass(frozen=True)
class BestProcessing:
    """The draft's processing that rejection accepts most with.

    Attributes:
        processing: what was found.
        tried: how many were.
        gain: tokens per call more than with the draft's own.
    """

    processing: Processing
    tried: int
    gain: Estimate


def best_processing(read: RuleWalks) -> BestProcessing:
    """Search temperature, top-p, top-k and min-p of the draft in turns, for one sequence.

    Args:
        read: the rules along texts.

    Raises:
        AnalysisError: for fewer than four texts.
    """
    chosen, judged = _halves(read)
    own = read.reader.setting.draft
    rows = [(one.logits, one.text.target) for one in chosen]
    parts = [(z[:: max(1, len(z) // _ROWS)], q[:: max(1, len(q) // _ROWS)]) for z, q in rows]
    logits, target = (np.concatenate(side) for side in zip(*parts, strict=True))
    found: dict[Processing, float] = {}

    def accepted(processing: Processing) -> float:
        if processing not in found:
            masses = np.asarray(processing(logits.astype(np.float64)))
            found[processing] = float(np.minimum(masses, target).sum(axis=1).mean())
        return found[processing]

    best = max((own, read.reader.setting.target), key=accepted)
    axes: dict[str, Sequence[Any]] = {
        "temperature": TEMPERATURES,
        "top_p": TOP_PS,
        "top_k": TOP_KS,
        "min_p": MIN_PS,
    }
    for _ in range(_SWEEPS):
        for name, values in axes.items():
            changes: list[dict[str, Any]] = [{name: value} for value in values]
            near = [dataclasses.replace(best, **one) for one in changes]
            best = max((best, *near), key=accepted)
    sizes, eos = read.reader.sizes, read.reader.eos
    walks = [
        [
            chain_walk(
                np.minimum(np.asarray(one(passage.logits.astype(np.float64))), passage.text.target),
                passage.text,
                sizes.length,
                sizes.num_tokens,
                eos,
            )
            for one in (own, best)
        ]
        for passage in judged
    ]
    gain = Survivals.of(walks, [passage.prompt for passage in judged]).lead(1, 0)
    return BestProcessing(best, len(found), gain)


@dataclasses.dataclass(frozen=True)
class Stop:
    """A rule that stops drafting, with tokens, drafts and speed.

    Attributes:
        words: when it stops.
        tokens, drafts: of a call.
        speed: tokens per time of a target call.
    """

    words: str
    tokens: float
    drafts: float
    speed: Estimate


def best_stops(read: RuleWalks, *, cost: float) -> list[Stop]:
    """Return the best stop rule of every kind, fixed lengths first.

    Args:
        read: the rules along texts.
        cost: of a draft, as a part of a target call.

    Raises:
        AnalysisError: for fewer than four texts.
    """
    halves = _halves(read)
    tables = [[list(_tallies(read, passage)) for passage in half] for half in halves]
    chosen, judged = (
        np.array([[(steps, tokens, drafts) for *_, steps, tokens, drafts in row] for row in table])
        for table in tables
    )
    names = [(kind, words) for kind, words, *_ in tables[0][0]]
    steps, tokens, drafts = chosen.sum(axis=0).T
    speeds = tokens / (steps + cost * drafts)
    by_prompt = sums_by_group(judged, [passage.prompt for passage in halves[1]])
    means = ratio_of_means(by_prompt[..., 1], by_prompt[..., 0] + cost * by_prompt[..., 2])
    stops = []
    for kind in dict.fromkeys(kind for kind, _ in names):
        best = max((i for i, name in enumerate(names) if name[0] == kind), key=speeds.__getitem__)
        steps, tokens, drafts = by_prompt[:, best].sum(axis=0)
        each = float(tokens / steps), float(drafts / steps)
        stops.append(Stop(names[best][1], *each, means.at(best)))
    return stops


def _halves(read: RuleWalks) -> tuple[list[ReadText], list[ReadText]]:
    if len(read.passages) < LEAST_TEXTS:
        raise AnalysisError(
            f"How to draft is chosen on some texts and judged on others; got {len(read.passages)} "
            f"texts. Pass --num-texts {LEAST_TEXTS} or more."
        )
    return read.passages[::2], read.passages[1::2]


def _tallies(read: RuleWalks, passage: ReadText) -> Iterator[tuple[str, str, float, float, float]]:
    """Yield kind, words, steps, tokens and drafts of every length and stop rule."""
    reader, text = read.reader, passage.text
    starts = min(max(1, reader.sizes.num_tokens + reader.sizes.length - LONGEST), len(text.tokens))
    places = range(0, starts, _EVERY)
    contexts = [text.context(place) for place in places]
    here = _confidence(text.draft)
    ways = {"argmax": likeliest(text.draft), "sampled": text.draft}
    for way, masses in ways.items():
        law = single_survivors(
            np.minimum(masses, text.target), text.target, text.tokens, eos=reader.eos
        )
        walks = along_all_lengths(law, num_drafts=1, most=LONGEST, starts=starts)
        for length, walk in enumerate(walks, start=1):
            yield (
                f"fixed, {way}",
                f"never, {length} drafts, {way}",
                walk.steps,
                walk.tokens,
                length * walk.steps,
            )
        rng = np.random.default_rng(len(text.prefix)) if masses is text.draft else None
        ahead = _drafted_on(reader.draft, contexts, rng)
        for name, levels in (("largest probability", THRESHOLDS), ("entropy", ENTROPIES)):
            for level in levels:
                goes_on, drafted = (
                    one["entropy"] <= level if name == "entropy" else one[name] >= level
                    for one in (here, ahead)
                )
                kept = SurvivorLaw(law.given * goes_on[:, None, None], law.alive * goes_on[:, None])
                walk = along_all_lengths(kept, num_drafts=1, most=LONGEST, starts=starts)[-1]
                made = np.cumprod(drafted, axis=1).sum(axis=1)
                mean = np.average(made, weights=walk.visits[places.start :: _EVERY])
                words = f"{name} {'>' if name == 'entropy' else '<'} {level:g}, {way}"
                yield f"{name}, {way}", words, walk.steps, walk.tokens, float(mean) * walk.steps


def _confidence(masses: Floats) -> dict[str, Floats]:
    entropy = scipy.special.entr(masses).sum(axis=-1)
    return {"largest probability": masses.max(axis=-1), "entropy": entropy}


def _drafted_on(
    model: LanguageModel, contexts: Sequence[tuple[int, ...]], rng: np.random.Generator | None
) -> dict[str, Floats]:
    """Return the confidence at `LONGEST` drafts after each context, `(places, LONGEST)`."""
    found: list[dict[str, Floats]] = []
    for _ in range(LONGEST):
        rows = np.asarray(model.next_batch(contexts))
        found.append(_confidence(rows))
        tokens = (
            rows.argmax(axis=1)
            if rng is None
            else np.array([inverse_cdf(row, np.asarray(rng.random())) for row in rows])
        )
        contexts = [(*one, int(x)) for one, x in zip(contexts, tokens, strict=True)]
    return {name: np.stack([one[name] for one in found], axis=1) for name in found[0]}
