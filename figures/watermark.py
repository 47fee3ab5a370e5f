"""Watermark strength against acceptance: Gumbel watermarks, with the race at their end.

The key of a watermark holds the clocks of a race. Mixed in part γ into both models, a watermark
makes the draft's law (1 − γ')p + γ'·1{draft race's winner} and the target's (1 − γ)q + γ·1{target
race's winner}, to be verified losslessly given the key: without it the output has law q. Its
strength is what the token tells of the key, E KL(watermarked target‖target). γ = 1 is `otm.Race`:
the token is a function of the key, of strength H(q), and drafts are accepted when both races have
one winner. γ = 0 is speculative sampling without a watermark. No watermark of this kind has both
ends at once (Hu & Huang 2024, 2410.20418). One with a second key for what replaces a rejected draft
has all the acceptance and most of the strength (`otm.watermarks.DualKey`, as in vLLM), and all of
both where the coin of acceptance comes from the key as well (He et al. 2026, 2602.01428).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
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
                "two_keys": otm.watermarks.strength(
                    otm.watermarks.DualKey(), draft=problem.draft, target=problem.target
                ),
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
    lost = [100 * (panel["speculative"] - panel["race"]) for panel in data["panels"]]
    kept = [100 * panel["two_keys"] / panel["entropy"] for panel in data["panels"]]
    return (
        f"A watermark of full strength costs {min(lost):.0f} to {max(lost):.0f} points of "
        f"acceptance with one key; with two none, and it keeps {min(kept):.0f} to "
        f"{max(kept):.0f} % of its strength"
    )


def draw(data: dict[str, Any]) -> Figure:
    """Draw a line per pair, from no watermark to the race, and what two keys have beside it."""
    canvas, axes = drawing.figure(width=5.6, height=4.2)
    for number, panel in enumerate(data["panels"]):
        colour = drawing.PALETTE[number]
        axes.plot(panel["acceptance"], panel["strength"], color=colour)
        full = panel["speculative"]
        marks = (
            (full, 0.0, "o", "no watermark", (9, -3), "left"),
            (panel["race"], panel["entropy"], "o", "one key", (0, 8), "center"),
            (full, panel["two_keys"], "D", "two keys", (9, -3), "left"),
            (full, panel["entropy"], "*", "two keys,\nkeyed coin", (9, -8), "left"),
        )
        for x, y, shape, said, offset, side in marks:
            inside = "white" if said == "no watermark" else colour
            size = 9 if shape == "*" else 6
            axes.plot([x], [y], shape, color=colour, mfc=inside, ms=size)
            if number == 0:
                _label(axes, said, (x, y), offset, colour, side)
        half = len(panel["strength"]) // 2
        place = (panel["acceptance"][half], panel["strength"][half])
        left = number > 0
        _label(
            axes, panel["name"], place, (-6 if left else 8, -3), colour, "right" if left else "left"
        )
    axes.set_xlabel("acceptance")
    axes.set_ylabel("watermark strength, nats per token")
    axes.margins(x=0.3, y=0.15)
    drawing.note(canvas, "lines: one key, mixed in part into both models")
    return canvas


def _label(
    axes: Axes,
    said: str,
    place: tuple[float, float],
    offset: tuple[float, float],
    colour: str,
    side: str,
) -> None:
    """Write beside a point."""
    axes.annotate(
        said, place, xytext=offset, textcoords="offset points", color=colour, fontsize=8, ha=side
    )
