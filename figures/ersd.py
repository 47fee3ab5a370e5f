"""Shared parts of ERSD's Figures 3 and 4: trees along texts of each pair, the 0-th order theory.

The theory knows one acceptance vector A per method, measured from sequences and batches, and
assumes that every vertex of every tree has it, whatever was accepted before. Where a pair agrees in
stretches, that underestimates long paths, as the paper found.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from figures.captures import by_pair
from figures.work import Work
from otm._display import drawing
from otm.trees import TreeShape
from otm.trees.optimal import OptimalTree, optimal_tree, tree_acceptance
from otm.trees.tunstall import tunstall_explored_upper, tunstall_minimum_upper

STRATEGIES = ("batch", "sequence", "SpecInfer", "optimal")
COLOURS = dict(
    zip(
        STRATEGIES,
        (drawing.PALETTE[4], drawing.PALETTE[0], drawing.PALETTE[2], drawing.PALETTE[1]),
        strict=True,
    )
)
MARKERS = dict(zip(STRATEGIES, "sD^o", strict=True))
NAMES = {
    "batch": "batch",
    "sequence": "sequence",
    "SpecInfer": "SpecInfer tree",
    "optimal": "optimal tree",
}
METHODS = {"GSD": "GSD: recursive rejection", "ERSD": "ERSD: exponential races"}
BOUND = "#8A8A8A"
MOST = 32
"""Drafted tokens at most."""


def compute(work: Work, of_method: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """Return the value of `of_method` for each method on each pair, from `experiment ersd`."""

    def of_pair(record: dict[str, Any]) -> dict[str, Any]:
        work.tick()
        first = record["methods"]["GSD"]["runs"][0]
        return {
            "panels": [
                {"method": name} | of_method(method) for name, method in record["methods"].items()
            ],
            "num_prompts": first["num_prompts"],
            "num_texts": first["num_texts"],
        }

    return by_pair("ersd", of_pair)


def draw_panels(
    data: dict[str, Any],
    panel: Callable[[Axes, dict[str, Any]], None],
    *,
    label: str,
    handles: Sequence[Line2D],
    legend: str,
    about: str,
    dashed: Collection[str] = STRATEGIES,
) -> Figure:
    """Draw a row of panels for each pair, a column for each method.

    The legend gives a line to the strategies in `dashed`.
    """
    pairs = data["pairs"]
    canvas = Figure(figsize=(6.4, 3.4 * len(pairs) + 0.6), layout="constrained")
    rows = canvas.subplots(len(pairs), 2, sharey="row", squeeze=False)
    for row, pair in zip(rows, pairs, strict=True):
        for axes, one in zip(row, pair["panels"], strict=True):
            panel(axes, one)
            axes.set_title(METHODS[one["method"]], fontsize=9)
        row[0].set_ylabel(f"{pair['pair']}\n{label}", fontsize=9)
    rows[0][0].legend(handles=[*_strategies(dashed), *handles], loc=legend, fontsize=7)
    texts = ", ".join(f"{pair['num_texts']} from {pair['num_prompts']} prompts" for pair in pairs)
    drawing.note(
        canvas, f"points: exact expectations along texts of the target ({texts}),\n{about}"
    )
    return canvas


def theory(vector: NDArray[np.float64]) -> dict[str, tuple[list[int], list[float]]]:
    """Return (drafted, expected tokens per call) of each strategy by the 0-th order theory."""
    ns = list(range(1, MOST + 1))
    shapes = {
        "batch": [TreeShape.batch(n) for n in ns if n <= len(vector)],
        "sequence": [TreeShape.chain(n) for n in ns],
        "SpecInfer": [shape for n in ns if (shape := TreeShape.specinfer(n)).num_nodes <= MOST],
    }
    curves = {
        name: (
            [shape.num_nodes for shape in trees],
            [tree_acceptance(vector, shape=shape).expected_tokens for shape in trees],
        )
        for name, trees in shapes.items()
    }
    best = best_tree(vector)
    return curves | {"optimal": (list(range(1, best.shape.num_nodes + 1)), best.curve[1:].tolist())}


def best_tree(vector: NDArray[np.float64]) -> OptimalTree:
    """Return the optimal tree of `MOST` vertices."""
    return optimal_tree(vector, num_nodes=MOST)


def explored(vector: NDArray[np.float64]) -> list[int]:
    """Return the number of ranks that the optimal tree of N vertices explores, N = 1 … `MOST`."""
    most_ranks: list[int] = np.maximum.accumulate(best_tree(vector).shape.ranks[1:] + 1).tolist()
    return most_ranks


def minimal_bound(vector: NDArray[np.float64]) -> list[float]:
    """Return Lemma 4.2's bound at the best m for N = 1 … `MOST`."""
    return [
        tunstall_minimum_upper(vector, num_nodes=n, num_explored=ranks).value
        for n, ranks in enumerate(explored(vector), start=1)
    ]


def fixed_bound(vector: NDArray[np.float64]) -> list[float]:
    """Return Lemma 4.2's bound for N = 1 … `MOST` at the i_max and m best for the largest tree."""
    ranks = explored(vector)[-1]
    extra = tunstall_minimum_upper(vector, num_nodes=MOST, num_explored=ranks).num_extra
    if not np.isfinite(extra):
        extra = 1_000_000  # the limit of many extra symbols, near enough for a drawing
    return [
        tunstall_explored_upper(vector, num_nodes=n, num_explored=ranks, num_extra=int(extra))
        for n in range(1, MOST + 1)
    ]


def drafted_axis(axes: Axes, label: str) -> None:
    """Count drafted tokens from 1 to 32 along the horizontal axis, in powers of two."""
    axes.set_xscale("log", base=2)
    ticks = [1, 2, 4, 8, 16, 32]
    axes.set_xticks(ticks, [str(n) for n in ticks])
    axes.set_xlabel(label, fontsize=9)


def _strategies(dashed: Collection[str]) -> list[Line2D]:
    lines = {s: drawing.DASHED if s in dashed else "none" for s in STRATEGIES}
    return [
        Line2D(
            [],
            [],
            color=COLOURS[s],
            marker=MARKERS[s],
            mfc="white",
            ls=lines[s],
            lw=1.3,
            label=NAMES[s],
        )
        for s in STRATEGIES
    ]
