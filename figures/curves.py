"""Shared parts of Figures 1, 2, 3 and 5: exact curves of both schemes and Monte Carlo points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

import otm
from figures.work import Work
from otm._display import drawing

CONFIDENCE = 0.99
_WIDTH = 1.6


def exact(problem: otm.Problem, ks: Sequence[int]) -> dict[str, list[float]]:
    """Return the optimum and K-SEQ's acceptance over k."""
    return {
        "k": [int(k) for k in ks],
        "optimum": np.asarray(otm.optimal_acceptance_curve(problem, k=ks)).tolist(),
        "kseq": np.asarray(otm.acceptance_curve(otm.KSeq(), problem, k=ks)).tolist(),
    }


def monte_carlo(
    verifier: otm.Verifier, problem: otm.Problem, ks: Sequence[int], work: Work
) -> list[dict[str, float]]:
    """Run a verifier's sampler at each k; return means with Clopper–Pearson intervals.

    The intervals have level `CONFIDENCE`.
    """
    rows = []
    for k in ks:
        found = otm.estimate(
            verifier,
            problem.with_law(problem.law.of_size(k)),
            samples=work.samples,
            rng=work.rng,
            confidence=CONFIDENCE,
        )
        rows.append({"k": int(k), "mean": found.value, "low": found.low, "high": found.high})
        work.tick()
    return rows


def draw_schemes(
    axes: Axes,
    x: Sequence[float],
    series: dict[str, Any],
    sampled: Sequence[float],
    *,
    colour: str,
    label: str,
) -> None:
    """Draw the optimum (solid), K-SEQ (dashed) and the Monte Carlo points of both at `sampled`."""
    axes.plot(x, series["optimum"], color=colour, label=label, lw=_WIDTH)
    axes.plot(x, series["kseq"], color=colour, ls=drawing.DASHED, lw=0.75 * _WIDTH)
    drawing.points(axes, sampled, series["points"], colour=colour)
    drawing.points(axes, sampled, series["kseq_points"], colour=colour, marker="s")


def counts_of(points: Sequence[dict[str, float]]) -> list[float]:
    """Return the numbers of drafts of some points."""
    return [point["k"] for point in points]


def caption(data: dict[str, Any]) -> str:
    """Return a caption that explains the points."""
    return (
        f"points: Monte Carlo of the samplers, {data['samples']:,} draws, {CONFIDENCE:.0%} "
        "intervals"
    )


def scheme_legend(axes: Axes, *, centre: float) -> None:
    """Explain line style and marker of the two schemes, at the bottom, `centre` across the axes."""
    optimum = Line2D([], [], color="#444444", marker="o", mfc="white", label="OTM-k (optimum)")
    kseq = Line2D(
        [], [], color="#444444", marker="s", mfc="white", ls=drawing.DASHED, label=otm.KSeq.title
    )
    axes.legend(
        handles=[optimum, kseq], handlelength=3.2, loc="lower center", bbox_to_anchor=(centre, 0.0)
    )
