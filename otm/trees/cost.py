"""The choice of a draft tree for a machine: the tree with the most tokens per second.

One round drafts a tree level by level, one draft step for each level, and then scores all of it in
one target call:

    seconds(tree) = depth · draft_seconds + target_seconds(n),
    tokens per second = E[tokens]/seconds(tree).

For every depth the optimal trees of all budgets are prefixes of one construction (`optimal_tree`),
so the search over (depth, budget, tree) is exact: a tree of depth d and n vertices has no more
tokens than the optimal one under that depth and budget, and costs the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from otm.engines.chain import MAX_SECONDS, fastest
from otm.engines.positions import ChainPaths, Reach, reach_of
from otm.errors import InvalidParameter, TooLarge
from otm.pmf import check_count, check_counts, check_real
from otm.trees.optimal import OptimalTree, optimal_tree
from otm.trees.vector import PathAcceptance

MAX_BUDGETS = 1_000_000
"""Largest number of budgets that are all evaluated."""

TargetSeconds = Callable[[int], float] | Mapping[int, float]
"""Seconds of one target call that scores n drafted vertices after the context: a function of n, or
measurements by n.
"""


@dataclasses.dataclass(frozen=True, eq=False)
class TreeChoice:
    """The fastest tree, with expected tokens and seconds.

    Attributes:
        tree: the tree with its acceptances; empty if not drafting at all is fastest.
        budget: number of vertices that the target scores; more than the tree has if the engine must
            pad it.
        seconds: expected duration of one round.
        baseline_seconds: duration of one target call without drafts.
        measured: positions that acceptance was measured at, if it came from a record of them
            (`PositionAcceptance.by_path`).
    """

    tree: OptimalTree
    budget: int
    seconds: float
    baseline_seconds: float
    measured: int | None = None

    @property
    def reach(self) -> Reach:
        """The position of the tree's depth relative to the measured positions, if there are any.

        At the limit nothing deeper was considered: ask `PositionAcceptance.extended` for more
        positions, explicitly.
        """
        return "inside" if self.measured is None else reach_of(self.tree.shape.depth, self.measured)

    @property
    def tokens_per_second(self) -> float:
        """Expected tokens over expected seconds of a round."""
        return self.tree.expected_tokens / self.seconds

    @property
    def speedup(self) -> float:
        """Tokens per second relative to decoding without drafts, at least 1."""
        return self.tokens_per_second * self.baseline_seconds


def target_seconds_at(
    target_seconds: TargetSeconds, *, num_nodes: Iterable[int]
) -> NDArray[np.float64]:
    """Interpolate the seconds of a target call linearly between measurements.

    Args:
        target_seconds: a function of the number of drafted vertices, or measurements {n: seconds}.
        num_nodes: numbers of drafted vertices ≥ 0.

    Returns:
        Seconds, one for each number.

    Raises:
        InvalidParameter: if a time is not a positive finite number, or a number lies outside the
            measured range: nothing is extrapolated.

    Cost: one call or one interpolation for each number.

    >>> target_seconds_at({0: 0.020, 64: 0.024}, num_nodes=[0, 32]).tolist()
    [0.02, 0.022]
    """
    wanted = check_counts(num_nodes, name="num_nodes", minimum=0)
    if not isinstance(target_seconds, Mapping):
        if not callable(target_seconds):
            raise InvalidParameter(
                "target_seconds must be a function of the number of vertices or measurements "
                f"{{n: seconds}}; got {target_seconds!r:.80}. Pass one of these."
            )
        return np.asarray([_checked(target_seconds(n), f"target_seconds({n})") for n in wanted])
    points = sorted(
        check_count(n, name="a measured number of vertices", minimum=0) for n in target_seconds
    )
    if not points or (wanted and not points[0] <= min(wanted) <= max(wanted) <= points[-1]):
        raise InvalidParameter(
            f"target_seconds must be measured from n = {min(wanted, default=0)} to "
            f"{max(wanted, default=0)} drafted vertices; it covers "
            f"{f'{points[0]} to {points[-1]}' if points else 'none'}. Measure the ends (n = 0 is a "
            "call without drafts)."
        )
    seconds = [_checked(target_seconds[n], f"target_seconds[{n}]") for n in points]
    return np.interp(wanted, points, seconds)


def choose_tree(
    acceptance: ArrayLike | PathAcceptance,
    *,
    draft_seconds: float,
    target_seconds: TargetSeconds,
    max_nodes: int,
    max_depth: int | None = None,
    max_width: int | None = None,
    order: int | None = None,
    budgets: Iterable[int] | None = None,
) -> TreeChoice:
    """Choose the budget, depth and tree with the most expected tokens per second.

    max over trees of E[tokens]/(depth · draft_seconds + target_seconds(n)); the empty tree,
    decoding without drafts, competes too.

    Args:
        acceptance, max_width, order: as for `optimal_tree`.
        draft_seconds: measured time ≥ 0 of one draft step, which drafts one level of the tree.
        target_seconds: measured time of a target call on n drafted vertices, by function or table,
            from n = 0 on.
        max_nodes: the largest budget considered.
        max_depth: the largest depth considered; no limit if None.
        budgets: the numbers of vertices that the engine supports, all from 1 to max_nodes if None;
            larger ones are ignored.

    Returns:
        TreeChoice; on ties the shallower and smaller tree. Its `reach` says whether it stopped
        where acceptance was measured last.

    Raises:
        InvalidParameter: on times that are negative or not finite, or limits out of range.
        InvalidDistribution: if the acceptance is not one, or not sorted (see `optimal_tree`).
        TooLarge: beyond a million budgets.

    Cost: one optimal tree of max_nodes vertices for each depth up to that of the unlimited one.
    Reference: Sequoia [Chen et al. 2024], section 3.3, whose search runs over its dynamic program's
        table; the seconds per round of a chain: Leviathan et al. 2023, Theorem 3.8.

    >>> seconds = {0: 0.02, 16: 0.024, 64: 0.048}
    >>> choice = choose_tree([0.6, 0.2], draft_seconds=0.002, target_seconds=seconds, max_nodes=64)
    >>> choice.tree.num_nodes, choice.tree.shape.depth, round(choice.speedup, 3)
    (10, 3, 2.015)
    """
    limit = check_count(max_nodes, name="max_nodes", minimum=0)
    step = check_real(draft_seconds, name="draft_seconds", low=0.0, high=MAX_SECONDS)
    sizes = _budgets(budgets, limit)
    target = target_seconds_at(target_seconds, num_nodes=[0, *sizes])
    empty = optimal_tree(acceptance, num_nodes=0, order=order)
    measured = acceptance.measured if isinstance(acceptance, ChainPaths) else None
    best = TreeChoice(empty, 0, float(target[0]), float(target[0]), measured)
    if not sizes:
        return best
    deepest = optimal_tree(
        acceptance, num_nodes=limit, max_depth=max_depth, max_width=max_width, order=order
    ).shape.depth
    for depth in range(1, deepest + 1):
        tree = optimal_tree(
            acceptance, num_nodes=sizes[-1], max_depth=depth, max_width=max_width, order=order
        )
        # A budget beyond what can be accepted is padded.
        drafted = np.minimum(sizes, tree.num_nodes)
        tokens = np.append(best.tree.expected_tokens, tree.curve[drafted])
        seconds = np.append(best.seconds, depth * step + target[1:])
        found = fastest(tokens, seconds)
        if found:
            chosen = tree.first(int(drafted[found - 1]))
            best = dataclasses.replace(
                best, tree=chosen, budget=sizes[found - 1], seconds=float(seconds[found])
            )
    return best


def _budgets(budgets: Iterable[int] | None, limit: int) -> list[int]:
    """Return the numbers of vertices to compare, ascending, at most `limit`."""
    if budgets is None:
        if limit > MAX_BUDGETS:
            raise TooLarge(
                f"At most {MAX_BUDGETS:,} budgets are compared; max_nodes={limit:,} has more. Pass "
                "budgets=, the sizes that the engine supports."
            )
        return list(range(1, limit + 1))
    counts = {check_count(value, name="a budget") for value in budgets}
    return sorted(n for n in counts if n <= limit)


def _checked(seconds: float, name: str) -> float:
    """Return a positive finite time."""
    return check_real(seconds, name=name, low=0.0, high=MAX_SECONDS, open_low=True)
