"""Figure 5 of SpecTr: OTM-k against K-SEQ on a real pair of next-token distributions.

The paper's prompt, «He said he also has asked prosecutors to», through the shipped draft and target; the union of the two top-10
sets, renormalised. The captured distributions are committed, so the figure needs no torch; a test checks that the shipped pair
still gives them.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import otm
from figures import curves
from figures.paths import DATA
from figures.work import Work
from otm import drawing

TITLE = "A real pair"
KS = tuple(range(1, 41))
CAPTURE = DATA / "figure5.json"


def capture() -> dict[str, Any]:
    """Read the committed distributions p′ and q′ with their manifest."""
    record: dict[str, Any] = json.loads(CAPTURE.read_text(encoding="utf-8"))
    return record


def compute(work: Work) -> dict[str, Any]:
    """Return exact curves and Monte Carlo points on the captured pair."""
    record = capture()
    draft, target = np.array(record["draft"]), np.array(record["target"])
    problem = otm.Problem(draft=otm.normalise(draft), target=otm.normalise(target), law=otm.IID(1))
    sampled = (1, 4, 16) if work.fast else (1, 2, 3, 4, 6, 8, 12, 16, 20, 25, 30, 35, 40)
    return {
        **curves.exact(problem, KS),
        "limit": float(otm.bounds.support_limit_upper(problem)),
        "points": curves.monte_carlo(otm.Optimal(), problem, sampled, work),
        "kseq_points": curves.monte_carlo(otm.KSeq(), problem, sampled, work),
        "prompt": record["prompt"],
        "tokens": record["tokens"],
        "draft": draft.tolist(),
        "target": target.tolist(),
        "samples": work.samples,
        "captured": record["manifest"],
    }


def draw(data: dict[str, Any]) -> Figure:
    """Draw both acceptance curves, and the two distributions beside them."""
    canvas, (axes, side) = _two_panels()
    axes.plot(data["k"], data["optimum"], color=drawing.PALETTE[0], label="OTM-k (optimum)")
    axes.plot(data["k"], data["kseq"], color=drawing.PALETTE[1], ls=(0, (4, 2)), label=otm.KSeq.title)
    drawing.points(axes, [p["k"] for p in data["points"]], data["points"], colour=drawing.PALETTE[0])
    drawing.points(axes, [p["k"] for p in data["kseq_points"]], data["kseq_points"], colour=drawing.PALETTE[1], marker="s")
    axes.set_xlabel("number of drafts k")
    axes.set_xticks([1, 10, 20, 30, 40])
    drawing.probability_axis(axes, low=max(0.0, min(data["kseq"]) - 0.06))
    axes.set_title(f"“{data['prompt']}”", fontsize=9)
    axes.legend(loc="lower right")
    _distributions(side, data)
    canvas.supxlabel(curves.caption(data), fontsize=7.5, color="#555555")
    return canvas


def _two_panels() -> tuple[Figure, Any]:
    canvas = Figure(figsize=(8.4, 4.0), layout="constrained")
    return canvas, canvas.subplots(1, 2, width_ratios=(1.7, 1.0))


def _distributions(axes: Any, data: dict[str, Any]) -> None:
    order = np.argsort(data["target"])
    height = np.arange(len(order))
    axes.barh(height + 0.2, np.array(data["target"])[order], 0.4, color="#222222", label="target q′")
    axes.barh(height - 0.2, np.array(data["draft"])[order], 0.4, color=drawing.PALETTE[4], label="draft p′")
    axes.set_yticks(height, [_visible(data["tokens"][i]) for i in order], fontsize=8, family="DejaVu Sans Mono")
    axes.set_xlabel("probability")
    axes.set_title("p′ and q′: union of both top-10 sets,\nrenormalised", fontsize=9)
    axes.grid(axis="y", visible=False)
    axes.legend(loc="lower right", fontsize=8)


def _visible(token: str) -> str:
    """Show a token with its leading space and control characters visible."""
    return token.replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥").replace("$", r"\$")
