"""A small random trace, for tests that need no models, and edits of records."""

import json
from pathlib import Path

import numpy as np

from analysis.run.settings import Settings
from analysis.trace.traces import top_log_probabilities, write_trace

SETTINGS = Settings(positions="trace", k=(1, 2), shard_prompts=8)


def write_small_trace(path: Path, *, positions: int, seed: int = 0) -> Path:
    """Write top-8 log-probabilities of random pairs on 64 tokens, ten positions per prompt."""
    rng = np.random.default_rng(seed)
    draft, target = (np.log(rng.dirichlet(np.full(64, 0.5), positions) + 1e-12) for _ in range(2))
    draft, target = (z - np.log(np.exp(z).sum(-1, keepdims=True)) for z in (draft, target))
    write_trace(
        path,
        draft=top_log_probabilities(draft, 8),
        target=top_log_probabilities(target, 8),
        prompt=np.arange(positions) // 10,
        position=np.arange(positions) % 10,
        num_tokens=64,
        metadata={"draft_model": "random"},
    )
    return path


def edit_json(path: Path, **changes: object) -> None:
    """Overwrite fields of the JSON object in a file."""
    record = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(record | changes), encoding="utf-8")
