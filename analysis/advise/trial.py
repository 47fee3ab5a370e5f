"""The advice put to the test: the best plan, the best chain and plain decoding, run for real beside what was predicted."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence

import numpy as np

from otm.sequence import Decoder, generate

from ..decode.plain import plain_text
from ..decode.results import Task
from ..models.causal import CausalModel
from .advice import Advice, Row


@dataclasses.dataclass(frozen=True)
class Trial:
    """One way of decoding, run on every prompt.

    Attributes:
        name: a decoder's text, or "plain decoding".
        texts, tokens, calls: decoded in all.
        seconds: wall time in all.
        predicted: seconds that were predicted for as many tokens.
        speedup, predicted_speedup: over plain decoding beside it, and as predicted.
    """

    name: str
    texts: int
    tokens: int
    calls: int
    seconds: float
    predicted: float
    speedup: float
    predicted_speedup: float


def tried(
    advice: Advice,
    draft: CausalModel,
    target: CausalModel,
    prompts: Sequence[Sequence[int]],
    *,
    eos: int | None,
    repeats: int,
    seed: int,
    progress: Callable[[str], object] = lambda what: None,
) -> list[Trial]:
    """Decode every prompt in each way, in turns, and return predicted beside measured wall time.

    Args:
        advice: what was predicted.
        draft, target, prompts, eos: as for `advise`.
        repeats: texts per prompt.
        seed: of the samples; others than those that the advice rests on.
        progress: told what is being done.
    """
    rows = list(dict.fromkeys((advice.best, advice.chain)))
    ways: list[Row | None] = [None, *rows]
    done: dict[int, list[float]] = {index: [0, 0, 0, 0.0] for index in range(len(ways))}
    wanted = advice.asked.num_tokens
    for turn in range(repeats):
        for number, prompt in enumerate(prompts):
            room = min([wanted, *(limit - len(prompt) - 1 for limit in (draft.max_length, target.max_length) if limit)])
            deepest = max(row.shape.depth for row in rows)
            if room <= deepest:
                continue
            order = list(range(len(ways)))
            order = order[(turn + number) % len(order) :] + order[: (turn + number) % len(order)]
            for index in order:
                progress("trial")
                way = ways[index]
                rng = np.random.default_rng([seed, turn, number, index])
                decoded, called, seconds = _text(
                    None if way is None else way.plan.decoder, draft, target, prompt, room - deepest, rng, eos
                )
                done[index] = [old + new for old, new in zip(done[index], (1, decoded, called, seconds), strict=True)]
    plain = done[0]
    if not plain[0]:
        return []
    found = []
    for index, way in enumerate(ways):
        texts, tokens, calls, wall = done[index]
        found.append(
            Trial(
                name="plain decoding" if way is None else way.plan.text,
                texts=int(texts),
                tokens=int(tokens),
                calls=int(calls),
                seconds=wall,
                predicted=texts * _predicted(advice, way, tokens / texts),
                speedup=plain[3] / plain[1] * tokens / wall,
                predicted_speedup=_rate(advice, None, plain[1] / plain[0]) / _rate(advice, way, tokens / texts),
            )
        )
    return found


def _rate(advice: Advice, way: Row | None, tokens: float) -> float:
    """Return predicted seconds per token of texts of that many tokens."""
    return _predicted(advice, way, tokens) / tokens


def _predicted(advice: Advice, way: Row | None, tokens: float) -> float:
    """Return predicted seconds of a text: the step that reads the prompt, and all others."""
    if way is None:
        return advice.plain_first + (tokens - 1.0) * advice.plain_seconds
    return way.first + (tokens / way.tokens - 1.0) * sum(way.seconds)


def _text(
    decoder: Decoder | None,
    draft: CausalModel,
    target: CausalModel,
    prompt: Sequence[int],
    num_tokens: int,
    rng: np.random.Generator,
    eos: int | None,
) -> tuple[int, int, float]:
    """Decode one text; return its tokens, target calls and seconds."""
    draft.forget()
    target.forget()
    if decoder is None:
        record = plain_text(target, prompt, num_tokens=num_tokens, rng=rng, eos=eos, task=Task("", "", 0))
        return len(record.tokens), record.num_calls, record.seconds
    began = time.perf_counter()
    text = generate(decoder, draft=draft, target=target, context=prompt, num_tokens=num_tokens, rng=rng, eos=eos)
    seconds = time.perf_counter() - began
    return sum(len(one.tokens) for one in text.steps), text.num_calls, seconds
