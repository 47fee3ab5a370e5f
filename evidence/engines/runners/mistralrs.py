"""mistral.rs on a CPU, in the last of its Python packages that takes a draft model."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

os.environ["RUST_LOG"] = "off"

import mistralrs  # reads the environment when it is imported

from evidence.engines import recording, tiny

PACKAGES = ("numpy==2.4.6", "mistralrs==0.6.0")

_DECODER = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}


def export(folder: Path, seed: int, attention: float) -> None:
    """Write a model with a tokenizer whose decoder the engine knows."""
    path = tiny.pair.write_folder(folder, seed, attention) / "tokenizer.json"
    told = json.loads(path.read_text())
    path.write_text(json.dumps(told | {"decoder": _DECODER | {"use_regex": False}}))


class Loaded:
    """A runner; requests have no seed here, and a runner on a CPU has none either."""

    alive: ClassVar[list[Any]] = []
    """All runners: one that is freed takes the next one's engine with it."""

    def __init__(self, pair: Path, drafts: int) -> None:
        target, draft = (
            mistralrs.Which.Plain(
                model_id=str(pair / role),
                arch=mistralrs.Architecture.Llama,
                dtype=mistralrs.ModelDType.F32,
            )
            for role in ("target", "draft")
        )
        given = {"which_draft": draft, "speculative_gamma": drafts} if drafts else {}
        self.runner = mistralrs.Runner(target, no_paged_attn=True, prefix_cache_n=0, **given)
        self.alive.append(self.runner)

    def write(
        self, prompts: Sequence[Sequence[int]], length: int, temperature: float, seed: int
    ) -> list[list[int]]:
        """Write texts."""
        pieces, texts = tiny.pair.pieces(), []
        for prompt in prompts:
            request = mistralrs.CompletionRequest(
                prompt="".join(pieces[token] for token in prompt),
                model="",
                max_tokens=length - 1,  # a text has one token more
                temperature=temperature,
            )
            found = self.runner.send_completion_request(request).choices[0].text
            texts.append([pieces.index(letter) for letter in found])
        return texts

    def told(self) -> dict[str, Any]:
        """Tell the totals: there are none."""
        return {}


# with two drafts or more the second pair writes nothing
CASES = (
    recording.Case(
        name="draft model",
        rule="greedy",
        drafts=1,
        options="which_draft, speculative_gamma=1",
        texts=recording.TEXTS // 4,
        open=lambda pair, drafting: Loaded(pair, int(drafting)),
    ),
)

if __name__ == "__main__":
    recording.run(PACKAGES, CASES, export)
