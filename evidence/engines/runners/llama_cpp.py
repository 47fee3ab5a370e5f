"""llama.cpp, in this process, by xllamacpp."""

from __future__ import annotations

import multiprocessing.pool
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import xllamacpp

from evidence.engines import recording, tiny

PACKAGES = ("numpy==2.4.6", "gguf==0.19.0", "xllamacpp==2026.10.11549")

_KINDS = xllamacpp.common_speculative_type
_TOTALS = {
    "tokens": "tokens_predicted_total",
    "steps": "spec_decode_num_drafts_total",
    "drafted": "spec_decode_num_draft_tokens_total",
    "accepted": "spec_decode_num_accepted_tokens_total",
}


class Server:
    """A server that answers so many requests at once, its sampler's filters off."""

    def __init__(
        self,
        pair: Path,
        *kinds: Any,
        target: str = "target",
        drafts: int = 0,
        at_once: int = 1,
        **settings: Any,
    ) -> None:
        given = xllamacpp.CommonParams()
        given.model.path = str(pair / target)
        given.n_ctx, given.n_parallel = tiny.pair.CONTEXT * at_once, at_once
        given.warmup = False
        given.endpoint_metrics, given.verbosity = True, -1
        for threads in (given.cpuparams, given.cpuparams_batch):
            threads.n_threads = 1
        given.speculative.types = list(kinds) or [_KINDS.COMMON_SPECULATIVE_TYPE_NONE]
        given.speculative.draft.n_max = drafts
        for name, value in settings.items():
            setattr(given.speculative.draft, name, value)
        if _KINDS.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE in kinds:
            given.speculative.draft.mparams.path = str(pair / "draft")
            given.speculative.draft.cpuparams.n_threads = 1
            given.speculative.draft.cpuparams_batch.n_threads = 1
        given.speculative.ngram_simple.size_n, given.speculative.ngram_simple.size_m = 2, drafts
        self.server, self.requests, self.timings = xllamacpp.Server(given), 0, {}
        self.at_once = at_once

    def write(
        self, prompts: Sequence[Sequence[int]], length: int, temperature: float, seed: int
    ) -> list[list[int]]:
        """Write texts."""

        def ask(numbered: tuple[int, Sequence[int]]) -> Any:
            number, prompt = numbered
            return self.server.handle_completions(
                {
                    "prompt": list(prompt),
                    "n_predict": length,
                    "temperature": temperature,
                    "seed": seed + number,
                    "top_k": 0,
                    "top_p": 1.0,
                    "min_p": 0.0,
                    "cache_prompt": False,
                }
            )

        with multiprocessing.pool.ThreadPool(self.at_once) as requests:
            found = requests.map(ask, enumerate(prompts), chunksize=1)
        self.timings, self.requests = found[-1]["timings"], self.requests + len(found)
        return [self.spelled(one["choices"][0]["text"]) for one in found]

    def spelled(self, text: str) -> list[int]:
        """Return the tokens of a text, a letter each."""
        return [tiny.pair.pieces().index(letter) for letter in text]

    def told(self) -> dict[str, Any]:
        """Tell the totals."""
        page = str(self.server.handle_metrics())
        totals = {name: int(n) for name, n in re.findall(r"^llamacpp:(\w+) (\d+)$", page, re.M)}
        # where requests share calls, these are no steps of any
        rounds = totals["n_decode_total"] - self.requests if self.at_once == 1 else None
        told = {name: totals.get(word) for name, word in _TOTALS.items()}
        return told | {"rounds": rounds, "raw": self.timings}


def _write(path: Path, seed: int, attention: float) -> None:
    """Write a model, and beside the target the same with a head."""
    tiny.pair.write_gguf(path, seed, attention)
    if path.name == "target":
        tiny.write_head_gguf(path.with_name("target_head"), attention)


def _with(*kinds: str, **settings: Any) -> recording.Open:
    numbers = [getattr(_KINDS, f"COMMON_SPECULATIVE_TYPE_{kind}") for kind in kinds]
    return lambda pair, drafting: Server(pair, *(numbers if drafting else ()), **settings)


CASES = (
    *(
        recording.Case(
            name="draft model",
            rule="match-argmax",
            drafts=drafts,
            options=f"--spec-draft-n-max {drafts}",
            open=_with("DRAFT_SIMPLE", drafts=drafts),
        )
        for drafts in (1, 4)
    ),
    recording.Case(
        name="draft model, probabilistic",
        rule="rejection-top-10",
        drafts=4,
        options="--spec-draft-n-max 4 --spec-draft-sampling probabilistic",
        open=_with("DRAFT_SIMPLE", drafts=4, probabilistic=True),
    ),
    recording.Case(
        name="draft model, probabilistic, p-min",
        rule="rejection-adaptive",
        drafts=4,
        options="--spec-draft-n-max 4 --spec-draft-sampling probabilistic --spec-draft-p-min 0.2",
        open=_with("DRAFT_SIMPLE", drafts=4, probabilistic=True, p_min=0.2),
        temperatures=(1.0,),
    ),
    recording.Case(
        name="draft model, probabilistic, four requests at once",
        rule="rejection-top-10",
        drafts=4,
        options="--parallel 4 --spec-draft-n-max 4 --spec-draft-sampling probabilistic",
        open=_with("DRAFT_SIMPLE", drafts=4, probabilistic=True, at_once=4),
    ),
    recording.Case(
        name="n-grams",
        rule="match-text",
        drafts=4,
        options="--spec-type ngram-simple, n-grams of 2, drafts of 4",
        open=_with("NGRAM_SIMPLE", drafts=4),
    ),
    recording.Case(
        name="n-grams before a draft model",
        rule="match-text",
        drafts=4,
        options="--spec-type ngram-simple,draft-simple",
        open=_with("NGRAM_SIMPLE", "DRAFT_SIMPLE", drafts=4),
        temperatures=(0.0,),
    ),
    recording.Case(
        name="MTP head",
        rule="match-argmax",
        drafts=4,
        options="--spec-type draft-mtp --spec-draft-n-max 4",
        open=_with("DRAFT_MTP", target="target_head", drafts=4),
    ),
    recording.Case(
        name="MTP head, probabilistic",
        rule="rejection-top-10",
        drafts=4,
        options="--spec-type draft-mtp --spec-draft-n-max 4 --spec-draft-sampling probabilistic",
        open=_with("DRAFT_MTP", target="target_head", drafts=4, probabilistic=True),
        temperatures=(1.0, 0.7),
    ),
)

if __name__ == "__main__":
    recording.run(PACKAGES, CASES, _write)
