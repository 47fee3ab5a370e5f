"""Figure 4 of ERSD on the shipped pair: what each further drafted token adds to the expected tokens per target call.

The gain of a drafted token is the probability that it is accepted. Points are frequencies in the largest run of each strategy,
dashed lines the 0-th order theory, the grey line the slope of Lemma 4.2's bound with one m.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from figures import ersd
from figures.work import Work

TITLE = "Marginal gain per drafted token"
MOST = 32
FEWEST = 3
"""Vertices accepted fewer times than this are not drawn: their frequency says little."""


def compute(work: Work) -> dict[str, Any]:
    """Return measured and theoretical gains of both methods."""
    record = ersd.capture()
    panels = []
    for name, method in record["methods"].items():
        vector = ersd.acceptance(method)
        measured = {}
        for strategy in ersd.STRATEGIES:
            largest = max((run for run in method["runs"] if run["strategy"] == strategy), key=lambda run: run["drafted"])
            measured[strategy] = {"gain": largest["vertex_acceptance"][1:], "num_calls": largest["num_calls"]}
        curves = ersd.theory(vector, MOST)
        panels.append(
            {
                "method": name,
                "measured": measured,
                "theory": {s: np.diff([1.0, *values]).tolist() for s, (ns, values) in curves.items() if s != "SpecInfer"},
                "bound": np.diff(ersd.fixed_bound(vector, MOST)).tolist(),
            }
        )
        work.tick()
    return {"panels": panels, "num_prompts": record["num_prompts"], "captured": record["manifest"]}


def draw(data: dict[str, Any]) -> Figure:
    """Draw one panel per method, logarithmic on both axes."""
    canvas = Figure(figsize=(9.6, 4.4), layout="constrained")
    axes = canvas.subplots(1, 2, sharey=True)
    for one, panel in zip(axes, data["panels"], strict=True):
        _panel(one, panel)
    axes[0].set_ylabel("probability that the n-th drafted token is accepted")
    axes[0].legend(handles=_legend(), loc="lower left", fontsize=8)
    canvas.supxlabel(
        f"points: frequencies over {data['num_prompts']} held-out prompts, largest run of each strategy (rarer than {FEWEST} "
        "acceptances: not drawn)\ndashed: 0-th order theory, none for the SpecInfer tree · grey: slope of Lemma 4.2's bound for "
        "one number m of further symbols",
        fontsize=7.5,
        color="#555555",
    )
    return canvas


def _panel(axes: Axes, panel: dict[str, Any]) -> None:
    axes.plot(range(2, len(panel["bound"]) + 2), panel["bound"], color=ersd.BOUND, lw=1.2, ls=":")
    for strategy in ersd.STRATEGIES:
        colour = ersd.COLOURS[strategy]
        if strategy in panel["theory"]:
            gains = panel["theory"][strategy]
            axes.plot(range(1, len(gains) + 1), gains, color=colour, ls=(0, (4, 2)), lw=1.3)
        run = panel["measured"][strategy]
        kept = [(n, gain) for n, gain in enumerate(run["gain"], start=1) if gain * run["num_calls"] >= FEWEST - 0.5]
        axes.plot(
            [n for n, _ in kept],
            [gain for _, gain in kept],
            marker=ersd.MARKERS[strategy],
            ls="none",
            color=colour,
            mfc="white",
        )
    ersd.drafted_axis(axes, "n, in drafting order")
    axes.set_yscale("log")
    axes.set_ylim(2e-3, 1.0)
    axes.set_title(ersd.METHODS[panel["method"]], fontsize=10)


def _legend() -> list[Line2D]:
    return [*ersd.legend(), Line2D([], [], color=ersd.BOUND, lw=1.2, ls=":", label="slope of the bound, one m")]
