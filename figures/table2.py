"""Tables 2 and 4 of SpecTr on the shipped pair: tokens per serial call for K drafts of L tokens, per draft model.

K = 1 is speculative decoding, K > 1 SpecTr's draft selection with K-SEQ. The paper's own numbers (LM1B, 97M target, 6M draft)
stand beside them in the data file: another pair, for orientation only.
"""

from __future__ import annotations

import json
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.paths import DATA
from figures.work import Work
from otm import drawing

TITLE = "Tokens per serial call"
CAPTURE = DATA / "table2.json"
PAPER = {(1, 4): 2.2, (2, 4): 2.4, (4, 4): 2.7, (8, 4): 3.0, (1, 8): 2.3, (2, 8): 2.6, (4, 8): 3.0, (8, 8): 3.3}
"""SpecTr, Table 2, by (K, L)."""


def compute(work: Work) -> dict[str, Any]:
    """Return the committed results of `python -m analysis experiment table2` beside the paper's."""
    record = json.loads(CAPTURE.read_text(encoding="utf-8"))
    work.tick()
    return {
        "rows": record["rows"],
        "seeds": record["seeds"],
        "num_prompts": record["num_prompts"],
        "target_parameters": record["target_parameters"],
        "paper": [{"K": k, "L": length, "tokens_per_call": value} for (k, length), value in PAPER.items()],
        "captured": record["manifest"],
    }


def draw(data: dict[str, Any]) -> Figure:
    """Draw one panel per length, a line per draft model, every value written beside its point."""
    lengths = sorted({row["L"] for row in data["rows"]})
    drafts = sorted({(row["parameters"], row["draft"]) for row in data["rows"]})
    canvas = Figure(figsize=(9.0, 4.0), layout="constrained")
    panels = canvas.subplots(1, len(lengths), sharey=True)
    for axes, length in zip(panels, lengths, strict=True):
        for number, (parameters, draft) in enumerate(drafts):
            rows = sorted(
                (row for row in data["rows"] if row["L"] == length and row["draft"] == draft), key=lambda row: row["K"]
            )
            _line(axes, rows, number, f"draft of {_size(parameters)} parameters")
        axes.set_xscale("log", base=2)
        counts = sorted({row["K"] for row in data["rows"]})
        axes.set_xticks(counts, [str(k) for k in counts])
        axes.set_xlim(counts[0] * 0.8, counts[-1] * 1.45)
        axes.set_xlabel("K drafts (1: speculative decoding)")
        axes.set_title(f"L = {length} drafted tokens each", fontsize=10)
    panels[0].set_ylabel("tokens per serial call of the target")
    panels[0].legend(loc="upper left", fontsize=8)
    canvas.supxlabel(
        f"target of {_size(data['target_parameters'])} parameters, K-SEQ, temperature 1 · {data['num_prompts']} held-out prompts × "
        f"{len(data['seeds'])} seeds, 95 % intervals over prompts",
        fontsize=7.5,
        color="#555555",
    )
    return canvas


def _line(axes: Axes, rows: list[dict[str, Any]], number: int, label: str) -> None:
    colour, marker = drawing.PALETTE[number], drawing.MARKERS[number]
    ks = [row["K"] for row in rows]
    axes.plot(ks, [row["mean"] for row in rows], color=colour, lw=1.3, marker=marker, mfc="white", label=label)
    drawing.points(axes, ks, rows, colour=colour, marker=marker)
    for row in rows:
        axes.annotate(
            f"{row['mean']:.2f}", (row["K"], row["mean"]), xytext=(6, -9), textcoords="offset points", fontsize=8, color=colour
        )


def _size(parameters: int) -> str:
    return f"{parameters / 1e6:.1f} M"
