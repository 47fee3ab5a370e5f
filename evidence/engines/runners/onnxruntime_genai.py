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
_SIZES = {
    "head_size": tiny.pair.WIDTH // tiny.pair.HEADS,
    "num_hidden_layers": 1,
    "num_key_value_heads": tiny.pair.HEADS,
}
_PAST = {f"past_{part}_names": f"past_key_values.%d.{part}" for part in ("key", "value")}
_PRESENT = {f"present_{part}_names": f"present.%d.{part}" for part in ("key", "value")}
_OUT = {"hidden_states": "model.norm.out"}
_HEAD = {"main_hidden_states": "model.norm.out", "outputs": _OUT}
_PAGED = ("block_table", "cumulative_sequence_lengths", "past_sequence_lengths")
_BLOCK_SIZE, _BLOCK = 16, 4
"""Tokens of a cache's block, and the tokens that a block drafter drafts."""


def _decoder(role: str, **names: dict[str, str]) -> dict[str, Any]:
    """Describe a file; `names` are added to its inputs or outputs."""
    return {
        "session_options": {"provider_options": [], "intra_op_num_threads": 1},
        "filename": f"{role}.onnx",
        "hidden_size": tiny.pair.WIDTH,
        "num_attention_heads": tiny.pair.HEADS,
        **_SIZES,
        "inputs": {"input_ids": "input_ids", "attention_mask": "attention_mask"}
        | _PAST
        | names.get("inputs", {}),
        "outputs": {"logits": "logits"} | _PRESENT | names.get("outputs", {}),
    }


def _model(pair: Path, decoder: dict[str, Any], *, beside: Any = (), **others: Any) -> Any:
    """Load a model by a `genai_config.json`, which is read once; `beside` the model in it."""
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
    config = {"model": model, "search": search, **dict(beside)}
    (pair / "genai_config.json").write_text(json.dumps(config))
    return onnxruntime_genai.Model(str(pair))


class Loaded:
    """A target, with a draft model by its configuration or with a head beside it."""

    def __init__(self, pair: Path, drafter: str = "", **speculative: int) -> None:
        self.head = None
        if drafter == "draft":
            self.model = _model(pair, _decoder("target"), draft=_decoder("draft"))
        elif drafter == "head":
            self.model = _model(pair, _decoder("target", outputs=_OUT), mtp=_HEAD)
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


def _block_drafter(proposal: str) -> dict[str, Any]:
    """Describe a block drafter (DFlash 2) whose proposals for sampled texts are made thus."""
    rows = ("input_ids", "q_row_map", "qkv_row_map", "block_row_index", "attention_metadata")
    names = ("aux_hidden_states", *rows, *_PAGED)
    lattice = {"candidate_ids": "draft_candidate_ids", "scores": "draft_scores"}
    return {
        "filename": "lattice.onnx",
        "inputs": {name: name for name in names} | _PAST,
        "outputs": lattice | _PRESENT,
        **_SIZES,
        "block_size": _BLOCK + 1,
        "num_draft_tokens": _BLOCK,
        "selector_top_k": tiny.pair.VOCABULARY,
        "mask_token_id": 3,
        "sliding_window": 4 * _BLOCK_SIZE,
        "main_aux_hidden_states": "model.norm.out",
        "sampled_proposal": proposal,
    }


class Served:
    """An engine for requests, with a head or a block drafter by the target's configuration."""

    def __init__(self, pair: Path, drafts: int, proposal: str = "") -> None:
        out = {"aux_hidden_states": "model.norm.out"} if proposal else _OUT
        paged = _decoder("paged_target", inputs={name: name for name in _PAGED}, outputs=out)
        blocks = {"block_size": _BLOCK_SIZE, "num_blocks": 64, "max_batch_size": 1}
        beside: dict[str, Any] = {"engine": {"dynamic_batching": blocks}}
        if proposal:
            drafter = {"dflash2": _block_drafter(proposal)}
        elif drafts:
            drafter = {"mtp": {"filename": "paged_head.onnx", **_SIZES, **_HEAD}}
        else:
            drafter = {}
        if drafts:
            beside["speculative"] = {"max_draft_tokens": drafts}
        self.engine = onnxruntime_genai.Engine(_model(pair, paged, beside=beside, **drafter))
        self.requests = 0

    def write(
        self, prompts: Sequence[Sequence[int]], length: int, temperature: float, seed: int
    ) -> list[list[int]]:
        """Write texts, one request after another."""
        buffer, texts = self.engine.create_event_buffer(16), []
        for i, prompt in enumerate(prompts):
            request = self.engine.create_request()
            turn = onnxruntime_genai.TurnOptions(request)
            turn.set_max_generated_tokens(length)
            turn.set_seed(seed + i)
            if temperature > 0:
                turn.set_do_sample(True)
                turn.set_temperature(temperature)
                turn.set_top_k(tiny.pair.VOCABULARY)
                turn.set_top_p(1.0)
            request.begin_turn(np.array(prompt, dtype=np.int32), turn)
            texts.append([])
            while self.engine.has_pending_requests():
                for event in self.engine.run(buffer):
                    if event.flags & onnxruntime_genai.EngineEventFlags.TOKEN:
                        texts[-1].append(event.token)
            request.close()
        self.requests += len(texts)
        return texts

    def told(self) -> dict[str, Any]:
        """Tell the totals; a prompt's own pass is a pass of the target, too."""
        told = self.engine.get_speculative_stats()
        found = {key: told[word] for key, word in _TOTALS.items() if key != "tokens"}
        return {**found, "rounds": told["target_forward_passes"] - self.requests, "raw": told}


def _write(path: Path, seed: int, attention: float) -> None:
    """Write a model in both forms, and a head and a block drafter that draft as the draft does."""
    tiny.write_onnx(path, seed, attention)
    tiny.write_paged_onnx(path.with_name(f"paged_{path.name}"), seed)
    if path.name == "draft":
        tiny.write_onnx(path.with_name("head"), seed, attention, head=True)
        tiny.write_paged_onnx(path.with_name("paged_head"), seed, head=True)
        tiny.write_lattice_onnx(path.with_name("lattice"), seed, _BLOCK)


def _served(drafts: int, proposal: str = "") -> recording.Open:
    return lambda pair, drafting: Served(pair, drafts, proposal) if drafting else Served(pair, 0)


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
    *(
        recording.Case(
            name="MTP head, requests",
            rule="match-argmax",
            drafts=drafts,
            options=f"Engine, max_draft_tokens={drafts}",
            open=_served(drafts),
        )
        for drafts in (1, 4)
    ),
    *(
        recording.Case(
            name="DFlash 2" + others,
            rule=rule,
            drafts=_BLOCK,
            options=f"model.dflash2, sampled_proposal={proposal}",
            open=_served(_BLOCK, proposal),
        )
        for proposal, others, rule in (
            ("lattice", "", "rejection"),
            ("greedy_path", ", greedy path", "match-argmax"),
        )
    ),
)

if __name__ == "__main__":
    onnxruntime_genai.disable_telemetry_events()
    recording.run(PACKAGES, CASES, _write)
