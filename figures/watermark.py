"""Watermark strength against acceptance: Gumbel watermarks, with the race at their end.

The key of a watermark holds the clocks of a race. Mixed in part γ into both models, a watermark
makes the draft's law (1 − γ')p + γ'·1{draft race's winner} and the target's (1 − γ)q + γ·1{target
race's winner}, to be verified losslessly given the key: without it the output has law q. Its
strength is what the token tells of the key, E KL(watermarked target‖target). γ = 1 is `otm.Race`:
the token is a function of the key, of strength H(q), and drafts are accepted when both races have
one winner. γ = 0 is speculative sampling without a watermark. Both ends at once (Hu & Huang 2024,
2410.20418: not for watermarks of this kind) are had where the coin of acceptance and the draw after
a rejection come from the key as well (He et al. 2026, 2602.01428).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

import otm
from figures.landscape import pairs
from figures.work import Work
from otm import drawing


def compute(work: Work) -> dict[str, Any]:
    """Return, for every pair, strength and acceptance over γ, at each the best γ'."""
    parts = np.linspace(0.0, 1.0, 6 if work.fast else 41)
    panels = []
    for name, draft, target in pairs():
        problem = otm.Problem(draft=draft, target=target, law=otm.IID(1))
        joint = otm.coupling(otm.Race(), problem)
        winners = np.zeros((len(target), len(target)))
        winners[joint.drafts[:, 0]] = joint.joint.toarray()
        strengths = [strength(problem.target, part) for part in parts]
        accepted = [
            max(acceptance(problem, winners, part, drafted) for drafted in parts) for part in parts
        ]
        panels.append(
            {
                "name": name,
                "part": parts.tolist(),
                "strength": strengths,
                "acceptance": accepted,
                "race": float(otm.acceptance(otm.Race(), problem)),
                "speculative": float(otm.acceptance(otm.Maximal(), problem)),
                "entropy": strength(problem.target, 1.0),
            }
        )
        work.tick()
    return {"panels": panels}


def strength(target: NDArray[np.float64], part: float) -> float:
    """Return E KL((1 − γ)q + γ·1_Y ‖ q) for Y ~ q, in nats: H(q) at γ = 1.

    >>> round(strength(np.array([0.5, 0.5]), 1.0), 6)
    0.693147
    """
    q = target[target > 0]
    won = (1.0 - part) * q + part
    rest = (1.0 - part) * np.log1p(-part) if part < 1.0 else 0.0
    return float(q @ (won * np.log(won / q) + (1.0 - q) * rest))


def acceptance(
    problem: otm.Problem, winners: NDArray[np.float64], part: float, drafted: float
) -> float:
    """Return E Σ min of the two watermarked laws, given the joint law of the races' winners."""
    p, q = (1.0 - drafted) * problem.draft, (1.0 - part) * problem.target
    both = np.minimum(p, q)
    draft_wins, target_wins = np.minimum(p + drafted, q) - both, np.minimum(p, q + part) - both
    apart = draft_wins[:, None] + target_wins[None, :]
    np.fill_diagonal(apart, np.minimum(p + drafted, q + part) - both)
    return float(both.sum() + (winners * apart).sum())


def message(data: dict[str, Any]) -> str:
    """Return what the picture shows."""
    said = [
        f"{100 * (panel['speculative'] - panel['race']):.1f} points ({panel['name']})"
        for panel in data["panels"]
    ]
    return "A watermark of full strength costs acceptance: " + ", ".join(said)


def draw(data: dict[str, Any]) -> Figure:
    """Draw a line per pair, from speculative sampling to its race, a star at the keyed coin."""
    canvas, axes = drawing.figure(width=5.6, height=4.2)
    for number, panel in enumerate(data["panels"]):
        colour = drawing.PALETTE[number]
        axes.plot(panel["acceptance"], panel["strength"], color=colour)
        axes.plot([panel["speculative"]], [0.0], "o", color=colour, mfc="white")
        axes.plot([panel["race"]], [panel["entropy"]], "o", color=colour)
        axes.plot([panel["speculative"]], [panel["entropy"]], "*", color=colour, ms=9)
        axes.annotate(
            f"race, {panel['name']}",
            (panel["race"], panel["entropy"]),
            xytext=(-6, -3),
            textcoords="offset points",
            color=colour,
            fontsize=8,
            ha="right",
        )
    axes.set_xlabel("acceptance")
    axes.set_ylabel("watermark strength, nats per token")
    axes.margins(x=0.3, y=0.1)
    drawing.note(
        canvas, "open: no watermark · filled: the race · star: acceptance's coin in the key, too"
    )
    return canvas
