"""Decoding without drafts, which every speed-up is over."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from otm.sequence import LanguageModel, Randomness, Sampled

from .results import Task, TextRecord

PLAIN = "plain decoding"
"""What stands for a decoder's text where nothing is drafted."""


def plain_step(target: LanguageModel, context: Sequence[int], randomness: Randomness) -> int:
    """Return one token of the target.

    >>> from otm.sequence import ZerothOrder
    >>> plain_step(ZerothOrder([0.0, 1.0]), [], Sampled(np.random.default_rng(0)))
    1
    """
    return randomness.choose(target.next(context))


def plain_text(
    target: LanguageModel,
    context: Sequence[int],
    *,
    num_tokens: int,
    rng: np.random.Generator,
    eos: int | None,
    task: Task,
) -> TextRecord:
    """Decode a text one token at a time, and time it."""
    randomness, tokens = Sampled(rng), list[int]()
    began = time.perf_counter()
    while len(tokens) < num_tokens and (not tokens or tokens[-1] != eos):
        tokens.append(plain_step(target, [*context, *tokens], randomness))
    seconds = time.perf_counter() - began
    none = (0,) * len(tokens)
    return TextRecord(
        task=task,
        tokens=tuple(tokens),
        lengths=(1,) * len(tokens),
        accepted=none,
        vertices=none,
        drafted=0,
        ended=bool(tokens) and tokens[-1] == eos,
        seconds=round(seconds, 6),
    )
