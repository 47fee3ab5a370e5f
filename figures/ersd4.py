"""Figure 4 of ERSD: the gain in tokens per target call of each further drafted token.

The gain of a drafted token is the probability that it is accepted. Points are exact expectations
along texts of the target in the largest tree of each strategy, dashed lines the 0-th order theory,
the grey line the slope of Lemma 4.2's bound with one m.
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


def compute(work: Work) -> dict[str, Any]:
    """Return measured and theoretical gains of both methods on each pair."""

    def of_method(method: dict[str, Any]) -> dict[str, Any]:
        vector = np.asarray(method["acceptance"])
        measured = {}
        for strategy in ersd.STRATEGIES:
            largest = max(
                (run for run in method["runs"] if run["strategy"] == strategy),
                key=lambda run: run["drafted"],
            )
            measured[strategy] = largest["gain"]
        return {
            "measured": measured,
            "theory": {
                s: np.diff([1.0, *values]).tolist()
                for s, (_, values) in ersd.theory(vector).items()
                if s != "SpecInfer"
            },
            "bound": np.diff(ersd.fixed_bound(vector)).tolist(),
        }

    return ersd.compute(work, of_method)


def message(data: dict[str, Any]) -> str:
    """Return the headline of the picture, a sentence with numbers from the data."""
    pair = data["pairs"][0]
    panel = next(one for one in pair["panels"] if one["method"] == "ERSD")
    gain = {strategy: panel["measured"][strategy]["mean"][7] for strategy in ersd.STRATEGIES}
    return (
        f"The 8th drafted token adds {gain['optimal']:.3f} tokens a call in the optimal tree, "
        f"{gain['sequence']:.3f} in a sequence, {gain['batch']:.3f} in a batch "
        f"({pair['pair']}, exponential races)"
    )


def draw(data: dict[str, Any]) -> Figure:
    """Draw one panel per method and pair, logarithmic on both axes."""
    return ersd.draw_panels(
        data,
        _panel,
        label="Pr(n-th drafted token is accepted)",
        handles=[
            Line2D([], [], color=ersd.BOUND, lw=1.2, ls=":", label="slope of the bound, one m")
        ],
        legend="lower left",
        about="95 % intervals over prompts, in the largest tree of each strategy · dashed: 0-th "
        "order theory,\n"
        "none for the SpecInfer tree · grey: slope of Lemma 4.2's bound for one number m of "
        "further symbols",
        dashed=[s for s in ersd.STRATEGIES if s != "SpecInfer"],
    )


def _panel(axes: Axes, panel: dict[str, Any]) -> None:
    axes.plot(range(2, len(panel["bound"]) + 2), panel["bound"], color=ersd.BOUND, lw=1.2, ls=":")
    for strategy in ersd.STRATEGIES:
        colour = ersd.COLOURS[strategy]
        if strategy in panel["theory"]:
            gains = panel["theory"][strategy]
            axes.plot(range(1, len(gains) + 1), gains, color=colour, ls=drawing.DASHED, lw=1.3)
        gain = panel["measured"][strategy]
        rows = [{key: gain[key][n] for key in gain} for n in range(len(gain["mean"]))]
        drawing.points(
            axes, range(1, len(rows) + 1), rows, colour=colour, marker=ersd.MARKERS[strategy]
        )
    ersd.drafted_axis(axes, "n, in drafting order")
    axes.set_yscale("log")
    axes.set_ylim(1e-3, 1.0)
