"""Score pieces of the optimal verifier on a small example, by stretches of [0, 1].

Every draft gets an independent score, uniform on the pieces of its atom; the draft with the largest
score is selected. The pieces tile [0, 1] and are nested: an atom of higher level wraps around the
blocks that it absorbed (a left-curtain coupling).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

import otm
from figures.work import Work
from otm._display import drawing

K = 2
DRAFT = (0.40, 0.24, 0.16, 0.12, 0.08)
TARGET = (0.10, 0.12, 0.18, 0.25, 0.35)
NAMES = "ABCDE"


def compute(work: Work) -> dict[str, Any]:
    """Return atoms, pieces and the law of the selected draft, with a Monte Carlo check."""
    problem = otm.Problem(draft=DRAFT, target=TARGET, law=otm.IID(K))
    rule: Any = otm.prepare(otm.Optimal(), problem)
    draws = otm.sample(otm.Optimal(), problem, size=work.samples, rng=work.rng)
    work.tick()
    scores = rule.scores
    return {
        "k": K,
        "draft": list(DRAFT),
        "target": list(TARGET),
        "selection": rule.selection_law.tolist(),
        "token_level": rule.level.tolist(),
        "atom_level": scores.level[1:].tolist(),
        "pieces": [
            {"atom": int(atom) - 1, "left": float(1 - gap - length), "length": float(length)}
            for atom, gap, length in zip(scores.owner, scores.gap, scores.length, strict=True)
            if atom > 0
        ],
        "optimum": otm.optimal_acceptance(problem),
        "accepted_share": float(np.mean(draws.accepted)),
        "output_share": np.bincount(draws.output, minlength=len(DRAFT)).tolist(),
        "samples": work.samples,
    }


def message(data: dict[str, Any]) -> str:
    """Return the headline of the picture, a sentence with numbers from the data."""
    selected = sum(map(min, data["selection"], data["target"]))
    drafted = sum(map(min, data["draft"], data["target"]))
    return (
        f"Selecting one of {data['k']} drafts by its score lifts the overlap with the target from "
        f"{drafted:.2f} to {selected:.2f}, the optimum"
    )


def draw(data: dict[str, Any]) -> Figure:
    """Draw the pieces over [0, 1], one row per atom, and the three laws at the side."""
    canvas = Figure(figsize=(8.6, 3.7), layout="constrained")
    axes, side = canvas.subplots(1, 2, width_ratios=(1.7, 1.0))
    levels = data["atom_level"]
    for piece in data["pieces"]:
        colour = drawing.PALETTE[piece["atom"] % len(drawing.PALETTE)]
        axes.barh(
            piece["atom"],
            piece["length"],
            left=piece["left"],
            height=0.62,
            color=colour,
            edgecolor="white",
            lw=0.8,
        )
    axes.set_yticks(
        range(len(levels)), [_atom_label(level, data) for level in levels], fontsize=8.5
    )
    axes.set_xlim(0, 1)
    axes.set_xlabel("score u: the draft with the largest score is selected")
    axes.set_title(f"where each atom's score falls (k = {data['k']})", fontsize=10)
    axes.grid(axis="y", visible=False)
    place = np.arange(len(data["draft"]))
    for offset, (name, label, colour) in enumerate(
        (
            ("draft", "draft p", drawing.PALETTE[4]),
            ("selection", "selected s", drawing.PALETTE[0]),
            ("target", "target q", "#222222"),
        )
    ):
        side.bar(place + 0.27 * (offset - 1), data[name], 0.25, color=colour, label=label)
    side.set_xticks(place, list(NAMES))
    side.set_ylabel("probability")
    side.set_title(f"Σ min(s, q) = {data['optimum']:.4f} = α*", fontsize=10)
    side.legend(fontsize=8)
    return canvas


def _atom_label(level: float, data: dict[str, Any]) -> str:
    tokens = [NAMES[i] for i, own in enumerate(data["token_level"]) if abs(own - level) < 1e-9]
    return f"{', '.join(tokens) or 'shared'}\n(level {level:.2f})"
