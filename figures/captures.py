"""Committed results of experiments on models, read for every pair that has results."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from figures.paths import DATA

PAIRS = {"shipped pair": "", "SmolLM2-135M-Instruct": "-smollm2"}
"""Suffix of a pair's file names, by the pair's title."""


def captures(name: str) -> dict[str, dict[str, Any]]:
    """Read `NAME.json` of all pairs that have the file, by title, the shipped pair first."""
    files = {title: DATA / f"{name}{suffix}.json" for title, suffix in PAIRS.items()}
    return {
        title: json.loads(path.read_text(encoding="utf-8"))
        for title, path in files.items()
        if path.is_file()
    }


def by_pair(name: str, of_pair: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """Return a figure's extract from each pair's record, with the manifests of all."""
    records = captures(name)
    return {
        "pairs": [{"pair": title} | of_pair(record) for title, record in records.items()],
        "captured": {title: record["manifest"] for title, record in records.items()},
    }
