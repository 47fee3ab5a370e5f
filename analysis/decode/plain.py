"""Decoding of a text with a decoder, or without drafts, the baseline of every speed-up."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from otm.sequence import Decoder, Generation, LanguageModel, Randomness, Sampled, Step, generate

from ..kernels.decoders import by_kernel
from .results import Task, TextRecord

PLAIN = "plain decoding"
"""Text in place of a decoder's where nothing is drafted."""


def plain_step(target: LanguageModel, context: Sequence[int], randomness: Randomness) -> int:
    """Return one token of the target.

    >>> import numpy as np
    >>> from otm.sequence import ZerothOrder
    >>> plain_step(ZerothOrder([0.0, 1.0]), [], Sampled(np.random.default_rng(0)))
    1
    """
    return randomness.choose(target.next(context))


def decode_text(
    decoder: Decoder | None,
    context: Sequence[int],
    *,
    draft: LanguageModel,
    target: LanguageModel,
    num_tokens: int,
    rng: np.random.Generator,
    eos: int | None,
    task: Task,
) -> TextRecord:
    """Decode a text with a decoder, or token by token if None, and time the decoding."""
    began = time.perf_counter()
    if decoder is None:
        randomness, tokens = Sampled(rng), list[int]()
        while len(tokens) < num_tokens and (not tokens or tokens[-1] != eos):
            tokens.append(plain_step(target, [*context, *tokens], randomness))
        steps = [Step((token,), 0, "end_of_draft") for token in tokens]
        text = Generation(tuple(tokens), tuple(steps), bool(tokens) and tokens[-1] == eos)
    else:
        text = generate(
            by_kernel(decoder),
            draft=draft,
            target=target,
            context=context,
            num_tokens=num_tokens,
            rng=rng,
            eos=eos,
        )
    seconds = time.perf_counter() - began
    return TextRecord(
        task=task,
        tokens=text.tokens,
        lengths=tuple(len(one.tokens) for one in text.steps),
        accepted=tuple(one.accepted for one in text.steps),
        vertices=tuple(one.survivors[-1][0] if one.survivors else 0 for one in text.steps),
        drafted=0 if decoder is None else decoder.num_nodes,
        ended=text.ended,
        seconds=round(seconds, 6),
    )
