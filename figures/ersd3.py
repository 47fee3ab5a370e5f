"""Figure 3 of ERSD: expected tokens per target call against drafted tokens, by strategy.

Left greedy speculative decoding (recursive rejection), right exponential races. Points are exact
expectations along texts of the target, dashed lines the 0-th order theory with the measured
acceptance vector, grey lines Lemma 4.2's upper bounds on that theory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from figures import ersd
from figures.work import Work
from otm._display import drawing

_DRAFTED = 14
"""Drafted tokens of the trees that the headline compares."""


def compute(work: Work) -> dict[str, Any]:
    """Return runs, theory and bounds of both methods on each pair."""

    def of_method(method: dict[str, Any]) -> dict[str, Any]:
        vector = np.asarray(method["acceptance"])
        return {
            "acceptance": method["acceptance"],
            "runs": [
                {key: run[key] for key in ("strategy", "drafted", "mean", "low", "high")}
                for run in method["runs"]
            ],
            "theory": ersd.theory(vector),
            "minimal_bound": ersd.minimal_bound(vector),
            "fixed_bound": ersd.fixed_bound(vector),
        }

    return ersd.compute(work, of_method)


def message(data: dict[str, Any]) -> str:
    """Return the headline of the picture, a sentence with numbers from the data."""
    pair = data["pairs"][0]
    panel = next(one for one in pair["panels"] if one["method"] == "ERSD")
    found = {run["strategy"]: run["mean"] for run in panel["runs"] if run["drafted"] == _DRAFTED}
    return (
        f"{_DRAFTED} drafted tokens on the {pair['pair']}, exponential races: "
        f"{found['optimal']:.2f} tokens a call as the optimal tree, {found['SpecInfer']:.2f} as "
        f"SpecInfer's, {found['sequence']:.2f} as one sequence, {found['batch']:.2f} as a batch"
    )


def draw(data: dict[str, Any]) -> Figure:
    """Draw one panel per method and pair."""
    return ersd.draw_panels(
        data,
        _panel,
        label="tokens per target call",
        handles=[
            Line2D([], [], color=ersd.BOUND, lw=1.4, label="bound, best m"),
            Line2D([], [], color=ersd.BOUND, lw=1.2, ls=":", label="bound, one m"),
        ],
        legend="upper left",
        about="95 % intervals over prompts · dashed, 0-th order theory: at every vertex the i-th "
        "child is accepted\n"
        "with the measured A(i), whatever came before · grey: Lemma 4.2's upper bound on that "
        "theory,\n"
        "m symbols standing for the unexplored ranks",
    )


def _panel(axes: Axes, panel: dict[str, Any]) -> None:
    ns = range(1, len(panel["minimal_bound"]) + 1)
    axes.plot(ns, panel["minimal_bound"], color=ersd.BOUND, lw=1.4)
    axes.plot(ns, panel["fixed_bound"], color=ersd.BOUND, lw=1.2, ls=":")
    for strategy in ersd.STRATEGIES:
        colour = ersd.COLOURS[strategy]
        axes.plot(*panel["theory"][strategy], color=colour, ls=drawing.DASHED, lw=1.3)
        mine = [run for run in panel["runs"] if run["strategy"] == strategy]
        if strategy != "SpecInfer":  # as many points as fit
            mine = [run for run in mine if run["drafted"] in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)]
        drawing.points(
            axes,
            [run["drafted"] for run in mine],
            mine,
            colour=colour,
            marker=ersd.MARKERS[strategy],
        )
    ersd.drafted_axis(axes, "drafted tokens per call")
    tops = [
        *(run["high"] for run in panel["runs"]),
        *(max(values) for _, values in panel["theory"].values()),
    ]
    axes.set_ylim(1.0, max(tops) + 0.35)
