"""Hugging Face transformers with a trained pair: as it is, and three lines further."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import LogitsProcessor, TemperatureLogitsWarper

from evidence.engines import trained
from evidence.engines.runners import transformers as engine


class OnNoise(LogitsProcessor):
    """Gumbel noise of seed and position on the scores, so that greedy texts are samples."""

    def __init__(self, seed: int, temperature: float) -> None:
        self.seed, self.temperature = seed, temperature

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Return scores whose largest is a sample."""
        noise = torch.Generator().manual_seed(1_000 * self.seed + input_ids.shape[1])
        uniform = torch.rand(scores.shape[-1], generator=noise, dtype=torch.float64)
        return (scores.double() / self.temperature - (-uniform.log()).log()).to(scores.dtype)


class Loaded(engine.Loaded):
    """A session in float32 whose texts do not end early."""

    def __init__(self, pair: Path, way: str) -> None:
        super().__init__(pair, drafts=0 if way == "none" else trained.DRAFTS)
        for model in filter(None, (self.target, self.given.get("assistant_model"))):
            model.float().generation_config.eos_token_id = None
        self.way = way

    def write(
        self, prompts: Sequence[Sequence[int]], length: int, temperature: float, seed: int
    ) -> list[list[int]]:
        """Write texts."""
        if self.way == "processor":
            self.given["logits_processor"] = [TemperatureLogitsWarper(temperature)]
            return super().write(prompts, length, 1.0, seed)
        if self.way == "noise":
            self.given["logits_processor"] = [OnNoise(seed, temperature)]
            return super().write(prompts, length, 0.0, seed)
        return super().write(prompts, length, temperature, seed)


CASES = trained.cases(
    Loaded,
    ("none", "no drafts", "none", ""),
    ("usual", "as it is", "rejection-squared", "temperature=T"),
    ("processor", "temperature once", "rejection", "logits_processor=[…Warper(T)]"),
    ("noise", "shared noise", "match-noise", "a processor that adds noise, greedy"),
)

if __name__ == "__main__":
    torch.set_num_threads(1)
    trained.run(engine.PACKAGES, CASES)
