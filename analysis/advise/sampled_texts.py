"""Texts sampled from the target, as every lossless decoder writes them, and both laws there."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from otm._arrays import inverse_cdf

from ..models.causal import CausalModel
from ..statistics import Floats


@dataclasses.dataclass(frozen=True, eq=False)
class SampledText:
    """A prompt continued by the target.

    Attributes:
        prompt: number of the prompt, what texts are clustered by.
        prefix: the prompt's tokens.
        tokens: `(n,)`, the target's continuation, the end of the text included if it came.
        draft, target: `(n, V)`, both models' distributions of each of these tokens.
    """

    prompt: int
    prefix: tuple[int, ...]
    tokens: NDArray[np.int64]
    draft: Floats
    target: Floats

    def context(self, position: int) -> tuple[int, ...]:
        """Return the prompt and the first tokens of the continuation."""
        return (*self.prefix, *self.tokens[:position].tolist())


def sample_texts(
    draft: CausalModel,
    target: CausalModel,
    prompts: Sequence[Sequence[int]],
    *,
    num_tokens: int,
    eos: int | None,
    seed: int,
    round_number: int,
) -> Iterator[SampledText]:
    """Continue every prompt once by samples from the target.

    Args:
        draft, target: the two models.
        prompts: their tokens.
        num_tokens: tokens at most; fewer where a text ends or a model's positions do.
        eos: the token that ends a text.
        seed, round_number: name the samples; other rounds are independent.

    Yields:
        Text: one at a time; its distributions are large.
    """
    limits = [model.max_length for model in (draft, target) if model.max_length is not None]
    for number, prefix in enumerate(prompts):
        uniforms = np.random.default_rng([seed, round_number, number]).random(num_tokens)
        context = tuple(prefix)
        target.forget()
        rows: list[Floats] = []
        for uniform in uniforms[
            : max(0, min([num_tokens, *(limit - len(prefix) for limit in limits)]))
        ]:
            rows.append(target.next(context))
            context = (*context, int(inverse_cdf(rows[-1], uniform)))
            if context[-1] == eos:
                break
        if not rows:
            continue  # the prompt leaves no room
        draft.forget()
        whole = draft.next_batch([context[: len(prefix) + i] for i in range(len(rows))])
        yield SampledText(
            number, tuple(prefix), np.array(context[len(prefix) :]), whole, np.array(rows)
        )
