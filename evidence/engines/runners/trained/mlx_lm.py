"""MLX-LM with a trained pair: as it is, and three lines further."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.generate import speculative_generate_step

from evidence.engines import trained
from evidence.engines.runners import mlx_lm as engine

_SURE = 1e5
"""Factor of a draft's logits that leaves no other token than the likeliest."""


class Sharp:
    """A draft whose samples are its likeliest tokens."""

    def __init__(self, model: Any) -> None:
        self.model, self.layers = model, model.layers

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model."""
        return _SURE * self.model(*args, **kwargs)


class Loaded(engine.Loaded):
    """A session in float32."""

    def __init__(self, pair: Path, way: str) -> None:
        super().__init__(pair, 0 if way == "none" else trained.DRAFTS)
        for model in (self.target, self.draft):
            model.model.set_dtype(mx.float32)
        self.way = way
        if way == "sharp":
            self.draft.model = Sharp(self.draft.model)

    def write(
        self, prompts: Sequence[Sequence[int]], length: int, temperature: float, seed: int
    ) -> list[list[int]]:
        """Write texts."""
        if self.way != "noise":
            return super().write(prompts, length, temperature, seed)

        def on_noise(tokens: Any, logits: Any) -> Any:
            key = mx.random.key(1_000 * seed + tokens.size)
            return logits / temperature + mx.random.gumbel(logits.shape, key=key)

        self.requests += len(prompts)
        return [
            [
                int(token)
                for token, *_ in speculative_generate_step(
                    mx.array(list(prompt)),
                    self.target,
                    self.draft,
                    num_draft_tokens=trained.DRAFTS,
                    max_tokens=length,
                    logits_processors=[on_noise],
                )
            ]
            for prompt in prompts
        ]


CASES = trained.cases(
    Loaded,
    ("none", "no drafts", "none", ""),
    ("usual", "as it is", "match-sampled", "sampler=make_sampler(temp=T)"),
    ("sharp", "argmax drafts", "match-argmax", "the draft's logits times 1e5"),
    ("noise", "shared noise", "match-noise", "logits_processors=[on_noise]"),
)

if __name__ == "__main__":
    trained.run(engine.PACKAGES, CASES)
