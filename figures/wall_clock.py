"""Wall time on one machine: speed-ups predicted by `advise`, beside measured speed-ups.

A row is the best plan of a family within the limits. The bar is the advised speed-up over plain
decoding with its interval, from acceptance along the target's texts and steps that were timed
before; the dot is the speed-up of texts that were then decoded in every way in turns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.captures import by_pair
from figures.work import Work
from otm._display import drawing

ADVISED, MEASURED, SLOWER = drawing.PALETTE[0], "black", "#F3E4DC"


def compute(work: Work) -> dict[str, Any]:
    """Return the committed results of `advise --run --out figures/data/advice.json`."""
    work.tick()
    return by_pair("advice", _kept)


def _kept(record: dict[str, Any]) -> dict[str, Any]:
    plain, *runs = record["run"]
    ran = {one["name"]: one for one in runs}
    rows = [
        {
            "name": row["name"],
            "advised": row["over_plain"],
            "measured": ran[row["decoder"]]["speedup"],
            "tokens": ran[row["decoder"]]["tokens"] / ran[row["decoder"]]["calls"],
            "seconds": {
                "predicted": ran[row["decoder"]]["predicted"],
                "measured": ran[row["decoder"]]["seconds"],
            },
        }
        for row in record["rows"]
    ]
    return {
        "rows": rows,
        "texts": plain["texts"],
        "prompts": record["manifest"]["prompts"]["count"],
        "plain": plain["tokens"] / plain["seconds"],
        "verdict": record["verdict"],
    }


def message(data: dict[str, Any]) -> str:
    """Return the headline of the picture, a sentence with numbers from the data."""
    worst = max(
        abs(row["advised"]["value"] / row["measured"] - 1)
        for pair in data["pairs"]
        for row in pair["rows"]
    )
    return f"The advised speed is the measured one within {100 * worst:.0f} %, for every plan"


def draw(data: dict[str, Any]) -> Figure:
    """Draw a panel for each pair, plain decoding as the line at 1."""
    pairs = data["pairs"]
    counts = [len(pair["rows"]) for pair in pairs]
    canvas = Figure(
        figsize=(6.4, 0.42 * sum(counts) + 1.1 * len(counts) + 0.8), layout="constrained"
    )
    grid = canvas.subplots(len(pairs), 1, squeeze=False, sharex=True, height_ratios=counts)[:, 0]
    for axes, pair in zip(grid, pairs, strict=True):
        _panel(axes, pair)
    shown = [row["advised"] for pair in pairs for row in pair["rows"]]
    ends = [end for advised in shown for end in advised.values() if end is not None]
    grid[-1].set_xlim(min(ends) - 0.05, max(*ends, 1.0) + 0.05)
    grid[-1].set_xlabel("speed, × plain decoding")
    drawing.note(
        canvas,
        "tick and bar: advised, with its 95 % interval over prompts for all plans at once\n"
        "dot: measured, texts decoded in every way in turns · shaded: slower than plain decoding",
    )
    return canvas


def _panel(axes: Axes, pair: dict[str, Any]) -> None:
    rows = pair["rows"]
    axes.axvspan(0.0, 1.0, color=SLOWER, lw=0, zorder=0)
    axes.axvline(1.0, color="#555555", lw=1.0)
    heights = np.arange(len(rows))
    for height, row in zip(heights, rows, strict=True):
        advised = row["advised"]
        if advised["low"] is not None:  # of a plan that was timed once nobody knows how sure it is
            axes.plot(
                [advised["low"], advised["high"]],
                [height, height],
                color=ADVISED,
                lw=5,
                alpha=0.45,
                solid_capstyle="butt",
            )
        axes.plot([advised["value"]] * 2, [height - 0.28, height + 0.28], color=ADVISED, lw=2)
        axes.plot([row["measured"]], [height], marker="o", ms=5, color=MEASURED, ls="none")
        text = f"{advised['value']:.2f} advised, {row['measured']:.2f} measured"
        axes.annotate(
            text,
            (1.0, height),
            xycoords=("axes fraction", "data"),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    axes.set_yticks(heights, [row["name"] for row in rows], fontsize=8.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_title(
        f"{pair['pair']}: {pair['verdict']} · plain {pair['plain']:.0f} tokens/s, "
        f"{pair['texts']} texts of {pair['prompts']} prompts",
        fontsize=9,
        loc="left",
    )
