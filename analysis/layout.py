"""Where things lie: the shipped pair, and the files in a run's folder (docs/runs.md)."""

from __future__ import annotations

from pathlib import Path

SHIPPED_PAIR = Path(__file__).resolve().parent / "pair"

MANIFEST = "manifest.json"
SHARDS = "shards"
LOGITS = "logits"
PROMPTS = "prompts.parquet"
TREES = "trees.json"
LOCK = ".lock"
