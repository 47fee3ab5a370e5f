"""What Figures 3 and 4 of ERSD share: the decoding runs on the shipped pair and what the 0-th order theory says of them.

The theory knows one acceptance vector A per method, measured from the widest batch, and assumes that every vertex of every tree has
it, whatever was accepted before. Where a pair agrees in stretches, that underestimates long paths, as the paper found.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from figures.paths import DATA
from otm.drawing import PALETTE
from otm.trees import TreeShape
from otm.trees.optimal import OptimalTree, optimal_tree, tree_acceptance
from otm.trees.tunstall import tunstall_explored_upper, tunstall_minimum_upper

CAPTURE = DATA / "ersd.json"
STRATEGIES = ("batch", "sequence", "SpecInfer", "optimal")
COLOURS = dict(zip(STRATEGIES, (PALETTE[4], PALETTE[0], PALETTE[2], PALETTE[1]), strict=True))
MARKERS = dict(zip(STRATEGIES, "sD^o", strict=True))
NAMES = {"batch": "batch", "sequence": "sequence", "SpecInfer": "SpecInfer tree", "optimal": "optimal tree"}
METHODS = {"GSD": "GSD: recursive rejection", "ERSD": "ERSD: exponential races"}
BOUND = "#8A8A8A"


def capture() -> dict[str, Any]:
    """Read the committed results of `python -m analysis experiment ersd`."""
    record: dict[str, Any] = json.loads(CAPTURE.read_text(encoding="utf-8"))
    return record


def acceptance(method: dict[str, Any]) -> NDArray[np.float64]:
    """Return the measured acceptance vector, made non-increasing: ranks are drafted in order of likelihood."""
    return np.asarray(np.minimum.accumulate(np.asarray(method["acceptance"], dtype=np.float64)))


def theory(vector: NDArray[np.float64], most: int) -> dict[str, tuple[list[int], list[float]]]:
    """Return (drafted tokens, expected tokens per call) of each strategy by the 0-th order theory, up to `most` drafted tokens."""
    ns = list(range(1, most + 1))
    shapes = {
        "batch": [TreeShape.batch(n) for n in ns if n <= len(vector)],
        "sequence": [TreeShape.chain(n) for n in ns],
        "SpecInfer": [shape for n in ns if (shape := TreeShape.specinfer(n)).num_nodes <= most],
    }
    curves = {
        name: (
            [shape.num_nodes for shape in trees],
            [tree_acceptance(vector, shape=shape).expected_tokens for shape in trees],
        )
        for name, trees in shapes.items()
    }
    best = best_tree(vector, most)
    return curves | {"optimal": (list(range(1, best.shape.num_nodes + 1)), best.curve[1:].tolist())}


def best_tree(vector: NDArray[np.float64], most: int) -> OptimalTree:
    """Return the optimal tree of `most` vertices."""
    return optimal_tree(vector, num_nodes=most)


def explored(vector: NDArray[np.float64], most: int) -> list[int]:
    """Return, for N = 1 … `most`, the number of ranks that the optimal tree of N vertices explores."""
    best = best_tree(vector, most)
    most_ranks: list[int] = np.maximum.accumulate(best.shape.ranks[1:] + 1).tolist()
    return most_ranks


def minimal_bound(vector: NDArray[np.float64], most: int) -> list[float]:
    """Return Lemma 4.2's bound at its best m for N = 1 … `most`."""
    return [
        tunstall_minimum_upper(vector, num_nodes=n, num_explored=ranks).value
        for n, ranks in enumerate(explored(vector, most), start=1)
    ]


def fixed_bound(vector: NDArray[np.float64], most: int) -> list[float]:
    """Return Lemma 4.2's bound for N = 1 … `most` at one i_max and m: the best ones for the largest tree."""
    ranks = explored(vector, most)[-1]
    extra = tunstall_minimum_upper(vector, num_nodes=most, num_explored=ranks).num_extra
    if not np.isfinite(extra):
        extra = 1_000_000  # the limit of many extra symbols, near enough for a drawing
    return [tunstall_explored_upper(vector, num_nodes=n, num_explored=ranks, num_extra=int(extra)) for n in range(1, most + 1)]


def legend() -> list[Line2D]:
    """Return the legend's entries of the strategies: points with dashed lines."""
    return [
        Line2D([], [], color=COLOURS[s], marker=MARKERS[s], mfc="white", ls=(0, (4, 2)), lw=1.3, label=NAMES[s])
        for s in STRATEGIES
    ]


def drafted_axis(axes: Axes, label: str) -> None:
    """Count drafted tokens from 1 to 32 along the horizontal axis, in powers of two."""
    axes.set_xscale("log", base=2)
    ticks = [1, 2, 4, 8, 16, 32]
    axes.set_xticks(ticks, [str(n) for n in ticks])
    axes.set_xlabel(label)
