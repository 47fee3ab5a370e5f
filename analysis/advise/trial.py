"""Runs of plain decoding and of every advised plan, beside the predictions.

Tokens per call are those of the advice. Seconds are timed again, a few steps between the texts:
other load on a machine comes and goes, and what is tested is whether texts cost what their steps
say, not whether the load has stayed. The speed-up that the advice gave stands beside it.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from otm._machine.arrays import Floats
from otm._machine.progress import with_progress

from ..decode.plain import PLAIN, decode_text
from ..decode.results import Task
from ..models.causal import CausalModel
from ..models.from_logits import shared_positions
from .advice import Advice, TimedPlan
from .clocked import Clocked, was_stopped
from .costs import Clock


@dataclasses.dataclass(frozen=True)
class Trial:
    """One way of decoding, run on every prompt.

    Attributes:
        name: a decoder's text, or "plain decoding".
        texts, tokens, calls: decoded in all.
        expected: tokens per call of the advice.
        seconds: wall time in all.
        predicted: seconds for as many tokens, from the advice's tokens per call and steps timed
            between the texts.
        advised: the speed-up over plain decoding that the advice gave.
        speedup: the measured one.
        predicted_speedup: that of the predicted seconds.
    """

    name: str
    texts: int
    tokens: int
    calls: int
    expected: float
    seconds: float
    predicted: float
    advised: float
    speedup: float
    predicted_speedup: float


def run_trials(
    advice: Advice,
    draft: CausalModel,
    target: CausalModel,
    prompts: Sequence[Sequence[int]],
    *,
    eos: int | None,
    repeats: int,
    seed: int,
) -> list[Trial]:
    """Decode every prompt in each way, in turns, and return predicted beside measured wall time.

    Args:
        advice: what was predicted.
        draft, target, prompts, eos: as for `advise`.
        repeats: texts per prompt.
        seed: of the samples; others than those that the advice rests on.
    """
    ways: list[TimedPlan | None] = [None, *advice.rows]
    done = np.zeros((len(ways), 4))  # texts, tokens, calls, seconds
    known: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    clock = Clock(Clocked(draft), Clocked(target), known, eos, np.random.default_rng([seed, 0]))
    deepest = max(row.plan.decoder.depth for row in advice.rows)
    texts = list(itertools.product(range(repeats), enumerate(prompts)))
    # Every way decodes a prompt before the next prompt, so that a slow minute hits all of them.
    for turn, (number, prompt) in with_progress(texts, f"run: texts in {len(ways)} ways"):
        if was_stopped():
            break
        positions = shared_positions(draft, target) - len(prompt) - 1
        room = min(advice.asked.num_tokens, positions) - deepest
        if room < 1:
            continue
        # The order rotates, so that no way is always the first after the clock's round.
        for index in np.roll(np.arange(len(ways)), turn + number).tolist():
            way = ways[index]
            draft.forget()
            target.forget()
            text = decode_text(
                None if way is None else way.plan.decoder,
                prompt,
                draft=draft,
                target=target,
                num_tokens=room,
                rng=np.random.default_rng([seed, 1, turn, number, index]),
                eos=eos,
                task=Task(PLAIN if way is None else way.plan.text, "", 0),
            )
            # The tokens of the last step count whole, as its time does.
            done[index] += 1, sum(text.lengths), text.num_calls, text.seconds
            if way is None:
                known.append((tuple(prompt), text.tokens))
        clock.round([row.plan.decoder for row in advice.rows])
    return (
        [_trial(clock, way, done[index], done[0]) for index, way in enumerate(ways)]
        if known
        else []
    )


def _trial(clock: Clock, way: TimedPlan | None, done: Floats, plain: Floats) -> Trial:
    """Return the measured totals of one way of decoding beside the predictions."""
    texts, tokens, calls, seconds = done.tolist()
    each = predicted_text(clock, None, plain[1] / plain[0]) / (plain[1] / plain[0])
    predicted = texts * predicted_text(clock, way, tokens / texts)
    return Trial(
        name=PLAIN if way is None else way.plan.text,
        texts=int(texts),
        tokens=int(tokens),
        calls=int(calls),
        expected=1.0 if way is None else way.tokens,
        seconds=seconds,
        predicted=predicted,
        advised=1.0 if way is None else way.over_plain.value,
        speedup=float(plain[3] / plain[1]) * tokens / seconds,
        predicted_speedup=float(each) * tokens / predicted,
    )


def predicted_text(clock: Clock, way: TimedPlan | None, tokens: float) -> float:
    """Return predicted seconds of a text: the step that reads the prompt, and all others."""
    decoder, each = (None, 1.0) if way is None else (way.plan.decoder, way.tokens)
    return clock.first_seconds(decoder) + (tokens / each - 1.0) * clock.seconds(decoder)
