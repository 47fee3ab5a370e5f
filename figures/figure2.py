"""Figure 2 of SpecTr: acceptance over k when Ber(0.25) drafts for several Bernoulli targets."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

import otm
from figures import curves
from figures.work import Work
from otm import drawing

TITLE = "Bernoulli laws over k"
DRAFT = 0.25
TARGETS = (0.05, 0.25, 0.5, 0.75, 0.95)
KS = tuple(range(1, 21))


def compute(work: Work) -> dict[str, Any]:
    """Return the exact curves of optimum and K-SEQ and Monte Carlo points for each target."""
    sampled = (1, 4, 12) if work.fast else (1, 2, 3, 4, 6, 8, 12, 16, 20)
    series = []
    for q in TARGETS:
        problem = otm.Problem(draft=otm.examples.bernoulli(DRAFT), target=otm.examples.bernoulli(q), law=otm.IID(1))
        series.append(
            {
                "q": q,
                **curves.exact(problem, KS),
                "closed_form": [otm.examples.two_token_optimum(draft=DRAFT, target=q, k=k) for k in KS],
                "points": curves.monte_carlo(otm.Optimal(), problem, sampled, work),
                "kseq_points": curves.monte_carlo(otm.KSeq(), problem, sampled, work),
            }
        )
    return {"series": series, "samples": work.samples}


def draw(data: dict[str, Any]) -> Figure:
    """Draw the optimum (solid) and K-SEQ (dashed) against k."""
    canvas, axes = drawing.figure(height=4.0)
    for number, series in enumerate(data["series"]):
        colour = drawing.PALETTE[number]
        axes.plot(series["k"], series["optimum"], color=colour, label=f"q = Ber({series['q']:g})")
        axes.plot(series["k"], series["kseq"], color=colour, ls=(0, (4, 2)), lw=1.2)
        drawing.points(axes, [p["k"] for p in series["points"]], series["points"], colour=colour)
        drawing.points(axes, [p["k"] for p in series["kseq_points"]], series["kseq_points"], colour=colour, marker="s")
    axes.set_xlabel("number of drafts k")
    axes.set_xticks([1, 4, 8, 12, 16, 20])
    axes.set_title(f"p = Ber({DRAFT:g})", fontsize=10)
    drawing.probability_axis(axes, low=0.2)
    laws = axes.legend(loc="lower right")
    axes.add_artist(laws)
    curves.scheme_legend(axes, centre=0.45)
    canvas.supxlabel(curves.caption(data), fontsize=7.5, color="#555555")
    return canvas
