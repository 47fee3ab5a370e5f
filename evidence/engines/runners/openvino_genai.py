"""OpenVINO GenAI on a CPU, by `LLMPipeline`, which batches continuously where it has a draft."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import openvino_genai

from evidence.engines import recording, tiny

PACKAGES = ("numpy==2.4.6", "gguf==0.19.0", "openvino-genai==2026.4.1.0")

_EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
_TOTALS = {
    "tokens": "get_num_generated_tokens",
    "drafted": "get_num_draft_tokens",
    "accepted": "get_num_accepted_tokens",
}


def export(folder: Path, seed: int, attention: float) -> None:
    """Write a model in OpenVINO's own form, by its reader of GGUF files."""
    folder.mkdir()
    path = tiny.pair.write_gguf(folder / "model.gguf", seed, attention, half=True)
    openvino_genai.LLMPipeline(str(path), "CPU", enable_save_ov_model=True)


class Loaded:
    """A pipeline in float32: by default its cache has eight bits."""

    def __init__(self, pair: Path, **speculative: Any) -> None:
        given: dict[str, Any] = dict(_EXACT)
        if speculative:
            memory = openvino_genai.SchedulerConfig()
            memory.cache_size = 1
            given["scheduler_config"] = memory
            if "max_ngram_size" in speculative:
                given["prompt_lookup"] = True
            else:
                draft = openvino_genai.draft_model(str(pair / "draft"), "CPU", **_EXACT)
                given["draft_model"] = draft
        self.pipeline = openvino_genai.LLMPipeline(str(pair / "target"), "CPU", **given)
        self.speculative, self.totals, self.sizes = speculative, Counter(), []

    def write(
        self, prompts: Sequence[Sequence[int]], length: int, temperature: float, seed: int
    ) -> list[list[int]]:
        """Write texts."""
        texts = []
        for i, prompt in enumerate(prompts):
            given = openvino_genai.GenerationConfig()
            given.max_new_tokens, given.ignore_eos = length, True
            if temperature > 0:
                given.do_sample, given.temperature, given.rng_seed = True, temperature, seed + i
                given.top_k, given.top_p = tiny.pair.VOCABULARY, 1.0
            for name, value in self.speculative.items():
                setattr(given, name, value)
            ids = np.array([prompt], dtype=np.int64)
            inputs = (openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids)))
            found = self.pipeline.generate(openvino_genai.TokenizedInputs(*inputs), given)
            texts.append(list(found.tokens[0]))
            if self.speculative and found.extended_perf_metrics is not None:
                told = found.extended_perf_metrics
                self.totals.update({key: getattr(told, word)() for key, word in _TOTALS.items()})
                self.sizes = list(told.main_model_metrics.raw_metrics.m_batch_sizes)
                self.totals["rounds"] += len(self.sizes) - 1
        return texts

    def told(self) -> dict[str, Any]:
        """Tell the totals."""
        return {**self.totals, "raw": f"m_batch_sizes of the last request: {self.sizes}"}


def _with(**speculative: Any) -> recording.Open:
    return lambda pair, drafting: Loaded(pair, **(speculative if drafting else {}))


CASES = (
    *(
        recording.Case(
            name="draft model",
            rule="rejection",
            drafts=drafts,
            options=f"num_assistant_tokens={drafts}, float32",
            open=_with(num_assistant_tokens=drafts),
        )
        for drafts in (1, 4)
    ),
    recording.Case(
        name="prompt lookup",
        rule="match-text",
        drafts=4,
        options="num_assistant_tokens=4, max_ngram_size=2, float32",
        open=_with(num_assistant_tokens=4, max_ngram_size=2),
    ),
)

if __name__ == "__main__":
    recording.run(PACKAGES, CASES, export)
