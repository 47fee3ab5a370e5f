"""Texts sampled from the target, with both models' distributions at each token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from otm._machine.arrays import Floats, inverse_cdf

from ..models.causal import CausalModel
from ..models.from_logits import shared_positions
from ..steps.texts import SampledText
from .clocked import Clocked


def sample_text(
    draft: CausalModel | Clocked,
    target: CausalModel | Clocked,
    prompt: Sequence[int],
    *,
    num_tokens: int,
    eos: int | None,
    seed: Sequence[int],
) -> SampledText | None:
    """Continue a prompt by samples from the target; None if there is no room for a text.

    Args:
        draft, target: the two models.
        prompt: its tokens.
        num_tokens: tokens at most; fewer where a text ends or a model's positions do.
        eos: the token that ends a text.
        seed: of the samples.
    """
    room = shared_positions(draft, target) - len(prompt)
    context, rows = tuple(prompt), list[Floats]()
    target.forget()
    uniforms = np.random.default_rng(seed).random(num_tokens)
    for uniform in uniforms[: max(0, room)]:
        rows.append(target.next(context))
        context = (*context, int(inverse_cdf(rows[-1], uniform)))
        if context[-1] == eos:
            break
    if not rows:
        return None
    draft.forget()
    whole = draft.next_batch([context[: len(prompt) + i] for i in range(len(rows))])
    return SampledText(tuple(prompt), np.array(context[len(prompt) :]), whole, np.array(rows))
