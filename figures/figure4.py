"""Figure 4 of SpecTr: draft selection among K = 6 drafts of L = 4 tokens, drawn as a tree.

The run is the library's own (`otm.sequence.DraftSelection` with K-SEQ and a fixed seed) on
conditional distributions that were captured from the shipped pair and committed.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.papers.selection_run import LENGTH, draft, select, survivors, table_of
from figures.paths import DATA
from figures.work import Work
from otm._display import drawing
from otm.sequence import TableModel

CAPTURE = DATA / "figure4.json"


def capture() -> dict[str, Any]:
    """Read the committed conditionals, prompt and seed."""
    record: dict[str, Any] = json.loads(CAPTURE.read_text(encoding="utf-8"))
    return record


def table(record: dict[str, Any], side: str) -> TableModel:
    """Rebuild one model from the captured conditionals."""
    rows: dict[tuple[int, ...], object] = {}
    for row in record[side]:
        mass = np.zeros(record["num_tokens"])
        mass[row["tokens"]] = row["mass"]
        rows[tuple(row["context"])] = mass
    return TableModel(rows)


def compute(work: Work) -> dict[str, Any]:
    """Return six drafts, the selection among these, and the survivors of each round."""
    record = capture()
    rng = np.random.default_rng(record["seed"])
    tree = draft(table(record, "draft"), record["context"], rng)
    selection = select(table(record, "target"), tree, rng)
    work.tick()
    return {
        "prompt": record["prompt"],
        "drafts": table_of(tree),
        "texts": record["texts"],
        "tokens": list(selection.tokens),
        "accepted": selection.accepted,
        "survivors": survivors(selection),
        "processing": record["processing"],
        "captured": record["manifest"],
    }


def message(data: dict[str, Any]) -> str:
    """Return the headline of the picture, a sentence with numbers from the data."""
    alive = " → ".join(str(len(some)) for some in data["survivors"])
    return (
        f"One step of draft selection accepts {data['accepted']} of {LENGTH} drafted tokens: "
        f"{alive} of K = {len(data['drafts'])} drafts stay alive"
    )


def draw(data: dict[str, Any]) -> Figure:
    """Draw the drafts' prefix tree, the accepted path in colour, the replacement dashed."""
    canvas = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = canvas.subplots()
    axes.set_axis_off()
    drafts = [tuple(row) for row in data["drafts"]]
    decoded = tuple(data["tokens"])
    height = _heights(drafts, decoded)
    root = height[()]
    _label(axes, 0.35, root, data["prompt"], colour="#222222", weight="bold", ha="right")
    for prefix in sorted(height, key=len):
        if not prefix:
            continue
        parent = prefix[:-1]
        count = sum(draft[: len(prefix)] == prefix for draft in drafts)
        on_path = prefix == decoded[: len(prefix)]
        colour = (
            drawing.PALETTE[1]
            if on_path and not count
            else drawing.PALETTE[0]
            if on_path
            else "#7A7A7A"
        )
        # From word to word, whose white boxes cover the ends: an edge touches both, however wide
        # they are.
        axes.plot(
            [len(parent) or 0.3, len(prefix)],
            [height[parent], height[prefix]],
            color=colour,
            lw=2.2 if on_path else 1.0,
            ls="--" if not count else "-",
            zorder=1,
        )
        text = _visible(data["texts"][str(prefix[-1])]) + (f"  ×{count}" if count > 1 else "")
        _label(
            axes,
            len(prefix),
            height[prefix],
            text,
            colour=colour,
            weight="bold" if on_path else "normal",
        )
    top = max(height.values()) + 0.8
    for level, alive in enumerate(data["survivors"]):
        axes.text(
            level + 1,
            top,
            f"round {level + 1}\n|S| = {len(alive)}",
            ha="center",
            fontsize=9,
            color="#222222",
        )
    axes.set_xlim(-0.75, LENGTH + 0.6)
    axes.set_ylim(min(height.values()) - 0.6, top + 0.9)
    drawing.note(
        canvas,
        f"|S|: drafts alive · ×n: n drafts share this prefix · blue: accepted ({data['accepted']} "
        "tokens)\n"
        f"orange: drawn instead in the last round · shipped pair, {data['processing']}, K-SEQ",
    )
    return canvas


def _heights(
    drafts: list[tuple[int, ...]], decoded: tuple[int, ...]
) -> dict[tuple[int, ...], float]:
    """Place leaves one below the other, heaviest branch first, inner nodes midway."""
    paths = sorted({*drafts, decoded}, key=lambda path: _branch_order(path, drafts, decoded))
    height: dict[tuple[int, ...], float] = {path: -float(i) for i, path in enumerate(paths)}
    for length in range(max(map(len, paths)) - 1, -1, -1):
        for path in paths:
            prefix = path[:length]
            children = [
                h
                for node, h in height.items()
                if len(node) == length + 1 and node[:length] == prefix
            ]
            if children:
                height[prefix] = (max(children) + min(children)) / 2
    return height


def _branch_order(
    path: tuple[int, ...], drafts: list[tuple[int, ...]], decoded: tuple[int, ...]
) -> list[tuple[int, int]]:
    return [
        (-sum(draft[: n + 1] == path[: n + 1] for draft in drafts), path[n])
        for n in range(len(path))
    ]


def _label(
    axes: Axes, x: float, y: float, text: str, *, colour: str, weight: str, ha: str = "center"
) -> None:
    axes.text(
        x,
        y,
        text.replace("$", r"\$"),
        ha=ha,
        va="center",
        fontsize=9,
        color=colour,
        fontweight=weight,
        zorder=2,
        bbox={"boxstyle": "round,pad=0.2", "fc": "white", "ec": "none"},
    )


def _visible(token: str) -> str:
    """Show a token without a leading space, and line breaks as a sign."""
    return token.replace("\n", "⏎").strip() or "␣"
