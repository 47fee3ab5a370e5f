"""The certified bracket's width around the optimum by number of bins, at full vocabulary."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

import otm
from figures.work import Work
from otm._display import drawing

KS = (2, 4, 8)


def compute(work: Work) -> dict[str, Any]:
    """Return both sides' distance to the optimum over bins and rows, language-like logits.

    Logits: a normal of scale 3 for the draft, plus a normal of scale 1 for the target.
    """
    num_tokens, rows = (8_192, 4) if work.fast else (128_256, 16)
    bins = [2**n for n in ((5, 8, 11) if work.fast else range(4, 15))]
    logits = 3.0 * work.rng.standard_normal((rows, num_tokens))
    draft = otm.from_logits(logits)
    target = otm.from_logits(logits + work.rng.standard_normal((rows, num_tokens)))
    series = []
    for k in KS:
        problem = otm.Problem(draft=draft, target=target, law=otm.IID(k))
        best = np.asarray(otm.optimal_acceptance(problem))
        lost, above = [], []
        for count in bins:
            bracket = otm.bounds.optimal_bracket(problem, bins=count)
            lost.append((best - np.asarray(bracket.lower)).tolist())
            above.append((np.asarray(bracket.upper) - best).tolist())
            work.tick()
        series.append({"k": k, "optimum": best.tolist(), "lost": lost, "above": above})
    return {"bins": bins, "num_tokens": num_tokens, "rows": rows, "series": series}


def message(data: dict[str, Any]) -> str:
    """Return the headline of the picture, a sentence with numbers from the data."""
    at = data["bins"].index(min(data["bins"], key=lambda count: abs(count - 2048)))
    lost, above = (max(max(s[side][at]) for s in data["series"]) for side in ("lost", "above"))
    return (
        f"{data['bins'][at]:,} bins instead of a sort of {data['num_tokens']:,} tokens: at most "
        f"{lost:.1e} below the optimum, {above:.1e} above"
    )


def draw(data: dict[str, Any]) -> Figure:
    """Draw the acceptance lost (solid) and the upper end's excess (dashed), medians with ranges."""
    canvas, axes = drawing.figure(height=4.0)
    for number, series in enumerate(data["series"]):
        colour = drawing.PALETTE[number]
        lost, above = (np.maximum(np.array(series[name]), 1e-16) for name in ("lost", "above"))
        axes.plot(
            data["bins"],
            np.median(lost, axis=1),
            color=colour,
            marker=drawing.MARKERS[number],
            label=f"α* − lower, k = {series['k']}",
        )
        axes.fill_between(
            data["bins"], lost.min(axis=1), lost.max(axis=1), color=colour, alpha=0.15, lw=0
        )
        axes.plot(
            data["bins"],
            np.median(above, axis=1),
            color=colour,
            ls=drawing.DASHED,
            lw=1.1,
            label=f"upper − α*, k = {series['k']}",
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("number of bins of log(q/p)")
    axes.set_ylabel("distance to the optimum")
    axes.set_title(
        f"V = {data['num_tokens']:,}, {data['rows']} pairs: median and range", fontsize=10
    )
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
    return canvas
