"""onnxruntime-genai on a CPU."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime_genai

from evidence.engines import recording, tiny

PACKAGES = ("numpy==2.4.6", "onnx==1.23.2", "onnxruntime==1.32.0", "onnxruntime-genai==0.18.0")

_TOTALS = {
    "tokens": "tokens_emitted",
    "steps": "rounds",
    "drafted": "draft_tokens_proposed",
    "accepted": "draft_tokens_accepted",
}
_REST = "standard_fallback_steps"
_STATES = "model.norm.out"


def _decoder(role: str, **states: dict[str, str]) -> dict[str, Any]:
    """Describe a file; `states` adds names to its inputs or outputs."""
    parts = ("key", "value")
    return {
        "session_options": {"provider_options": [], "intra_op_num_threads": 1},
        "filename": f"{role}.onnx",
        "head_size": tiny.pair.WIDTH // tiny.pair.HEADS,
        "hidden_size": tiny.pair.WIDTH,
        "num_attention_heads": tiny.pair.HEADS,
        "num_hidden_layers": 1,
        "num_key_value_heads": tiny.pair.HEADS,
        "inputs": {"input_ids": "input_ids", "attention_mask": "attention_mask"}
        | {f"past_{part}_names": f"past_key_values.%d.{part}" for part in parts}
        | states.get("inputs", {}),
        "outputs": {"logits": "logits"}
        | {f"present_{part}_names": f"present.%d.{part}" for part in parts}
        | states.get("outputs", {}),
    }


def _model(pair: Path, decoder: dict[str, Any], **others: Any) -> Any:
    """Load a model by a `genai_config.json`, which is read once."""
    model = {
        "type": "llama",
        "vocab_size": tiny.pair.VOCABULARY,
        "context_length": tiny.pair.CONTEXT,
        "bos_token_id": tiny.pair.BOS,
        "eos_token_id": tiny.pair.EOS,
        "pad_token_id": 3,
        "decoder": decoder,
        **others,
    }
    search = {"past_present_share_buffer": False, "max_length": tiny.pair.CONTEXT}
    (pair / "genai_config.json").write_text(json.dumps({"model": model, "search": search}))
    return onnxruntime_genai.Model(str(pair))


class Loaded:
    """A target, with a draft model by its configuration or with a head beside it."""

    def __init__(self, pair: Path, drafter: str = "", **speculative: int) -> None:
        self.head = None
        if drafter == "draft":
            self.model = _model(pair, _decoder("target"), draft=_decoder("draft"))
        elif drafter == "head":
            out = {"hidden_states": _STATES}
            mtp = {"main_hidden_states": _STATES, "outputs": out}
            self.model = _model(pair, _decoder("target", outputs=out), mtp=mtp)
            self.head = _model(pair, _decoder("head", inputs={"hidden_states": "hidden_states"}))
        else:
            self.model = _model(pair, _decoder("target"))
        self.speculative, self.totals, self.last = speculative, Counter(), {}

    def write(
        self, prompts: Sequence[Sequence[int]], length: int, temperature: float, seed: int
    ) -> list[list[int]]:
        """Write texts."""
        texts = []
        for i, prompt in enumerate(prompts):
            given = onnxruntime_genai.GeneratorParams(self.model)
            given.set_search_options(max_length=len(prompt) + length, random_seed=seed + i)
            if temperature > 0:
                given.set_search_options(
                    do_sample=True, temperature=temperature, top_k=tiny.pair.VOCABULARY, top_p=1.0
                )
            if self.speculative:
                given.set_speculative_options(**self.speculative)
            if self.head:
                run = onnxruntime_genai.MtpGenerator(self.model, self.head, given)
            else:
                run = onnxruntime_genai.Generator(self.model, given)
            run.append_tokens(np.array(prompt, dtype=np.int32))
            while not run.is_done():
                run.generate_next_token()
            text = run.get_sequence() if self.head else run.get_sequence(0)
            texts.append(text.tolist()[len(prompt) :])
            if self.speculative:
                self.last = run.get_stats() if self.head else run.get_speculative_stats()
                self.totals.update({key: self.last[word] for key, word in _TOTALS.items()})
                self.totals["rounds"] += self.last["rounds"] + self.last[_REST]
                self.totals["calls"] += self.last["target_forward_passes"] + self.last[_REST]
        return texts

    def told(self) -> dict[str, Any]:
        """Tell the totals."""
        shown = (*_TOTALS.values(), _REST, "draft_tokens_evaluated", "acceptance_rate")
        return {**self.totals, "raw": {word: self.last.get(word) for word in shown}}


def _write(path: Path, seed: int, attention: float) -> None:
    """Write a model, and a head that drafts as the draft model does."""
    tiny.write_onnx(path, seed, attention)
    if path.name == "draft":
        tiny.write_onnx(path.with_name("head"), seed, attention, head=True)


def _with(drafter: str = "", **speculative: int) -> recording.Open:
    return lambda pair, drafting: Loaded(pair, drafter, **speculative) if drafting else Loaded(pair)


CASES = (
    *(
        recording.Case(
            name="draft model",
            rule="rejection",
            drafts=drafts,
            options=f"model.draft, max_draft_tokens={drafts}",
            first="step",
            open=_with("draft", max_draft_tokens=drafts),
        )
        for drafts in (1, 4)
    ),
    recording.Case(
        name="draft model, adaptive",
        rule="rejection-adaptive",
        drafts=4,
        options="max_draft_tokens=4, min_adaptive_k=1",
        first="step",
        open=_with("draft", max_draft_tokens=4, min_adaptive_k=1),
    ),
    recording.Case(
        name="n-grams",
        rule="match-text",
        drafts=4,
        options="ngram_size=2, max_draft_tokens=4",
        first="step",
        open=_with(ngram_size=2, max_draft_tokens=4),
    ),
    *(
        recording.Case(
            name="MTP head",
            rule="rejection",
            drafts=drafts,
            options=f"MtpGenerator, max_draft_tokens={drafts}",
            open=_with("head", max_draft_tokens=drafts),
        )
        for drafts in (1, 4)
    ),
)

if __name__ == "__main__":
    onnxruntime_genai.disable_telemetry_events()
    recording.run(PACKAGES, CASES, _write)
