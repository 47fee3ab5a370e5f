"""OxiLLaMa on a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import oxillama_py

from evidence.engines import recording, tiny

PACKAGES = ("numpy==2.4.6", "gguf==0.19.0", "oxillama==0.1.4")

_SPREAD = 0x9E3779B97F4A7C15
"""A factor, 2**64 over the golden ratio: texts of small seeds begin with the same token."""


def export(folder: Path, seed: int, attention: float) -> None:
    """Write a model as a GGUF file, with the tokenizer that the engine reads beside it."""
    tiny.pair.write_folder(folder, seed, attention)
    tiny.pair.write_gguf(folder / "model.gguf", seed, attention)


class Loaded:
    """A pair of models; `write` loads it, since an engine with drafts has one seed for all."""

    def __init__(self, pair: Path, drafts: int) -> None:
        self.pair, self.drafts = pair, drafts

    def write(
        self, prompts: Sequence[Sequence[int]], length: int, temperature: float, seed: int
    ) -> list[list[int]]:
        """Write texts."""
        sampler = oxillama_py.SamplerConfig.greedy()
        if temperature > 0:
            sampler = oxillama_py.SamplerConfig(
                temperature=temperature, top_k=0, top_p=1.0, repetition_penalty=1.0, seed=seed + 1
            )
        target, draft = (
            oxillama_py.EngineConfig(
                str(self.pair / role / "model.gguf"),
                tokenizer_path=str(self.pair / role / "tokenizer.json"),
                num_threads=1,
                sampler=sampler,
            )
            for role in ("target", "draft")
        )
        if self.drafts:
            engine = oxillama_py.SpeculativeEngine(
                oxillama_py.SpeculativeConfig(
                    target, draft, num_speculative=self.drafts, seed=seed + 1
                )
            )
        else:
            engine = oxillama_py.Engine(target)
            engine.load_model()
        pieces, texts = tiny.pair.pieces(), []
        for i, prompt in enumerate(prompts):
            given: dict[str, int] = {}
            if not self.drafts:
                engine.reset()  # a plain engine continues its last text
                given = {"seed": _SPREAD * (seed + i + 1) % 2**64} if temperature > 0 else {}
            found = engine.generate("".join(pieces[token] for token in prompt), length, **given)
            texts.append([pieces.index(letter) for letter in found])
        return texts

    def told(self) -> dict[str, Any]:
        """Tell the totals: there are none."""
        return {}


CASES = tuple(
    recording.Case(
        name="draft model",
        rule="rejection-untempered",
        drafts=drafts,
        options=f"num_speculative={drafts}",
        open=lambda pair, drafting, drafts=drafts: Loaded(pair, drafts if drafting else 0),
    )
    for drafts in (1, 4)
)

if __name__ == "__main__":
    recording.run(PACKAGES, CASES, export)
