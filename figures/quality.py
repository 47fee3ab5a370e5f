"""Tokens per call against the draft's overlap, where the target is sure and where not.

From the records of `otm steps --nodes 64 --blur …` on the shipped pair: drafts that
are the target with noise on its logits, after all contexts, and after the thirds of contexts where
the target's continuations have the lowest and the highest entropy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from figures import nodes
from figures.paths import DATA
from figures.work import Work

FILES = {
    "lowest third of entropy": ("nodes_low",),
    "all contexts": ("nodes_blur_1.2", "nodes_blur_0.8", "nodes_blur_0.4"),
    "highest third of entropy": ("nodes_high",),
}
"""The records of each panel, by kind of contexts."""

Record = dict[str, Any]


def records(files: Mapping[str, Sequence[str]] = FILES) -> dict[str, list[Record]]:
    """Return the existing committed records by panel."""
    return {
        title: [json.loads((DATA / f"{name}.json").read_text(encoding="utf-8")) for name in names]
        for title, names in files.items()
        if all((DATA / f"{name}.json").is_file() for name in names)
    }


def tables(found: list[Record]) -> list[Record]:
    """Return the tables of some records by rising overlap."""
    every = [table for record in found for table in record["tables"]]
    return sorted(every, key=lambda table: float(table["overlap"]))


def compute(work: Work) -> dict[str, Any]:
    """Return the tables by contexts."""
    found = records()
    work.tick()
    return {
        "contexts": {title: tables(each) for title, each in found.items()},
        "captured": {title: each[0]["manifest"] for title, each in found.items()},
    }


def draw(data: dict[str, Any]) -> Figure:
    """Draw a panel for each kind of contexts, with one legend for all."""
    canvas = Figure(figsize=(2.75 * len(data["contexts"]), 3.9), layout="constrained")
    panels = canvas.subplots(1, len(data["contexts"]), sharex=True, sharey=True, squeeze=False)[0]
    every = [table for found in data["contexts"].values() for table in found]
    named = set.intersection(*({row["name"] for row in table["rows"]} for table in every))
    for panel, (title, found) in zip(panels, data["contexts"].items(), strict=True):
        nodes.lines(
            panel,
            [
                (table["overlap"], row)
                for table in found
                for row in table["rows"]
                if row["nodes"] == nodes.NODES and row["name"] in named
            ],
        )
        panel.set_title(f"{title}, {found[0]['entropy']:.1f} nats", fontsize=9)
        panel.set_xlabel("overlap Σ min(p, q) of the draft")
    panels[0].set_ylabel(f"tokens per call, {nodes.NODES} nodes")
    nodes.legend(canvas, panels[0])
    return canvas


def message(data: dict[str, Any]) -> str:
    """Return the headline of the picture, a sentence with numbers from the data."""
    ends: dict[str, list[float]] = {nodes.LIKELIEST: [], nodes.NOISE_TREE: []}
    for found in data["contexts"].values():
        for row in found[-1]["rows"]:
            if row["nodes"] == nodes.NODES and row["name"] in ends:
                ends[row["name"]].append(row["mean"])
    usual, noise = (f"{min(means):.1f} to {max(means):.1f}" for means in ends.values())
    return (
        f"Even the best draft gives the likeliest tree {usual} tokens a call, by the target's "
        f"entropy; on shared noise {noise}"
    )
