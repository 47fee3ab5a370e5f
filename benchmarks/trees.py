"""Optimal drafting trees: this library against the textbook's heap and against the dynamic program.

Every row is one task, timed in one run with its alternative. The ratio is this library's time over
the alternative's: below 1 it is faster. Expected tokens are compared first, and a relative
disagreement beyond 1e-9 stops the run.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from benchmarks.timing import medians
from otm.trees.optimal import optimal_tree
from otm.trees.program import tree_program

FOUR = [0.6, 0.25, 0.1, 0.05]
VECTORS = {
    "k = 4": (FOUR, (64, 1000, 100_000, 1_000_000)),
    "k = 64": ([0.25 / (1 + i) ** 1.2 for i in range(64)], (64, 1000, 100_000)),
}


def run(*, seconds: float) -> list[dict[str, Any]]:
    """Time the tasks and return one row each."""
    rows = []
    for name, (vector, sizes) in VECTORS.items():
        for size in sizes:
            rows.append(
                _row(
                    f"optimal tree, N = {size:,}, {name}",
                    (
                        "optimal_tree",
                        lambda v=vector, n=size: optimal_tree(v, num_nodes=n).expected_tokens,
                    ),
                    (
                        "heapq of (−weight, path), first child and next sibling",
                        lambda v=vector, n=size: heap_tree(v, n),
                    ),
                    seconds,
                )
            )
    for order in (0, 1, 2):
        function = _padded(FOUR)
        rows.append(
            _row(
                f"optimal tree of a function of order {order}, N = 100,000",
                (
                    "optimal_tree",
                    lambda o=order, f=function: (
                        optimal_tree(f, num_nodes=100_000, order=o).expected_tokens
                    ),
                ),
                (
                    "optimal_tree, order not given",
                    lambda f=function: optimal_tree(f, num_nodes=100_000).expected_tokens,
                ),
                seconds,
            )
        )
    for depth in (None, 8):
        rows.append(
            _row(
                f"optimal tree, N = 500, k = 4, depth ≤ {depth or '∞'}",
                (
                    "optimal_tree",
                    lambda d=depth: optimal_tree(FOUR, num_nodes=500, max_depth=d).expected_tokens,
                ),
                (
                    "tree_program",
                    lambda d=depth: tree_program(FOUR, num_nodes=500, max_depth=d).expected_tokens,
                ),
                seconds,
            )
        )
    return rows


def heap_tree(acceptance: list[float], num_nodes: int) -> float:
    """Return the expected tokens of the optimal tree, as one would write it down: a
    heap of paths.
    """
    heap = [(-acceptance[0], (0,))]
    expected = 1.0
    for _ in range(num_nodes):
        weight, path = heapq.heappop(heap)
        expected -= weight
        heapq.heappush(heap, (weight * acceptance[0], (*path, 0)))
        rank = path[-1] + 1
        if rank < len(acceptance):
            heapq.heappush(
                heap, (weight / acceptance[rank - 1] * acceptance[rank], (*path[:-1], rank))
            )
    return expected


def _padded(vector: list[float]) -> Callable[[tuple[int, ...]], float]:
    return lambda path: vector[path[-1]] if path[-1] < len(vector) else 0.0


def _row(
    task: str,
    ours: tuple[str, Callable[[], float]],
    other: tuple[str, Callable[[], float]],
    seconds: float,
) -> dict[str, Any]:
    if abs(ours[1]() / other[1]() - 1.0) > 1e-9:
        raise RuntimeError(
            f"{task}: {ours[0]} and {other[0]} disagree: {ours[1]()} and {other[1]()}"
        )
    times = medians({"ours": ours[1], "other": other[1]}, seconds=seconds, least=3)
    return {
        "task": task,
        "this library": ours[0],
        "ms": times["ours"],
        "alternative": other[0],
        "alternative ms": times["other"],
        "ratio": times["ours"] / times["other"],
    }
