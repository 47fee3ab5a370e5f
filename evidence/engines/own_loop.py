"""The loop of this library in transformers' `generate`, with a trained pair.

Unlike the runners it imports the library, and runs in the environment of this project.
"""

from __future__ import annotations

from pathlib import Path

import torch

from analysis.kernels.generation import Speculative
from evidence.engines import trained
from evidence.engines.runners.trained import transformers as engine


class Loaded(engine.Loaded):
    """A session whose steps are this library's."""

    def __init__(self, pair: Path, decoder: str) -> None:
        super().__init__(pair, "usual")
        draft = self.given.pop("assistant_model")
        self.given["custom_generate"] = Speculative(
            draft, decoder=decoder, num_drafts=4, length=trained.DRAFTS
        )
        self.write([[1]], 2, 1.0, 0)  # the first text tries both models on a small tree
        self.calls = 0


_BLOCK, _REFINED = "block verification", "refined scores"

CASES = trained.cases(
    Loaded,
    (_BLOCK, _BLOCK, "block", "custom_generate=Speculative(draft, …)"),
    (_REFINED, _REFINED, "refined-scores", "the same, 4 sequences of 4"),
)

if __name__ == "__main__":
    torch.set_num_threads(1)
    trained.run(("torch", "transformers"), CASES)
