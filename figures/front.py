"""The README's picture: the gain of a better verifier with the same drafts, on a real pair.

The pair of Figure 5. The gain is written where it is largest, over the better of the two verifiers
that are in use.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

import otm
from figures import figure5
from figures.work import Work
from otm._display import drawing

KS = tuple(range(1, 11))
IN_USE = (otm.KSeq(), otm.RecursiveRejection())
_BESIDE: dict[str, Any] = {"textcoords": "offset points", "fontsize": 11}


def compute(work: Work) -> dict[str, Any]:
    """Return the optimum and the acceptance of the verifiers in use, by number of drafts."""
    record = figure5.capture()
    draft, target = (
        otm.normalise(np.array(record["draft"])),
        otm.normalise(np.array(record["target"])),
    )
    problem = otm.Problem(draft=draft, target=target, law=otm.IID(1))
    curves = {
        str(verifier): np.asarray(otm.acceptance_curve(verifier, problem, k=KS)).tolist()
        for verifier in IN_USE
    }
    return {
        "k": list(KS),
        "optimum": np.asarray(otm.optimal_acceptance_curve(problem, k=KS)).tolist(),
        "in_use": curves,
        "captured": record["manifest"],
    }


def message(data: dict[str, Any]) -> str:
    """Return the headline of the picture, a sentence with numbers from the data."""
    gain, k = max(
        (best - max(used), k)
        for best, k, *used in zip(data["optimum"], data["k"], *data["in_use"].values(), strict=True)
    )
    return (
        f"The same {k} drafts, the same output law: a better verifier accepts up to "
        f"{100 * gain:.1f} points more"
    )


def draw(data: dict[str, Any]) -> Figure:
    """Draw the curves with their names beside them, and the shaded gap with the largest gain.

    Narrow, with large letters: read on phones as well.
    """
    canvas = Figure(figsize=(4.8, 4.0), layout="constrained")
    axes = canvas.subplots()
    ks, optimum = np.array(data["k"]), np.array(data["optimum"])
    best = np.max(list(data["in_use"].values()), axis=0)
    at = int(np.argmax(optimum - best))
    axes.fill_between(ks, best, optimum, color=drawing.PALETTE[0], alpha=0.15, lw=0)
    axes.plot(ks, optimum, "o-", color="#111111")
    axes.annotate("the best possible", (ks[4], optimum[4]), (0, 11), **_BESIDE, weight="bold")
    for i, (name, curve) in enumerate(data["in_use"].items()):
        colour = drawing.PALETTE[i + 1]
        axes.plot(ks, curve, drawing.MARKERS[i + 1] + "-", color=colour)
        axes.annotate(name, (ks[4], curve[4]), (7, -13), **_BESIDE, color=colour)
    axes.annotate(
        "",
        (ks[at], best[at]),
        (ks[at], optimum[at]),
        arrowprops={"arrowstyle": "<->", "color": "#111111"},
    )
    axes.text(
        ks[-1],
        0.79,
        f"rejected {100 * (1 - optimum[at]):.1f} % of the time\n"
        f"instead of {100 * (1 - best[at]):.1f} %",
        fontsize=12,
        weight="bold",
        ha="right",
        va="center",
    )
    axes.set_xlabel("drafts per position")
    axes.set_ylabel("probability that a draft is accepted")
    axes.set_xticks(ks)
    axes.set_ylim(0.76, 1.025)
    return canvas
