"""Acceptance of lossy rules against distance from the target, beside the best at each distance.

From above: one sampled draft, acceptance over total variation, where the rules whose output lies
between draft and target are all on the frontier, and over the divergence, which tells them apart;
the likeliest tokens as siblings, by SGLang's thresholds; chains of the likeliest token, tokens per
call of FLy over the total variation of the text. The frontier of means over contexts is min(1, mean
optimum + TV): a bit of total variation buys as much in one context as in another, until all is
accepted.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import otm
from figures.captures import captures
from figures.work import Work
from otm._display import drawing
from otm.sequence import Fly

BETWEEN = ("Ensemble", "Lenience", "Mentored", "Cactus", "Cascade, OPT", "Fuzzy")
"""Rules whose output lies between draft and target, token by token: on the frontier in every
context.
"""

TESTS = ("Cascade, Token v3", "BoundedRegret", "TypicalAcceptance", "RelaxedAcceptance", "Mars")
"""Rules that test the drafted token against the target alone."""

SIBLINGS = ("accumulated", "single")
"""The thresholds of `otm.ThresholdMatching`, by the parameter."""


def compute(work: Work) -> dict[str, Any]:
    """Return the committed results of `experiment lossy_rules`, on the public pair if present."""
    pair, record = list(captures("lossy_rules").items())[-1]
    work.tick()
    return {
        name: record[name]
        for name in ("num_contexts", "num_prompts", "one_draft", "siblings", "chains")
    } | {
        "pair": pair,
        "captured": record["manifest"],
    }


def message(data: dict[str, Any]) -> str:
    """Return the headline of the picture, a sentence with numbers from the data."""
    lost = [row["gap"] for row in data["one_draft"]["rows"] if row["rule"] in TESTS]
    return (
        f"Rules that test the drafted token alone accept {100 * min(lost):.0f} to "
        f"{100 * max(lost):.0f} points less than their distance from the target allows; those "
        "between draft and target accept all of it"
    )


def draw(data: dict[str, Any]) -> Figure:
    """Draw the four panels, one below the other, with a name at each line."""
    canvas = Figure(figsize=(5.4, 11.6), layout="constrained")
    total, divergence, siblings, chains = canvas.subplots(4, 1)
    _over_variation(total, data["one_draft"], TESTS, BETWEEN)
    total.set_title("one sampled draft", fontsize=10)
    _over_divergence(divergence, data["one_draft"])
    divergence.set_title("one sampled draft, rules on the frontier above", fontsize=10)
    _over_variation(siblings, data["siblings"], SIBLINGS, ())
    siblings.set_title(
        f"the {data['siblings']['k']} likeliest tokens, {otm.ThresholdMatching.title}", fontsize=10
    )
    _chains(chains, data["chains"])
    windows = ", ".join(
        str(window)
        for window in sorted({row["window"] for row in data["chains"]["rows"]}, reverse=True)
    )
    chains.set_title(
        f"chains of {data['chains']['length']} likeliest tokens, {Fly.title} with windows "
        f"{windows}",
        fontsize=10,
    )
    drawing.note(canvas, f"{data['pair']}, {data['num_contexts']} contexts of held-out text, means")
    return canvas


def title(rule: str) -> str:
    """Return the display name of a rule of the record: a class and a variant, or a parameter.

    >>> title("Cascade, OPT")
    'speculative cascade, OPT'
    """
    name, _, variant = rule.partition(", ")
    return ", ".join(
        filter(None, (getattr(otm, name).title if hasattr(otm, name) else name, variant))
    )


def _over_variation(
    axes: Axes, data: dict[str, Any], below: Sequence[str], on: Sequence[str]
) -> None:
    """Draw the frontier min(1, α* + TV), lines below, and markers for rules on the frontier."""
    best, most = data["optimum"], max(row["tv"] for row in data["rows"])
    axes.plot([0, 1 - best, max(most, 1 - best)], [best, 1, 1], color="black", lw=1.6)
    axes.annotate(
        "frontier", (0.35 * (1 - best), best + 0.35 * (1 - best)), xytext=(-4, 6), **_AT, ha="right"
    )
    for number, rule in enumerate(on):
        rows = _rows(data, rule)
        axes.plot(
            [row["tv"] for row in rows],
            [row["acceptance"] for row in rows],
            drawing.MARKERS[number],
            color="#666666",
            ms=3.5,
        )
    if on:
        axes.annotate(
            textwrap.fill("on it: " + ", ".join(map(title, on)), 50),
            (0.98, 0.05),
            ha="right",
            xycoords="axes fraction",
            fontsize=7.5,
            color="#444444",
        )
    for number, rule in enumerate(below):
        _line(
            axes,
            _rows(data, rule),
            "tv",
            "acceptance",
            title(rule),
            drawing.PALETTE[number],
            *PLACES.get(rule, _RIGHT),
        )
    axes.set_xlabel("total variation from the target")
    axes.set_ylabel("acceptance")


def _over_divergence(axes: Axes, data: dict[str, Any]) -> None:
    """Draw the rules between draft and target over KL(target‖output)."""
    infinite = []
    for number, rule in enumerate(BETWEEN):
        rows = [row for row in _rows(data, rule) if row["kl"] is not None and row["kl"] > 0]
        if not rows:
            infinite.append(title(rule))
            continue
        colour = "black" if rule == "Mentored" else drawing.PALETTE[number]
        _line(axes, rows, "kl", "acceptance", title(rule), colour, *PLACES.get(rule, _RIGHT))
    note = (
        "mentored decoding is the best within its budget in each context,\n"
        "one budget for all; the ensemble spends more where it wins more,\n"
        "and passes it in the mean"
    )
    # where such a rule decodes by the draft, a token that the draft does not score never comes out
    if infinite:
        note += "\ninfinite: " + ", ".join(infinite)
    axes.annotate(
        note, (0.98, 0.04), ha="right", xycoords="axes fraction", fontsize=7.5, color="#444444"
    )
    axes.set_xlabel("KL(target‖output), nats")
    axes.set_ylabel("acceptance")


def _chains(axes: Axes, data: dict[str, Any]) -> None:
    """Draw tokens per call over the text's total variation.

    The frontier moves texts that leave the chain first to its end.
    """
    length, matches = data["length"], np.array(data["matches"])
    gains = length - np.arange(length + 1)
    lossless = 1 + float(np.arange(length + 1) @ matches)
    reach = np.append(0.0, np.cumsum(matches))
    axes.plot(reach, lossless + np.append(0.0, np.cumsum(matches * gains)), color="black", lw=1.6)
    axes.annotate(
        "frontier",
        (reach[1] / 2, lossless + gains[0] * matches[0] / 2),
        xytext=(-4, 6),
        **_AT,
        ha="right",
    )
    for number, samples in enumerate(sorted({row["samples"] for row in data["rows"]})):
        rows = [row for row in data["rows"] if row["samples"] == samples]
        name = f"{samples} sample{'s' if samples > 1 else ''} of the target"
        _line(
            axes,
            rows,
            "tv",
            "tokens",
            name,
            drawing.PALETTE[number],
            0.8,
            6,
            -7 if samples == 1 else -5,
            "left",
        )
    axes.set_xlabel("total variation of the text from the target's")
    axes.set_ylabel("tokens per target call")


_AT: dict[str, Any] = {"textcoords": "offset points", "fontsize": 8}
_RIGHT = (1.0, 5, -3, "left")
PLACES: dict[str, tuple[float, int, int, str]] = {
    "Cascade, Token v3": (0.0, -78, -13, "left"),
    "BoundedRegret": (0.8, 7, -4, "left"),
    "TypicalAcceptance": (1.0, 5, 0, "left"),
    "RelaxedAcceptance": (0.6, 7, -5, "left"),
    "Mars": (0.0, -6, 0, "right"),
    "Mentored": (0.8, -7, 2, "right"),
    "Ensemble": (0.68, -6, 6, "right"),
    "Lenience": (0.84, 7, -5, "left"),
    "Cactus": (0.99, 6, -6, "left"),
    "Fuzzy": (0.6, 6, -6, "left"),
    "Cascade, OPT": (0.25, 6, -6, "left"),
    "accumulated": (1.0, -8, 8, "left"),
    "single": (0.6, 7, -8, "left"),
}
"""Place of a line's name: along the line (0 at its start), points off, and side."""


def _line(
    axes: Axes,
    rows: Sequence[dict[str, Any]],
    x: str,
    y: str,
    name: str,
    colour: str,
    along: float,
    right: int,
    up: int,
    side: str,
) -> None:
    axes.plot([row[x] for row in rows], [row[y] for row in rows], "o-", color=colour, ms=3, lw=1.2)
    at = rows[round(along * (len(rows) - 1))]
    axes.annotate(name, (at[x], at[y]), xytext=(right, up), color=colour, ha=side, **_AT)


def _rows(data: dict[str, Any], rule: str) -> list[dict[str, Any]]:
    return sorted((row for row in data["rows"] if row["rule"] == rule), key=lambda row: row["tv"])
