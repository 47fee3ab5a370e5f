"""MLX-LM on a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.generate import generate_step, speculative_generate_step
from mlx_lm.sample_utils import make_sampler
from mlx_lm.utils import load_model

from evidence.engines import recording, tiny

PACKAGES = ("numpy==2.4.6", "mlx[cpu]==0.32.4", "mlx-lm==0.32.2")


class Counted:
    """A model that counts its calls."""

    def __init__(self, model: Any) -> None:
        self.model, self.layers, self.calls = model, model.layers, 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model."""
        self.calls += 1
        return self.model(*args, **kwargs)


class Loaded:
    """Two models and the generator that `stream_generate` runs."""

    def __init__(self, pair: Path, drafts: int) -> None:
        self.target = Counted(load_model(pair / "target")[0])
        self.draft = Counted(load_model(pair / "draft")[0])
        self.drafts, self.accepted, self.requests = drafts, 0, 0

    def write(
        self, prompts: Sequence[Sequence[int]], length: int, temperature: float, seed: int
    ) -> list[list[int]]:
        """Write texts."""
        texts = []
        for i, prompt in enumerate(prompts):
            mx.random.seed(seed + i)
            given = {"max_tokens": length, "sampler": make_sampler(temp=temperature)}
            ids = mx.array(list(prompt))
            if self.drafts:
                found = speculative_generate_step(
                    ids, self.target, self.draft, num_draft_tokens=self.drafts, **given
                )
            else:
                found = ((*item, False) for item in generate_step(ids, self.target, **given))
            pieces = list(found)
            texts.append([int(token) for token, _, _ in pieces])
            self.accepted += sum(drafted for _, _, drafted in pieces)
            self.requests += 1
        return texts

    def told(self) -> dict[str, Any]:
        """Tell the totals."""
        # a prompt's tokens but the last are read in a call of their own by both models
        return {
            "accepted": self.accepted,
            "drafted": self.draft.calls - self.requests,
            "rounds": self.target.calls - self.requests,
            "raw": "from_draft of every token",
        }


CASES = tuple(
    recording.Case(
        name="draft model",
        rule="match-sampled",
        drafts=drafts,
        options=f"num_draft_tokens={drafts}",
        first="step",
        texts=recording.TEXTS // 2,
        open=lambda pair, drafting, drafts=drafts: Loaded(pair, drafts if drafting else 0),
    )
    for drafts in (2, 4)
)

if __name__ == "__main__":
    recording.run(PACKAGES, CASES, tiny.pair.write_folder)
