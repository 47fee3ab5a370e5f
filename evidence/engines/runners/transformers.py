"""Hugging Face transformers: assisted generation, with one tokenizer and two, and prompt lookup."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers

from evidence.engines import recording, tiny

PACKAGES = ("numpy==2.4.6", "torch==2.13.0", "transformers==5.23.0")

ORDER = (*range(4), *range(tiny.pair.VOCABULARY - 1, 3, -1), 0)
"""The tokens of a draft that has another tokenizer: letters from the last to the first, and one
token more, since vocabularies of one size are taken for the same."""

transformers.logging.set_verbosity_error()


class Loaded:
    """The target and what `generate` is given beside it."""

    def __init__(
        self, pair: Path, *, drafts: int = 0, lookup: int = 0, reordered: bool = False
    ) -> None:
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
        if reordered:
            draft.config.vocab_size = len(ORDER)
            for layer in (draft.get_input_embeddings(), draft.get_output_embeddings()):
                layer.weight.data = layer.weight.data[list(ORDER)]
            pieces = tiny.pair.pieces()
            self.given["tokenizer"] = self._tokenizer(pair, pieces)
            named = [*(pieces[token] for token in ORDER[:-1]), "one more"]
            self.given["assistant_tokenizer"] = self._tokenizer(pair, named)
        if lookup:
            self.given |= {"prompt_lookup_num_tokens": lookup, "max_matching_ngram_size": 2}

    @staticmethod
    def _tokenizer(pair: Path, pieces: Sequence[str]) -> Any:
        told = json.loads((pair / "draft" / "tokenizer.json").read_text())
        told["model"]["vocab"] = {piece: i for i, piece in enumerate(pieces)}
        return transformers.PreTrainedTokenizerFast(
            tokenizer_object=tokenizers.Tokenizer.from_str(json.dumps(told)),
            bos_token="<s>",
            eos_token="</s>",
            unk_token="<unk>",
        )

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
    *(
        recording.Case(
            name="assistant model, another tokenizer",
            rule="rejection-squared",
            drafts=drafts,
            options=f'num_assistant_tokens={drafts}, "constant", no threshold, assistant_tokenizer',
            first="step",
            texts=recording.TEXTS // 4,
            open=lambda pair, on, drafts=drafts: Loaded(
                pair, drafts=drafts if on else 0, reordered=on
            ),
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
