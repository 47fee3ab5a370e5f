"""Shared noise in Hugging Face transformers: `generate` with and without an assistant, one text.

Greedy generation takes argmax of processed logits, and its assisted form keeps an assistant's
tokens while they are those. A logits processor that answers log q + g, g standard Gumbel noise by
seed and position, makes it sample q exactly; `generate` hands the same processor to the assistant,
which so drafts argmax(log p + g). Nothing else changes: the text is a function of seed and target.

    model.generate(**inputs, assistant_model=draft, **shared_noise(7, Processing(temperature=0.8)))

Temperature and filters belong to the processor, since `generate` has its own only where it samples,
and then after all others, behind the noise. Its penalties, bad words and lengths come before.
`generate` stops a draft early where softmax(log p + g) of its token is small: the drafter's belief
in it at scale 1 (`otm.sequence.NoiseTree`), with `assistant_confidence_threshold`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from transformers import LogitsProcessor

from otm import Processing
from otm.errors import Unsupported
from otm.sequence import SharedNoise

from .noise import noise_rows
from .step import Tensor

_AS_IT_IS = Processing()


@final
class SharedNoiseProcessor(LogitsProcessor):
    """A logits processor that adds the noise of the next position, after temperature and filters.

    The scores are log q + g less their maximum, so that the winner in float64 is the winner in
    float32: 0, and everything else below. The text is the one of `otm.sequence.SharedNoise`.

    Args:
        seed: an integer in [0, 2⁶⁴), one of its own for every request.
        processing: what is done with the logits before.

    Raises:
        InvalidParameter: on any other seed.

    Cost: one row of noise a call, in float64 on the scores' device.
    """

    def __init__(self, seed: int, processing: Processing = _AS_IT_IS) -> None:
        checked = SharedNoise(seed).seed
        self.seed = checked - (checked >> 63 << 64)  # the same 64 bits, as int64
        self.processing = processing

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return the scores `(1, V)` of the token after a text, at position d.

        Args:
            input_ids: `(1, d)` int64, the text.
            scores: `(1, V)` of any floating type, the logits.

        Raises:
            Unsupported: if there is more than one row.
        """
        if len(scores) != 1:
            raise Unsupported(
                "Shared noise needs a seed for every request, or their texts are dependent, and "
                f"positions that count no padding; got {len(scores)} rows. Call generate once for "
                "each, without beams."
            )
        seed, position = torch.tensor((self.seed, input_ids.shape[1]), device=scores.device)
        law = self.processing(scores.double())
        race = law.log() + noise_rows(seed, position, scores.shape[-1])
        found: Tensor = (race - race.max()).to(scores.dtype)
        return found


def shared_noise(
    seed: int,
    processing: Processing = _AS_IT_IS,
    *,
    first: Sequence[Callable[[Tensor, Tensor], Tensor]] = (),
) -> dict[str, Any]:
    """Return the keywords with which `generate` samples on shared noise.

    Args:
        seed, processing: as of `SharedNoiseProcessor`.
        first: logits processors of one's own, a grammar's say, which come before.

    >>> sorted(shared_noise(7))
    ['do_sample', 'logits_processor']
    """
    return {
        "do_sample": False,
        "logits_processor": [*first, SharedNoiseProcessor(seed, processing)],
    }
