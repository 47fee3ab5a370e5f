"""Figure 3 of SpecTr: acceptance over the target's q when Ber(0.25) drafts, by number of drafts."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

import otm
from figures import curves
from figures.work import Work
from otm._display import drawing

DRAFT = 0.25
KS = (1, 2, 4, 8)


def compute(work: Work) -> dict[str, Any]:
    """Return the exact curves over q and Monte Carlo points for each k."""
    grid = np.linspace(0.0, 1.0, 41 if work.fast else 201)
    targets = np.stack([1.0 - grid, grid], axis=1)
    sampled = np.linspace(0.0, 1.0, 5 if work.fast else 11)
    series = []
    for k in KS:
        batch = otm.Problem(draft=otm.examples.bernoulli(DRAFT), target=targets, law=otm.IID(k))
        problems = [
            otm.Problem(
                draft=otm.examples.bernoulli(DRAFT),
                target=otm.examples.bernoulli(q),
                law=otm.IID(k),
            )
            for q in sampled
        ]
        series.append(
            {
                "k": k,
                "q": grid.tolist(),
                "optimum": np.asarray(otm.optimal_acceptance(batch)).tolist(),
                "kseq": np.asarray(otm.acceptance(otm.KSeq(), batch)).tolist(),
                "closed_form": [
                    otm.examples.two_token_optimum(draft=DRAFT, target=q, k=k) for q in grid
                ],
                "sampled_q": sampled.tolist(),
                "points": [
                    curves.monte_carlo(otm.TransportPlan(), p, [k], work)[0] for p in problems
                ],
                "kseq_points": [curves.monte_carlo(otm.KSeq(), p, [k], work)[0] for p in problems],
            }
        )
    return {"series": series, "samples": work.samples}


def message(data: dict[str, Any]) -> str:
    """Return the headline of the picture, a sentence with numbers from the data."""
    worst = {series["k"]: min(series["optimum"]) for series in data["series"]}
    said = ", ".join(f"{100 * value:.0f} %" for value in worst.values())
    drafts = ", ".join(map(str, worst))
    return (
        f"Whatever the target, {drafts} drafts from Ber({DRAFT:g}) are accepted at least {said} of "
        "the time by the best verifier"
    )


def draw(data: dict[str, Any]) -> Figure:
    """Draw the optimum (solid) and K-SEQ (dashed) against q."""
    canvas, axes = drawing.figure(height=4.0)
    for number, series in enumerate(data["series"]):
        curves.draw_schemes(
            axes,
            series["q"],
            series,
            series["sampled_q"],
            colour=drawing.PALETTE[number],
            label=f"k = {series['k']}",
        )
    axes.axvline(DRAFT, color="#999999", lw=0.9, ls=":")
    axes.annotate(
        "q = 0.25 = p",
        (DRAFT, 0.5),
        xytext=(4, 0),
        textcoords="offset points",
        fontsize=8,
        color="#555555",
    )
    axes.set_xlabel("q, where the target is Ber(q)")
    axes.set_title(f"p = Ber({DRAFT:g})", fontsize=10)
    drawing.probability_axis(axes, low=0.2)
    numbers = axes.legend(loc="lower left")
    axes.add_artist(numbers)
    curves.scheme_legend(axes, centre=0.48)
    drawing.note(canvas, curves.caption(data))
    return canvas
