"""Tokens per call against the draft's overlap, by kind of text: code, lists and prose.

From the records of `otm steps --prompts figures/data/prompts_code.jsonl --nodes 64
--blur …` and the like on SmolLM2: its own small draft, which stands by itself, and drafts that are
the target with noise on its logits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures import nodes, quality
from figures.work import Work
from otm._display import drawing

FILES = {kind: (f"kinds_{kind}",) for kind in ("code", "lists", "prose")}
"""The record of each panel, by kind of text."""


def compute(work: Work) -> dict[str, Any]:
    """Return the tables by kind of text."""
    found = quality.records(FILES)
    work.tick()
    return {
        "kinds": {kind: quality.tables(each) for kind, each in found.items()},
        "captured": {kind: each[0]["manifest"] for kind, each in found.items()},
    }


def draw(data: dict[str, Any]) -> Figure:
    """Draw a panel for each kind, with one legend for all."""
    canvas = Figure(figsize=(2.75 * len(data["kinds"]), 3.9), layout="constrained")
    panels = canvas.subplots(1, len(data["kinds"]), sharex=True, sharey=True, squeeze=False)[0]
    for panel, (kind, tables) in zip(panels, data["kinds"].items(), strict=True):
        # The bound is one for the sequences of the record, eight at most, and passed by trees.
        own, *made = [
            [
                (table["overlap"], row)
                for row in table["rows"]
                if row["nodes"] == nodes.NODES and row["name"] != nodes.BOUND
            ]
            for table in tables
        ]
        nodes.lines(panel, [point for points in made for point in points])
        _own_draft(panel, {row["name"]: (at, row) for at, row in own})
        panel.set_title(f"{kind}, {tables[0]['entropy']:.1f} nats", fontsize=10)
        panel.set_xlabel("overlap Σ min(p, q) of the draft")
        panel.set_xlim(0.0, 1.0)
    panels[0].set_ylabel(f"tokens per call, {nodes.NODES} nodes")
    nodes.legend(canvas, panels[0])
    return canvas


def _own_draft(panel: Axes, points: dict[str, tuple[float, dict[str, Any]]]) -> None:
    """Draw the tokens per call of the target's own small draft, with intervals."""
    for name, colour in zip((nodes.LIKELIEST, nodes.NOISE_TREE), _colours(panel), strict=True):
        at, row = points[name]
        ends = [[row["mean"] - row["low"]], [row["high"] - row["mean"]]]
        nudge = 0.012 if name == nodes.NOISE_TREE else -0.012
        panel.errorbar(at + nudge, row["mean"], ends, fmt="D", ms=5, color=colour, capsize=2)
    at, row = points[nodes.NOISE_TREE]
    panel.annotate(
        "its own\nsmall draft",
        (at, row["high"]),
        xytext=(0, 8),
        textcoords="offset points",
        ha="center",
        fontsize=8,
        color=drawing.INK,
    )


def _colours(panel: Axes) -> list[Any]:
    """Return the colours of both trees' lines."""
    drawn = {line.get_label(): line.get_color() for line in panel.get_lines()}
    return [drawn[nodes.SHOWN[name]] for name in (nodes.LIKELIEST, nodes.NOISE_TREE)]


def message(data: dict[str, Any]) -> str:
    """Return the headline of the picture, a sentence with numbers from the data."""
    more: list[tuple[str, str]] = []
    for tables in data["kinds"].values():
        ends = ({row["name"]: row for row in tables[place]["rows"]} for place in (-1, 0))
        best, own = (rows[nodes.LIKELIEST]["less"] for rows in ends)
        more.append((f"{best:.1f}", f"{own:.1f}"))
    overlap = min(tables[-1]["overlap"] for tables in data["kinds"].values())
    kinds, best, own = map(_listed, (data["kinds"], *zip(*more, strict=True)))
    return (
        f"With a good draft (overlap {overlap:.2f} or more) shared noise wins {best} tokens a call "
        f"over the likeliest tree on {kinds}; with the small one {own}"
    )


def _listed(words: Iterable[str]) -> str:
    """Return words with commas, the last after "and"."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
