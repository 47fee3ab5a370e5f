"""Tokens per call that running engines reach as they are, and after a change of a few lines.

From the records of `python -m evidence.engines --pair NAME`: two pairs, chains of four drafts.
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

RESULTS = ROOT.parent / "evidence" / "engines" / "results"

PAIRS = {"shipped": "tiny pair", "public": "SmolLM2-135M-Instruct"}
"""Pairs by the folders of their records."""

NAMES = {
    "llama_cpp": "llama.cpp",
    "mlx_lm": "MLX-LM",
    "transformers": "transformers",
    "own_loop": "transformers",
}
"""Engines by the names of their records, in the order of tables."""

_COLOURS = {1.0: drawing.PALETTE[0], 0.7: drawing.PALETTE[4], 0.3: drawing.PALETTE[1]}


def results(stem: str, pair: str) -> list[dict[str, Any]]:
    """Read what an engine's record with a pair tells of each configuration."""
    record = json.loads((RESULTS / pair / f"{stem}.json").read_text(encoding="utf-8"))
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
    """Return the counted and the computed tokens a call, by pair, engine and configuration."""
    drafting = [
        (pair, engine, found, counted(found))
        for pair in PAIRS
        for stem, engine in NAMES.items()
        for found in results(stem, pair)
        if found["rule"] != "none"
    ]
    work.tick()
    return {
        "rows": [
            {
                "pair": pair,
                "engine": engine,
                "name": found["name"],
                "temperature": found["temperature"],
                "counted": [float(x) for x in (value.low, value.value, value.high)],
                "predicted": exact(found, "predicted"),
            }
            for pair, engine, found, value in drafting
        ]
    }


def message(data: dict[str, Any]) -> str:
    """Return the headline of the picture, a sentence with numbers from the data."""
    at_one = [row for row in data["rows"] if row["temperature"] == 1.0 and row["pair"] == "public"]
    usual = {row["engine"]: row for row in at_one if row["name"] == "as it is"}
    one, other = max(
        ((usual[row["engine"]], row) for row in at_one),
        key=lambda pair: pair[1]["counted"][1] / pair[0]["counted"][1],
    )
    return (
        f"The same two models, a few lines changed: with {PAIRS['public']} {other['engine']} at "
        f"T\u00a0=\u00a01 writes {other['counted'][1]:.2f} tokens a call, not "
        f"{one['counted'][1]:.2f}"
    )


def draw(data: dict[str, Any]) -> Figure:
    """Draw a line for each configuration, with what was counted at each temperature.

    Narrow, with large letters: read on phones as well.
    """
    canvas = Figure(figsize=(4.8, 5.4), layout="constrained")
    labels = list(dict.fromkeys((row["engine"], row["name"]) for row in data["rows"]))
    engines = list(dict.fromkeys(engine for engine, _ in labels))
    places = {label: i + 0.8 * engines.index(label[0]) for i, label in enumerate(labels)}
    panels = canvas.subplots(ncols=len(PAIRS), sharex=True, sharey=True)
    for axes, (pair, title) in zip(panels, PAIRS.items(), strict=True):
        _panel(axes, [row for row in data["rows"] if row["pair"] == pair], places)
        axes.set_title(title, fontsize="medium")
    for engine in engines:
        top = min(at for (name, _), at in places.items() if name == engine)
        across = panels[0].get_yaxis_transform()
        panels[0].text(-0.04, top - 0.65, engine, weight="bold", ha="right", transform=across)
    panels[0].set_yticks(list(places.values()), [name for _, name in labels])
    panels[0].set_ylim(max(places.values()) + 0.6, -1.1)
    canvas.legend(
        *panels[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=2,
        # stands where the label of both axes would
        title="tokens per call of the target, four drafts in a row",
    )
    return canvas


def _panel(axes: Any, rows: list[dict[str, Any]], places: dict[tuple[str, str], float]) -> None:
    """Draw what was counted with one pair, and ticks at what was computed."""
    for i, (temperature, colour) in enumerate(_COLOURS.items()):
        shown = [row for row in rows if row["temperature"] == temperature]
        at = np.array([places[row["engine"], row["name"]] for row in shown]) + 0.25 * (i - 1)
        ends = np.array([row["counted"] for row in shown]).reshape(-1, 3)
        axes.errorbar(
            ends[:, 1],
            at,
            xerr=np.abs(ends[:, ::2] - ends[:, 1:2]).T,
            fmt=drawing.MARKERS[i],
            color=colour,
            label=f"T = {temperature:g}",
        )
        exactly = np.array([row["predicted"] for row in shown], dtype=float)
        axes.plot(exactly, at, "|", color="#111111", markersize=9)
    axes.plot([], [], "|", color="#111111", markersize=9, label="exact, for the same texts")
