"""What several shims need: laws along tokens, greedy texts, models, batches, single files."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import torch

from evidence.public_code.checkouts import load
from evidence.public_code.toys import rows
from otm.audit import as_hf
from otm.audit.hugging_face import HfCache

HEAT = 0.5
"""The temperature of the rows that name one of 1/2."""


@functools.cache
def load_file(name: str, path: str, **given: Any) -> Any:
    """Load a file of a package that as a whole cannot be imported here."""
    found = importlib.util.find_spec(name)
    assert found is not None and found.origin is not None
    return load(Path(found.origin).parent, path, **given)


def scores(law: Any, temperature: float = 1.0) -> Any:
    """Return the logits of a law, finite ones."""
    return np.log(np.maximum(law, 1e-30)) * temperature


def row_by_row(verify: Any, draft: Any, target: Any, drafts: Any) -> Any:
    """Have the rows of a batch verified one by one, −1 behind their ends."""
    written = np.full((drafts.shape[0], drafts.shape[1] + 1), -1)
    for row, given in enumerate(zip(draft, target, drafts.tolist(), strict=True)):
        text = verify(*given)
        written[row, : len(text)] = text
    return written


def laws(model: Any, tokens: list[int]) -> torch.Tensor:
    """Return the laws `(1, n + 1, V)` of a model along tokens."""
    return rows([model.next(tokens[:i]) for i in range(len(tokens) + 1)])[0]


def likeliest(model: Any, count: int, after: tuple[int, ...] = ()) -> list[int]:
    """Return the greedy text of a model after these tokens."""
    text = list(after)
    for _ in range(count):
        text.append(int(np.argmax(model.next(text))))
    return text[len(after) :]


def models(draft: Any, target: Any, temperature: float = HEAT) -> tuple[Any, Any]:
    """Return both models with the face of transformers'."""
    return as_hf(draft, temperature=temperature), as_hf(target, temperature=temperature)


def empty_cache() -> HfCache:
    """Make a cache of `as_hf`, for code that makes its own."""
    return HfCache(torch.zeros((1, 0, 2), dtype=torch.int64))


def sampler() -> Any:
    """Return economize's sampler, drawing from torch's own generator rather than from a seed."""
    from economize.decoding import TopPSampler

    made = TopPSampler()
    made.generator_for = lambda device: None
    return made
