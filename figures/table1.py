"""Tables 1 and 3 of SpecTr on each pair: relative latency of one pass over length × batch.

Everything is relative to the target's pass over four tokens of one sequence. On an accelerator with
spare arithmetic the table is flat; on a CPU it is not, and drafting more costs more.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.captures import by_pair
from figures.work import Work
from otm._display import drawing


def compute(work: Work) -> dict[str, Any]:
    """Return the committed results of `otm latency`."""
    work.tick()
    return by_pair("latency", _kept)


def _kept(record: dict[str, Any]) -> dict[str, Any]:
    kept = ("lengths", "batches", "nodes", "relative", "tree", "context", "rounds")
    manifest = record["manifest"]
    machine = {
        "device": manifest["device"],
        "threads": manifest["threads"],
        "load": manifest["load average before"][0],
    }
    return {name: record[name] for name in kept} | machine


def message(data: dict[str, Any]) -> str:
    """Return the headline of the picture, a sentence with numbers from the data."""
    said = [
        f"{pair['relative']['target'][-1][-1]['median']:.1f} times on the {pair['pair']}"
        for pair in data["pairs"]
    ]
    one = data["pairs"][0]
    return (
        f"On a CPU parallel checking is not free: {one['lengths'][-1]} tokens × batch "
        f"{one['batches'][-1]} take the target as long as 4 × 1 " + ", ".join(said)
    )


def draw(data: dict[str, Any]) -> Figure:
    """Draw, for each pair, a table per model, and seconds against the number of tree nodes."""
    pairs = data["pairs"]
    canvas = Figure(figsize=(9.0, 3.5 * len(pairs) + 0.4), layout="constrained")
    rows = canvas.subplots(len(pairs), 3, width_ratios=(1.0, 1.0, 1.1), squeeze=False)
    for axes, pair in zip(rows, pairs, strict=True):
        for one, side in zip(axes[:2], ("target", "draft"), strict=True):
            _table(one, pair, side)
        axes[0].set_ylabel(f"{pair['pair']}\nlength, tokens", fontsize=9)
        _nodes(axes[2], pair)
    drawing.note(
        canvas,
        "\n".join(
            f"{pair['pair']}: after a cached context of {pair['context']} tokens, "
            f"{pair['device']}, {pair['threads']} thread, load "
            f"{pair['load']:g}, median of {pair['rounds']} interleaved rounds; small: quartiles"
            for pair in pairs
        ),
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
    axes.set_ylabel("length, tokens", fontsize=9)
    axes.set_title(f"{side}, relative to the target at 4 × 1", fontsize=9)
    axes.grid(visible=False)


def _nodes(axes: Axes, data: dict[str, Any]) -> None:
    for number, side in enumerate(("target", "draft")):
        seconds = data["tree"][side]
        rows = [
            {"mean": 1e3 * s["median"], "low": 1e3 * s["low"], "high": 1e3 * s["high"]}
            for s in seconds
        ]
        colour, marker = drawing.PALETTE[number], drawing.MARKERS[number]
        axes.plot(
            data["nodes"],
            [row["mean"] for row in rows],
            color=colour,
            marker=marker,
            mfc="white",
            label=side,
        )
        drawing.points(axes, data["nodes"], rows, colour=colour, marker=marker)
    axes.set_xscale("symlog", base=2, linthresh=1)
    axes.set_xticks(data["nodes"], [str(n) for n in data["nodes"]])
    axes.set_ylim(bottom=0.0)
    axes.set_xlabel("drafted tokens in the tree")
    axes.set_ylabel("milliseconds per pass")
    axes.set_title("one pass over a tree", fontsize=9)
    axes.legend(loc="upper left")
