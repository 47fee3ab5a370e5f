"""Hugging Face transformers: assisted generation and prompt lookup."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from evidence.engines import recording, tiny

PACKAGES = ("numpy==2.4.6", "torch==2.13.0", "transformers==5.23.0")

transformers.logging.set_verbosity_error()


class Loaded:
    """The target and what `generate` is given beside it."""

    def __init__(self, pair: Path, *, drafts: int = 0, lookup: int = 0) -> None:
        self.target, draft = (
            transformers.LlamaForCausalLM.from_pretrained(pair / role).eval()
            for role in ("target", "draft")
        )
        self.calls = 0
        self.target.register_forward_hook(self._count)
        self.given: dict[str, Any] = {}
        if drafts:
            draft.generation_config.num_assistant_tokens = drafts
            draft.generation_config.num_assistant_tokens_schedule = "constant"
            draft.generation_config.assistant_confidence_threshold = 0.0
            self.given["assistant_model"] = draft
        if lookup:
            self.given |= {"prompt_lookup_num_tokens": lookup, "max_matching_ngram_size": 2}

    def _count(self, *_: object) -> None:
        self.calls += 1

    def write(
        self, prompts: Sequence[Sequence[int]], length: int, temperature: float, seed: int
    ) -> list[list[int]]:
        """Write texts."""
        texts = []
        for i, prompt in enumerate(prompts):
            torch.manual_seed(seed + i)
            ids = torch.tensor([list(prompt)])
            sampling = {"temperature": temperature, "top_k": 0, "top_p": 1.0}
            text = self.target.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                pad_token_id=3,
                max_new_tokens=length,
                do_sample=temperature > 0,
                **(sampling if temperature > 0 else {}),
                **self.given,
            )
            texts.append(text[0, len(prompt) :].tolist())
        return texts

    def told(self) -> dict[str, Any]:
        """Tell the totals."""
        return {"rounds": self.calls}  # the engine itself counts nothing


CASES = (
    *(
        recording.Case(
            name="assistant model",
            rule="rejection-squared",
            drafts=drafts,
            options=f'num_assistant_tokens={drafts}, "constant", no threshold',
            first="step",
            texts=recording.TEXTS // 4,
            open=lambda pair, on, drafts=drafts: Loaded(pair, drafts=drafts if on else 0),
        )
        for drafts in (1, 4)
    ),
    recording.Case(
        name="prompt lookup",
        rule="match-text",
        drafts=4,
        options="prompt_lookup_num_tokens=4, max_matching_ngram_size=2",
        first="step",
        texts=recording.TEXTS // 4,
        open=lambda pair, on: Loaded(pair, lookup=4 if on else 0),
    ),
)

if __name__ == "__main__":
    torch.set_num_threads(1)
    recording.run(PACKAGES, CASES, tiny.pair.write_folder)
