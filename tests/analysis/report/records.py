"""Records of `latency` and `advise` that reports read."""

import json
from pathlib import Path
from typing import Any


def latency(**change: Any) -> dict[str, Any]:
    """A record of `latency` with draft passes of 2, 3, 5 ms and target passes of 10, 11, 14 ms."""

    def cells(*values: float) -> list[dict[str, float]]:
        return [{"median": 1e-3 * value} for value in values]

    models = {side: {"name": side, "sha256": side[0] * 8} for side in ("draft", "target")}
    tree = {"draft": cells(2, 3, 5), "target": cells(10, 11, 14)}
    return {
        "nodes": [0, 1, 7],
        "tree": tree,
        "manifest": {"device": "a board", "models": models},
    } | change


def written(path: Path, record: Any) -> Path:
    path.write_text(json.dumps(record), encoding="utf-8")
    return path


def advice(**change: Any) -> dict[str, Any]:
    """A record of `advise`: a tree of four at 1.30 × plain and 1.10 × a chain of two."""

    def row(name: str, depth: int, plain: float, chain: float) -> dict[str, Any]:
        return {
            "family": "static tree" if "tree" in name else "chain",
            "name": name,
            "decoder": f"decoder of {name}",
            "nodes": depth + 2,
            "depth": depth,
            "tokens_per_call": 2.25,
            "over_plain": {"value": plain, "low": plain - 0.1, "high": plain + 0.1},
            "over_chain": {"value": chain, "low": None, "high": None},
        }

    tree, chain = row("tree of 4 nodes, depth 2", 2, 1.3, 1.1), row("chain of 2", 2, 1.18, 1.0)
    processing = {"temperature": 0.7, "top_p": 0.9, "top_k": None}
    rest = {
        "chain": [0.001, 0.0, 0.0],
        "K sequences, optimal": [0.002, 0.0, 0.001],
        "static tree": [0.0, 0.004, 0.0],
    }
    return {
        "format": "otm.advice",
        "version": 1,
        "verdict": "speculate",
        "best": tree,
        "chain": chain,
        "rows": [tree, chain],
        "plain": {"seconds_per_token": 0.02},
        "step_model": {"draft": [0.003, 0.001], "target": [[0, 8], [0.018, 0.022]], "rest": rest},
        "measured": {"texts": 9, "prompts": 5, "plans": 77},
        "manifest": {
            "models": {side: {"name": side, "sha256": side} for side in ("draft", "target")},
            "processing": {"draft": processing, "target": processing},
            "device": "a board",
        },
    } | change
