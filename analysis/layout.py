"""What the files in a run's folder are called (docs/runs.md)."""

from __future__ import annotations

MANIFEST = "manifest.json"
SHARDS = "shards"
LOGITS = "logits"
PROMPTS = "prompts.parquet"
LOCK = ".lock"
