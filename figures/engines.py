"""Tokens per call that running engines reach as they are, and after a change of a few lines.

From the records of `python -m evidence.engines --trained`: the shipped pair, chains of four drafts.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from figures.paths import ROOT
from figures.work import Work
from otm._display import drawing
from otm._machine.arrays import Floats
from otm.results.statistics import Estimate, ratio_of_means

RESULTS = ROOT.parent / "evidence" / "engines" / "results" / "trained"

NAMES = {
    "llama_cpp": "llama.cpp",
    "mlx_lm": "MLX-LM",
    "transformers": "transformers",
    "own_loop": "transformers",
}
"""Engines by the names of their records, in the order of tables."""

_COLOURS = {1.0: drawing.PALETTE[0], 0.7: drawing.PALETTE[4], 0.3: drawing.PALETTE[1]}


def results(stem: str) -> list[dict[str, Any]]:
    """Read what an engine's record tells of each configuration."""
    record = json.loads((RESULTS / f"{stem}.json").read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = record["results"]
    return found


def numbers(found: dict[str, Any], name: str) -> Floats:
    """Return the numbers of a result, one for each text; none of what is not known."""
    return np.array(found[name].split(), dtype=float)


def counted(found: dict[str, Any]) -> Estimate:
    """Return tokens a call of a result, with an interval over its prompts."""
    steps = numbers(found, "steps")
    return ratio_of_means(np.full(len(steps), float(found["tokens"])), steps)


def exact(found: dict[str, Any], name: str) -> float | None:
    """Return tokens a call by the computed steps of this name; None if they are not known."""
    steps = numbers(found, name)
    return float(found["tokens"] / steps.mean()) if len(steps) else None


def compute(work: Work) -> dict[str, Any]:
    """Return the counted and the computed tokens a call, by engine and configuration."""
    drafting = [
        (engine, found, counted(found))
        for stem, engine in NAMES.items()
        for found in results(stem)
        if found["rule"] != "none"
    ]
    work.tick()
    return {
        "rows": [
            {
                "engine": engine,
                "name": found["name"],
                "temperature": found["temperature"],
                "counted": [float(x) for x in (value.low, value.value, value.high)],
                "predicted": exact(found, "predicted"),
            }
            for engine, found, value in drafting
        ]
    }


def message(data: dict[str, Any]) -> str:
    """Return the headline of the picture, a sentence with numbers from the data."""
    at_one = [row for row in data["rows"] if row["temperature"] == 1.0]
    usual = {row["engine"]: row for row in at_one if row["name"] == "as it is"}
    one, other = max(
        ((usual[row["engine"]], row) for row in at_one),
        key=lambda pair: pair[1]["counted"][1] / pair[0]["counted"][1],
    )
    return (
        f"The same two models, a few lines changed: {other['engine']} at T\u00a0=\u00a01 writes "
        f"{other['counted'][1]:.2f} tokens a call, not {one['counted'][1]:.2f}"
    )


def draw(data: dict[str, Any]) -> Figure:
    """Draw a line for each configuration, with what was counted at each temperature.

    Narrow, with large letters: read on phones as well.
    """
    canvas = Figure(figsize=(4.8, 5.4), layout="constrained")
    axes = canvas.subplots()
    labels = list(dict.fromkeys((row["engine"], row["name"]) for row in data["rows"]))
    engines = list(dict.fromkeys(engine for engine, _ in labels))
    places = [i + 0.8 * engines.index(engine) for i, (engine, _) in enumerate(labels)]
    for i, (temperature, colour) in enumerate(_COLOURS.items()):
        rows = [row for row in data["rows"] if row["temperature"] == temperature]
        at = np.array(places) + 0.25 * (i - 1)
        ends = np.array([row["counted"] for row in rows])
        axes.errorbar(
            ends[:, 1],
            at,
            xerr=np.abs(ends[:, ::2] - ends[:, 1:2]).T,
            fmt=drawing.MARKERS[i],
            color=colour,
            label=f"T = {temperature:g}",
        )
        exactly = np.array([row["predicted"] for row in rows], dtype=float)
        axes.plot(exactly, at, "|", color="#111111", markersize=9)
    axes.plot([], [], "|", color="#111111", markersize=9, label="exact, for the same texts")
    for engine in engines:
        top = min(at for at, (name, _) in zip(places, labels, strict=True) if name == engine)
        across = axes.get_yaxis_transform()
        axes.text(-0.02, top - 0.65, engine, weight="bold", ha="right", transform=across)
    axes.set_yticks(places, [name for _, name in labels])
    axes.set_ylim(places[-1] + 0.6, -1.1)
    axes.set_xlabel("tokens per call of the target, four drafts in a row")
    canvas.legend(loc="outside lower center", ncols=2)
    return canvas
