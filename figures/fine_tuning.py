"""What a small draft gains from training on its drafts' acceptance, not on a divergence.

Copies of one draft, fine-tuned on the same batches by different losses; the mean acceptance on
held-out text of k i.i.d. drafts under three schemes, less what the forward KL divergence gives,
paired by window of text.
"""

from __future__ import annotations

import json
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.paths import DATA
from figures.work import Work
from otm import drawing

CAPTURE = DATA / "fine_tuning.json"
SCHEMES = ("optimum", "K-SEQ", "recursive rejection")
LOOKS: dict[str, tuple[str, str, str]] = {
    "cross-entropy": ("#999999", "-", "s"),
    "-log acceptance, k = 1": (drawing.PALETTE[1], "--", "o"),
    "1 - acceptance, k = 1": (drawing.PALETTE[1], "-", "o"),
    "-log acceptance, k = 4": (drawing.PALETTE[0], "--", "D"),
    "1 - acceptance, k = 4": (drawing.PALETTE[0], "-", "D"),
}
"""Colour, line and marker of each loss: a colour for each number of drafts that is trained for."""


def compute(work: Work) -> dict[str, Any]:
    """Return the committed results of `python -m analysis finetune`."""
    record = json.loads(CAPTURE.read_text(encoding="utf-8"))
    work.tick()
    return {key: record[key] for key in ("rows", "baseline", "num_windows", "plan", "rates")} | {
        "captured": record["manifest"]
    }


def message(data: dict[str, Any]) -> str:
    """Return what the picture shows."""
    rows = {(row["figure"], row["loss"]): row for row in data["rows"]}
    one, four = (
        {
            k: 100 * rows[f"optimum, k = {k}", f"1 - acceptance, k = {trained}"]["gain"]["mean"]
            for k in (1, 4, 8)
        }
        for trained in (1, 4)
    )
    return (
        f"Against forward KL, training on the acceptance of one draft gains {one[1]:+.1f} points "
        f"at k = 1 and {one[8]:+.1f} at k = 8; on that of four, {four[1]:+.1f}, {four[4]:+.1f} and "
        f"{four[8]:+.1f} at k = 1, 4 and 8"
    ).replace("-", "−")


def draw(data: dict[str, Any]) -> Figure:
    """Draw, by scheme, each loss's gain over the baseline by number of drafts, in points."""
    rows = {(row["figure"], row["loss"]): row for row in data["rows"]}
    counts = sorted({int(figure.rpartition(" = ")[2]) for figure, _ in rows if " = " in figure})
    canvas = Figure(figsize=(10.4, 4.4), layout="constrained")
    panels = canvas.subplots(1, len(SCHEMES), sharey=True)
    for axes, scheme in zip(panels, SCHEMES, strict=True):
        before, after = (
            [rows[f"{scheme}, k = {k}", name]["mean"] for k in counts]
            for name in ("start", data["baseline"])
        )
        axes.axhline(0.0, color="black", lw=1.2, label=data["baseline"])
        axes.plot(
            [100 * (x - y) for x, y in zip(before, after, strict=True)],
            ":",
            color="black",
            label="before training",
        )
        for loss in filter(LOOKS.__contains__, data["rates"]):
            _gains(axes, [rows[f"{scheme}, k = {k}", loss] for k in counts], loss)
        axes.set_xticks(
            range(len(counts)),
            [f"k = {k}\n{mean:.3f}" for k, mean in zip(counts, after, strict=True)],
            fontsize=9,
        )
        axes.margins(x=0.09)
        axes.grid(axis="x", visible=False)
        axes.set_title(scheme, fontsize=10)
    panels[0].set_ylabel(f"acceptance less that after {data['baseline']},\npercentage points")
    canvas.legend(*panels[0].get_legend_handles_labels(), loc="outside right center")
    plan = data["plan"]
    drawing.note(
        canvas,
        f"below k: acceptance after {data['baseline']} · the small shipped draft, {plan['steps']} "
        f"steps of {plan['batch']} × "
        f"{plan['context']} tokens, the same for all · {data['num_windows']} held-out windows, 95 "
        "% intervals over windows, "
        f"{len(plan['seeds'])} seeds (dots)",
    )
    return canvas


def _gains(axes: Axes, rows: list[dict[str, Any]], loss: str) -> None:
    colour, line, marker = LOOKS[loss]
    label = loss.replace("-log", "−log").replace(" - ", " − ")
    gains = [{name: 100 * row["gain"][name] for name in ("mean", "low", "high")} for row in rows]
    axes.plot(
        [row["mean"] for row in gains],
        ls=line,
        color=colour,
        marker=marker,
        mfc="white",
        label=label,
    )
    drawing.points(axes, range(len(rows)), gains, colour=colour, marker=marker)
    for place, row in enumerate(rows):
        axes.plot(
            [place + 0.07] * len(row["gain_by_seed"]),
            [100 * each for each in row["gain_by_seed"]],
            ".",
            color=colour,
            ms=2,
        )
