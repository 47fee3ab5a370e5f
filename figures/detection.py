"""The number of tokens after which a detector is sure of a lossy rule, at equal acceptance.

Each rule's parameter is set so that it accepts half of what lossless rejection rejects; rules that
test the drafted token alone cannot be set to every acceptance, and stand where they come within
MOST_OFF of it. The detector knows both models and the rule: the best test there is, with one false
alarm in a hundred texts of the target and nineteen of twenty texts of the rule found
(`otm.lossy.tokens_to_detect`). Tokens are independent draws of one context.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import otm
from figures.landscape import pairs
from figures.work import Work
from otm._display import drawing

MOST_OFF = 0.01
"""Largest distance of an acceptance from the common one."""

RULES: dict[str, Callable[[float], otm.Verifier]] = {
    "mentored decoding": lambda u: otm.Mentored(10.0 * u**3),
    "static ensemble": lambda u: otm.Ensemble(1.0 - u),
    "lenience": lambda u: otm.Lenience(max(1.0 - u, 1e-9)),
    "Cactus": lambda u: otm.Cactus(10.0 * u**3),
    "speculative cascade, token v3": lambda u: otm.Cascade(alpha=u),
    "typical acceptance": lambda u: otm.TypicalAcceptance(eps=1.0 - u, delta=10.0),
    "bounded regret": lambda u: otm.BoundedRegret(20.0 * u**2),
}
"""Rules by a number in [0, 1] that acceptance grows with."""


def compute(work: Work) -> dict[str, Any]:
    """Return each rule's acceptance, distances and tokens until detection, pair by pair."""
    panels = []
    for name, draft, target in pairs()[2:] if work.fast else pairs():
        problem = otm.Problem(draft=draft, target=target, law=otm.IID(1))
        wanted = 0.5 + 0.5 * float(otm.optimal_acceptance(problem))
        rows = []
        for title in list(RULES)[:2] if work.fast else RULES:
            rule, accepted = _nearest(RULES[title], problem, wanted)
            if abs(accepted - wanted) > MOST_OFF:
                continue
            law = otm.lossy.output_law(rule, problem)
            low, high = otm.lossy.tokens_to_detect(target=problem.target, output=law)
            far = otm.lossy.distortion(rule, problem)
            rows.append(
                {
                    "rule": title,
                    "acceptance": accepted,
                    "tv": far.total_variation,
                    "kl": None if np.isinf(far.kl) else far.kl,
                    "tokens": [low, high],
                }
            )
            work.tick()
        panels.append({"name": name, "acceptance": wanted, "rows": rows})
    return {"panels": panels}


def _nearest(
    rule: Callable[[float], otm.Verifier], problem: otm.Problem, wanted: float
) -> tuple[otm.Verifier, float]:
    """Return the rule of nearest acceptance, found by bisection of the rule's number."""
    low, high = 0.0, 1.0
    found = []
    for _ in range(40):
        middle = 0.5 * (low + high)
        accepted = float(otm.acceptance(rule(middle), problem))
        found.append((abs(accepted - wanted), middle, accepted))
        low, high = (middle, high) if accepted < wanted else (low, middle)
    _, number, accepted = min(found)
    return rule(number), accepted


def message(data: dict[str, Any]) -> str:
    """Return the headline of the picture, a sentence with numbers from the data."""
    spans = []
    for panel in data["panels"]:
        tokens = [sum(row["tokens"]) / 2 for row in panel["rows"]]
        spans.append(f"{min(tokens):.0f} to {max(tokens):.0f} tokens ({panel['name']})")
    return "Lossy rules at one acceptance are detected after " + ", ".join(spans)


def draw(data: dict[str, Any]) -> Figure:
    """Draw a panel per pair and a point per rule, with the last rule to be found on top."""
    canvas = Figure(figsize=(5.8, 1.0 + 1.9 * len(data["panels"])), layout="constrained")
    for axes, panel in zip(
        np.atleast_1d(canvas.subplots(len(data["panels"]), 1)), data["panels"], strict=True
    ):
        rows = sorted(panel["rows"], key=lambda row: row["tokens"][0])
        middles = [sum(row["tokens"]) / 2 for row in rows]
        axes.plot(middles, range(len(rows)), "o", color=drawing.PALETTE[0])
        for height, tokens in enumerate(middles):
            axes.annotate(
                f"{tokens:.0f}",
                (tokens, height),
                xytext=(6, -3),
                textcoords="offset points",
                fontsize=8,
            )
        axes.set_yticks(range(len(rows)), [row["rule"] for row in rows], fontsize=8)
        axes.set_xlim(0.0, 1.12 * middles[-1])
        axes.margins(y=0.12)
        axes.set_title(f"{panel['name']}, acceptance {panel['acceptance']:.3f}", fontsize=10)
    axes.set_xlabel("tokens until a detector is sure (power 0.95, level 0.01)")
    return canvas
