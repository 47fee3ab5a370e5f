"""Figure 1 of SpecTr: optimal acceptance over k for uniform laws, U(120) drafting for U(120/r)."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

import otm
from figures import curves
from figures.work import Work
from otm._display import drawing

SIZE = 120
RATIOS = (2, 3, 4, 6, 12)
KS = tuple(range(1, 21))


def compute(work: Work) -> dict[str, Any]:
    """Return the exact curves and Monte Carlo points for each ratio r."""
    sampled = (1, 4, 12) if work.fast else (1, 2, 4, 8, 12, 16, 20)
    series = []
    for ratio in RATIOS:
        problem = otm.Problem(
            draft=otm.examples.uniform(SIZE),
            target=otm.examples.uniform(SIZE // ratio, vocabulary=SIZE),
            law=otm.IID(1),
        )
        series.append(
            {
                "ratio": ratio,
                **curves.exact(problem, KS),
                "closed_form": [otm.examples.uniform_optimum(ratio=ratio, k=k) for k in KS],
                "points": curves.monte_carlo(otm.KSeq(), problem, sampled, work),
            }
        )
    return {"series": series, "samples": work.samples}


def message(data: dict[str, Any]) -> str:
    """Return the headline of the picture, a sentence with numbers from the data."""
    first, last = data["series"][0], data["series"][-1]
    gap = max(
        abs(best - kseq)
        for series in data["series"]
        for best, kseq in zip(series["optimum"], series["kseq"], strict=True)
    )
    return (
        f"Uniform laws: K-SEQ is optimal (within {gap:.0e}); four drafts are accepted "
        f"{100 * first['optimum'][3]:.0f} % of the time where the target has 1/{first['ratio']} of "
        f"the draft's tokens, {100 * last['optimum'][3]:.0f} % where it has 1/{last['ratio']}"
    )


def draw(data: dict[str, Any]) -> Figure:
    """Draw acceptance against k, one line per ratio."""
    canvas, axes = drawing.figure()
    for number, series in enumerate(data["series"]):
        colour = drawing.PALETTE[number]
        axes.plot(
            series["k"], series["optimum"], color=colour, label=f"q = U({SIZE // series['ratio']})"
        )
        drawing.points(
            axes,
            [p["k"] for p in series["points"]],
            series["points"],
            colour=colour,
            marker=drawing.MARKERS[number],
        )
    axes.set_xlabel("number of drafts k")
    axes.set_xticks([1, 4, 8, 12, 16, 20])
    axes.set_title(f"p = U({SIZE}): optimum (lines), attained by K-SEQ (points)", fontsize=10)
    drawing.probability_axis(axes)
    axes.legend(loc="lower right")
    drawing.note(canvas, curves.caption(data))
    return canvas
