"""Tables 1 and 3 of SpecTr on the shipped pair: relative latency of one pass over length × batch.

Everything is relative to the target's pass over four tokens of one sequence. On an accelerator with spare arithmetic the table is
flat; on a CPU it is not, and drafting more costs more.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.paths import DATA
from figures.work import Work
from otm import drawing

TITLE = "Relative latency"
CAPTURE = DATA / "latency.json"


def compute(work: Work) -> dict[str, Any]:
    """Return the committed results of `python -m analysis latency`."""
    record = json.loads(CAPTURE.read_text(encoding="utf-8"))
    work.tick()
    kept = ("lengths", "batches", "nodes", "relative", "tree", "context", "rounds")
    manifest = record["manifest"]
    machine = {"device": manifest["device"], "threads": manifest["threads"]}
    return {name: record[name] for name in kept} | machine | {"captured": manifest}


def draw(data: dict[str, Any]) -> Figure:
    """Draw one table per model and, beside them, seconds against the number of tree nodes."""
    canvas = Figure(figsize=(11.0, 3.9), layout="constrained")
    axes = canvas.subplots(1, 3, width_ratios=(1.0, 1.0, 1.1))
    for one, side in zip(axes[:2], ("target", "draft"), strict=True):
        _table(one, data, side)
    _nodes(axes[2], data)
    canvas.supxlabel(
        f"shipped pair after a cached context of {data['context']} tokens, {data['device']}, {data['threads']} thread, median of "
        f"{data['rounds']} interleaved rounds; small: quartiles",
        fontsize=7.5,
        color="#555555",
    )
    return canvas


def _table(axes: Axes, data: dict[str, Any], side: str) -> None:
    cells = data["relative"][side]
    values = np.array([[cell["median"] for cell in row] for row in cells])
    axes.imshow(values, cmap="Blues", vmin=0.0, vmax=2.0 * float(values.max()), aspect="auto")
    for i, row in enumerate(cells):
        for j, cell in enumerate(row):
            axes.text(j, i - 0.1, f"{cell['median']:.2f}", ha="center", va="center", fontsize=9)
            spread = f"{cell['low']:.2f}–{cell['high']:.2f}"
            axes.text(j, i + 0.28, spread, ha="center", va="center", fontsize=6, color="#444444")
    axes.set_xticks(range(len(data["batches"])), [str(n) for n in data["batches"]])
    axes.set_yticks(range(len(data["lengths"])), [str(n) for n in data["lengths"]])
    axes.set_xlabel("batch")
    axes.set_ylabel("length, tokens")
    axes.set_title(f"{side}, relative to the target at 4 × 1", fontsize=9)
    axes.grid(visible=False)


def _nodes(axes: Axes, data: dict[str, Any]) -> None:
    for number, side in enumerate(("target", "draft")):
        seconds = data["tree"][side]
        rows = [{"mean": 1e3 * s["median"], "low": 1e3 * s["low"], "high": 1e3 * s["high"]} for s in seconds]
        colour, marker = drawing.PALETTE[number], drawing.MARKERS[number]
        axes.plot(data["nodes"], [row["mean"] for row in rows], color=colour, marker=marker, mfc="white", label=side)
        drawing.points(axes, data["nodes"], rows, colour=colour, marker=marker)
    axes.set_xscale("symlog", base=2, linthresh=1)
    axes.set_xticks(data["nodes"], [str(n) for n in data["nodes"]])
    axes.set_ylim(bottom=0.0)
    axes.set_xlabel("drafted tokens in the tree")
    axes.set_ylabel("milliseconds per pass")
    axes.set_title("one pass over a tree", fontsize=9)
    axes.legend(loc="upper left")
