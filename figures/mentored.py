"""Speed against distortion: lossy verifiers at sequence level on the shipped pair.

Speed is measured by decoding. Distortion is exact: the KL divergence from the target that one verified token adds by the chain
rule, averaged over held-out contexts; bonus tokens add none.
"""

from __future__ import annotations

import json
from typing import Any

from matplotlib.figure import Figure

import otm
from figures.paths import DATA
from figures.work import Work
from otm import drawing

TITLE = "Speed against distortion"
CAPTURE = DATA / "mentored.json"
FAMILIES: tuple[type[otm.Verifier], ...] = (otm.Mentored, otm.Lenience, otm.Fuzzy, otm.TypicalAcceptance)


def compute(work: Work) -> dict[str, Any]:
    """Return the committed results of `python -m analysis experiment mentored`."""
    record = json.loads(CAPTURE.read_text(encoding="utf-8"))
    work.tick()
    return {
        "rows": record["rows"],
        "length": record["length"],
        "num_prompts": record["num_prompts"],
        "captured": record["manifest"],
    }


def draw(data: dict[str, Any]) -> Figure:
    """Draw tokens per call over KL, the lossless scheme as a line."""
    canvas, axes = drawing.figure(width=6.4, height=4.2)
    lossless = next(row for row in data["rows"] if row["label"] == "speculative")
    axes.axhline(lossless["mean"], color="black", lw=1.2)
    axes.axhspan(lossless["low"], lossless["high"], color="#DDDDDD", lw=0)
    axes.annotate("lossless", (1.0, lossless["mean"]), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=8)
    for number, family in enumerate(FAMILIES):
        rows = sorted((row for row in data["rows"] if row["label"].startswith(family.__name__)), key=lambda row: row["kl"])
        colour, marker = drawing.PALETTE[number], drawing.MARKERS[number]
        axes.plot([row["kl"] for row in rows], [row["mean"] for row in rows], color=colour, lw=1.0)
        drawing.points(axes, [row["kl"] for row in rows], rows, colour=colour, marker=marker)
        axes.plot([], [], color=colour, marker=marker, mfc="white", label=family.title)
        for row in rows:
            argument = row["label"].partition("(")[2].rstrip(")")
            axes.annotate(
                argument, (row["kl"], row["mean"]), xytext=(4, -10), textcoords="offset points", fontsize=7, color=colour
            )
    axes.set_xscale("log")
    axes.set_xlabel("KL from the target per verified token, nats")
    axes.set_ylabel("tokens per target call")
    axes.legend(loc="upper left")
    canvas.supxlabel(
        f"chains of {data['length']} drafts, shipped pair, {data['num_prompts']} held-out prompts × 2 seeds, 95 % intervals over "
        "prompts · labels: KL budget, lenience, threshold",
        fontsize=7,
        color="#555555",
    )
    return canvas
