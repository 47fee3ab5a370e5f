"""Figure 3 of ERSD on the shipped pair: expected tokens per target call against drafted tokens, for four drafting strategies.

Left greedy speculative decoding (recursive rejection), right exponential races. Points are decoding runs, dashed lines the 0-th
order theory with the measured acceptance vector, grey lines Lemma 4.2's upper bounds on that theory.
"""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from figures import ersd
from figures.work import Work
from otm import drawing

TITLE = "Tokens per call against drafted tokens"
MOST = 32


def compute(work: Work) -> dict[str, Any]:
    """Return runs, theory and bounds of both methods."""
    record = ersd.capture()
    panels = []
    for name, method in record["methods"].items():
        vector = ersd.acceptance(method)
        panels.append(
            {
                "method": name,
                "acceptance": vector.tolist(),
                "runs": [
                    {key: run[key] for key in ("strategy", "drafted", "mean", "low", "high", "num_calls")}
                    for run in method["runs"]
                ],
                "theory": ersd.theory(vector, MOST),
                "minimal_bound": ersd.minimal_bound(vector, MOST),
                "fixed_bound": ersd.fixed_bound(vector, MOST),
            }
        )
        work.tick()
    return {"panels": panels, "num_prompts": record["num_prompts"], "captured": record["manifest"]}


def draw(data: dict[str, Any]) -> Figure:
    """Draw one panel per method on common axes."""
    canvas = Figure(figsize=(9.6, 4.6), layout="constrained")
    axes = canvas.subplots(1, 2, sharey=True)
    for one, panel in zip(axes, data["panels"], strict=True):
        _panel(one, panel)
    axes[0].set_ylabel("tokens per target call")
    axes[0].legend(handles=_legend(), loc="upper left", fontsize=8)
    canvas.supxlabel(
        f"points: decoding {data['num_prompts']} held-out prompts with the shipped pair, 95 % intervals over prompts · dashed, "
        "0-th order theory:\nat every vertex the i-th child is accepted with the A(i) measured in batches, whatever came before · "
        "grey: Lemma 4.2's upper bound on\nthat theory, m symbols standing for the unexplored ranks; runs may pass it where "
        "acceptance comes in stretches",
        fontsize=7.5,
        color="#555555",
    )
    return canvas


def _panel(axes: Axes, panel: dict[str, Any]) -> None:
    ns = range(1, len(panel["minimal_bound"]) + 1)
    axes.plot(ns, panel["minimal_bound"], color=ersd.BOUND, lw=1.4)
    axes.plot(ns, panel["fixed_bound"], color=ersd.BOUND, lw=1.2, ls=":")
    for strategy in ersd.STRATEGIES:
        colour = ersd.COLOURS[strategy]
        axes.plot(*panel["theory"][strategy], color=colour, ls=(0, (4, 2)), lw=1.3)
        mine = [run for run in panel["runs"] if run["strategy"] == strategy]
        drawing.points(axes, [run["drafted"] for run in mine], mine, colour=colour, marker=ersd.MARKERS[strategy])
    ersd.drafted_axis(axes, "drafted tokens per call")
    axes.set_title(ersd.METHODS[panel["method"]], fontsize=10)
    tops = [*(run["high"] for run in panel["runs"]), *(max(values) for _, values in panel["theory"].values())]
    axes.set_ylim(1.0, max(tops) + 0.35)


def _legend() -> list[Line2D]:
    return [
        *ersd.legend(),
        Line2D([], [], color=ersd.BOUND, lw=1.4, label="upper bound, best m"),
        Line2D([], [], color=ersd.BOUND, lw=1.2, ls=":", label="upper bound, one m"),
    ]
