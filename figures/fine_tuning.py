"""What a small draft gains from being trained on the acceptance of its drafts instead of a divergence.

Copies of one draft, fine-tuned on the same batches by different losses; the mean acceptance on held-out text of k i.i.d. drafts
under three schemes, less what the forward KL divergence gives, paired by window of text.
"""

from __future__ import annotations

import json
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.paths import DATA
from figures.work import Work
from otm import plot

TITLE = "What a draft gains from being trained on its acceptance"
CAPTURE = DATA / "fine_tuning.json"
SCHEMES = ("optimum", "K-SEQ", "recursive rejection")


def compute(work: Work) -> dict[str, Any]:
    """Return the committed results of `python -m analysis finetune`."""
    record = json.loads(CAPTURE.read_text(encoding="utf-8"))
    work.tick()
    return {key: record[key] for key in ("rows", "baseline", "num_windows", "plan", "rates")} | {"captured": record["manifest"]}


def draw(data: dict[str, Any]) -> Figure:
    """Draw one panel for each scheme: the gain of each loss over the baseline at each number of drafts, in percentage points."""
    rows = {(row["figure"], row["loss"]): row for row in data["rows"]}
    losses = [loss for loss in data["rates"] if loss != data["baseline"]]
    counts = sorted({int(figure.rpartition(" = ")[2]) for figure, _ in rows if " = " in figure})
    canvas = Figure(figsize=(9.2, 4.2), layout="constrained")
    panels = canvas.subplots(1, len(SCHEMES), sharey=True)
    for axes, scheme in zip(panels, SCHEMES, strict=True):
        axes.axhline(0.0, color="black", lw=1.2)
        for number, loss in enumerate(losses):
            _gains(axes, [rows[f"{scheme}, k = {k}", loss] for k in counts], number, len(losses), loss)
        baseline = [rows[f"{scheme}, k = {k}", data["baseline"]]["mean"] for k in counts]
        axes.set_xticks(range(len(counts)), [f"k = {k}\n{mean:.3f}" for k, mean in zip(counts, baseline, strict=True)])
        axes.grid(axis="x", visible=False)
        axes.set_title(scheme, fontsize=10)
    panels[0].set_ylabel(f"acceptance over training by {data['baseline']},\npercentage points")
    canvas.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(losses))
    plan = data["plan"]
    canvas.supxlabel(
        f"below k: acceptance after {data['baseline']} · {plan['steps']} steps of {plan['batch']} × {plan['context']} tokens from "
        f"the same small draft, the same batches for all · {data['num_windows']} held-out windows, 95 % intervals over windows; "
        f"dots: {len(plan['seeds'])} seeds",
        fontsize=7,
        color="#555555",
    )
    return canvas


def _gains(axes: Axes, rows: list[dict[str, Any]], number: int, count: int, label: str) -> None:
    colour, marker = plot.PALETTE[number], plot.MARKERS[number]
    places = [position + 0.7 * ((number + 0.5) / count - 0.5) for position in range(len(rows))]
    gains = [{name: 100 * row["gain"][name] for name in ("mean", "low", "high")} for row in rows]
    plot.points(axes, places, gains, colour=colour, marker=marker)
    axes.plot([], [], color=colour, marker=marker, mfc="white", lw=0, label=label)
    for place, row in zip(places, rows, strict=True):
        axes.plot(
            [place + 0.06] * len(row["gain_by_seed"]), [100 * each for each in row["gain_by_seed"]], ".", color=colour, ms=2
        )
