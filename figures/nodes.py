"""Tokens per call against verified nodes, scheme by scheme.

From the records of `otm steps --nodes …` on the shipped pair: a panel for each
temperature of both models.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.paths import DATA
from figures.work import Work
from otm._display import drawing

TEMPERATURES = (1.0, 0.6, 0.3, 0.0)
NODES = 64
"""Budget at which schemes are ranked."""

BOUND, REFINED = "at most, by level cuts", "refined scores"
NOISE_TREE, LIKELIEST = "tree on shared noise", "likeliest tree"
"""Names of the records, of the schemes that pictures and tables tell apart."""

SHOWN = {
    BOUND: "at most, K i.i.d. sequences",
    REFINED: "refined scores",
    NOISE_TREE: "tree on shared noise",
    "block K-SEQ": "block K-SEQ",
    "optimal, vertex by vertex": "optimal, vertex by vertex",
    "traversal verification": "traversal, K sequences",
    LIKELIEST: "likeliest tree, matched",
    "block verification, one sequence": "one sequence as a block",
}
"""Names in the legend, by names in the records."""


def read(stem: str, values: Iterable[float]) -> dict[float, dict[str, Any]]:
    """Return the existing committed records by the number in each file's name."""
    paths = {value: DATA / f"{stem}_{value:g}.json" for value in values}
    return {
        value: json.loads(path.read_text(encoding="utf-8"))
        for value, path in paths.items()
        if path.is_file()
    }


def compute(work: Work) -> dict[str, Any]:
    """Return the records' rows by temperature."""
    found = read("nodes", TEMPERATURES)
    work.tick()
    return {
        "temperatures": [
            {"temperature": value} | record["tables"][0] for value, record in found.items()
        ],
        "captured": {f"nodes_{value:g}": record["manifest"] for value, record in found.items()},
    }


def draw(data: dict[str, Any]) -> Figure:
    """Draw the panels with one legend for all."""
    panels = len(data["temperatures"])
    canvas = Figure(figsize=(2.75 * panels, 3.9), layout="constrained")
    axes = canvas.subplots(1, panels, sharey=True)
    for panel, table in zip(axes, data["temperatures"], strict=True):
        lines(panel, [(row["nodes"], row) for row in table["rows"]])
        panel.set_xscale("log", base=2)
        nodes = sorted({row["nodes"] for row in table["rows"]})
        panel.set_xticks(nodes, [str(number) for number in nodes])
        panel.set_xlabel("different nodes verified")
        panel.set_title(f"T = {table['temperature']:g}", fontsize=10)
        if not table["temperature"]:  # without noise the likeliest tree is the tree on it
            panel.text(0.05, 0.95, "both trees are one", va="top", transform=panel.transAxes)
    axes[0].set_ylabel("tokens per call")
    legend(canvas, axes[0])
    return canvas


def legend(canvas: Figure, panel: Axes) -> None:
    """Name the lines of a panel below the picture."""
    drawn, names = panel.get_legend_handles_labels()
    canvas.legend(
        drawn,
        names,
        loc="outside lower center",
        ncols=4,
        fontsize=8,
        title="shaded: 95 % intervals",
        title_fontsize=8,
    )


def message(data: dict[str, Any]) -> str:
    """Return the headline of the picture, a sentence with numbers from the data."""
    table = data["temperatures"][0]
    means = {row["name"]: row["mean"] for row in table["rows"] if row["nodes"] == NODES}
    said = [
        f"{means[name]:.2f} {words}"
        for name, words in (
            (LIKELIEST, "as the likeliest tree"),
            (NOISE_TREE, "on shared noise"),
            (REFINED, "by refined scores, which keep draft probabilities"),
        )
        if name in means
    ]
    return f"Tokens per call of {NODES} verified nodes, T = {table['temperature']:g}: " + ", ".join(
        said
    )


def lines(panel: Axes, rows: list[tuple[float, dict[str, Any]]]) -> None:
    """Draw a line for each scheme that has rows, with intervals."""
    for place, (name, words) in enumerate(SHOWN.items()):
        points = sorted(
            (at, row["mean"], row["low"], row["high"]) for at, row in rows if row["name"] == name
        )
        if not points:
            continue
        at, mean, low, high = zip(*points, strict=True)
        bound = place == 0
        colour = drawing.INK if bound else drawing.PALETTE[(place - 1) % len(drawing.PALETTE)]
        panel.plot(
            at,
            mean,
            color=colour,
            linestyle=drawing.DASHED if bound else "-",
            marker="" if bound else drawing.MARKERS[place - 1],
            ms=4,
            lw=2.2 if name == NOISE_TREE else 1.2,
            label=words,
        )
        if name in (NOISE_TREE, LIKELIEST):
            panel.fill_between(at, low, high, color=colour, alpha=0.15, lw=0)
