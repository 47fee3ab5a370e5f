"""Figure 2 of SpecTr: acceptance over k when Ber(0.25) drafts for Bernoulli targets.

It also shows how the order of targets can turn.

A target nearer to the draft in total variation is not nearer for every k: on the right the first
draft prefers one target, three drafts the other, since the draft model never proposes a token of
the first.
"""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

import otm
from figures import curves
from figures.work import Work
from otm._display import drawing

DRAFT = 0.25
TARGETS = (0.05, 0.25, 0.5, 0.75, 0.95)
COLOURS = tuple(drawing.PALETTE[i] for i in (0, 2, 1, 3, 4))
KS = tuple(range(1, 21))

TURN_DRAFT = (0.6, 0.4, 0.0)
TURN_TARGETS = ((0.5, 0.4, 0.1), (0.2, 0.8, 0.0))
TURN_KS = tuple(range(1, 9))


def compute(work: Work) -> dict[str, Any]:
    """Return the exact curves of optimum and K-SEQ and Monte Carlo points for each target."""
    sampled = (1, 4, 12) if work.fast else (1, 2, 3, 4, 6, 8, 12, 16, 20)
    series = []
    for q in TARGETS:
        problem = otm.Problem(
            draft=otm.examples.bernoulli(DRAFT), target=otm.examples.bernoulli(q), law=otm.IID(1)
        )
        closed = [otm.examples.two_token_optimum(draft=DRAFT, target=q, k=k) for k in KS]
        series.append({"q": q, **_schemes(problem, KS, sampled, work), "closed_form": closed})
    turn = []
    for target in TURN_TARGETS:
        problem = otm.Problem(draft=TURN_DRAFT, target=target, law=otm.IID(1))
        turn.append({"target": list(target), **_schemes(problem, TURN_KS, sampled[:2], work)})
    return {"series": series, "turn": turn, "samples": work.samples}


def _schemes(
    problem: otm.Problem, ks: tuple[int, ...], sampled: tuple[int, ...], work: Work
) -> dict[str, Any]:
    return {
        **curves.exact(problem, ks),
        "points": curves.monte_carlo(otm.Optimal(), problem, sampled, work),
        "kseq_points": curves.monte_carlo(otm.KSeq(), problem, sampled, work),
    }


def message(data: dict[str, Any]) -> str:
    """Return the headline of the picture, a sentence with numbers from the data."""
    lost, k, q = max(
        (best - kseq, k, series["q"])
        for series in data["series"]
        for best, kseq, k in zip(series["optimum"], series["kseq"], series["k"], strict=True)
    )
    return (
        f"A draft Ber({DRAFT:g}): K-SEQ gives away up to {100 * lost:.1f} points of acceptance "
        f"(q = Ber({q:g}), {k} drafts), and nothing where q = p"
    )


def draw(data: dict[str, Any]) -> Figure:
    """Draw the optimum (solid) and K-SEQ (dashed) against k."""
    canvas = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes, side = canvas.subplots(1, 2, sharey=True, width_ratios=(1.9, 1.0))
    for number, series in enumerate(data["series"]):
        same = series["q"] == DRAFT
        # Where draft and target agree everything is accepted: a band behind the others, which come
        # near it, in the paper's green.
        colour = COLOURS[number]
        label = f"q = Ber({series['q']:g})" + (" = p" if same else "")
        if same:
            axes.plot(
                series["k"],
                series["optimum"],
                color=colour,
                lw=7.0,
                alpha=0.35,
                zorder=0,
                label=label,
            )
            continue
        _over_k(axes, series, colour=colour, label=label)
    axes.set_xticks([1, 4, 8, 12, 16, 20])
    axes.set_title(f"p = Ber({DRAFT:g})", fontsize=9)
    drawing.probability_axis(axes, low=0.2)
    laws = axes.legend(loc="lower right", fontsize=7.5)
    axes.add_artist(laws)
    curves.scheme_legend(axes, centre=0.4)
    for number, series in enumerate(data["turn"]):
        colour = drawing.PALETTE[5 + number]
        _over_k(
            side,
            series,
            colour=colour,
            label="q = (" + ", ".join(f"{mass:g}" for mass in series["target"]) + ")",
        )
    side.set_xticks([1, 3, 5, 8])
    side.set_title(
        "$\\alpha_1$ larger, $\\alpha_k$ smaller\np = ("
        + ", ".join(f"{mass:g}" for mass in TURN_DRAFT)
        + ")",
        fontsize=9,
    )
    side.legend(loc="lower right", fontsize=7.5)
    for one in (axes, side):
        one.set_xlabel("number of drafts k")
    drawing.note(canvas, f"green band: q = p, the paper's green line · {curves.caption(data)}")
    return canvas


def _over_k(axes: Axes, series: dict[str, Any], *, colour: str, label: str) -> None:
    curves.draw_schemes(
        axes, series["k"], series, curves.counts_of(series["points"]), colour=colour, label=label
    )
