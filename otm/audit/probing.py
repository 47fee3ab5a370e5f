"""Integrating a black box over its uniforms: breakpoints by bisection, under an assumption that is stated.

Compiled kernels and tensor code see plain floats only, and a black box can always hide a cell from finitely many questions. The
assumption here: along each axis every cell is at least 1/64 wide, for some of the probes on the other axes. Then the law is exact
up to the last bit of each breakpoint, because axis by axis a grid separates all breakpoints and bisection finds each to the last
bit. Two checks guard the assumption. The tree of cells must predict the function at random points: with none missed among N, the
volume predicted wrongly is below log(1/δ)/N with probability at least 1 − δ, whatever the function. And every point of that check
is asked twice, which exposes code that rolls dice of its own.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from otm.audit.tracing import Function, Integral
from otm.errors import InvalidParameter

GRID = 64
"""Cells at least 1/64 wide are found."""

_PROBES = 12
_CHECKS = 256
_SEED = 0
_LEAST_WIDTH = 2.0**-70
_FALSE_ALARM = 1e-9


@dataclasses.dataclass(frozen=True, eq=False)
class _Cells:
    """The cells along one axis: their upper ends, and what lies below each (a further axis, or a value)."""

    ends: list[float]
    below: list[Any]


def probe(function: Function, num_uniforms: int) -> Integral:
    """Return the law of a black box `function(uniforms)`, with `uniforms` float64 `(num_uniforms,)`.

    Returns:
        Integral, exact if no cell is narrower than 1/64 along an axis: `error` is 0 where the cells predict the function at every
        random point. Where they do not, it bounds the volume that they predict wrongly (Clopper–Pearson).

    Raises:
        InvalidParameter: if the function is no function of its uniforms (it gave two values at one point).

    Cost: about 64 · 12 calls for each axis and each cell of the axes before it, and 53 · 12 per breakpoint.
    """
    points = np.random.default_rng(_SEED + 1).random((_CHECKS, num_uniforms))
    values = [function(point.copy()) for point in points]
    if values != [function(point.copy()) for point in points]:
        raise InvalidParameter(
            "The callable must be a function of its arguments to be audited exactly; it returned two values for the same "
            "uniforms. Take its randomness from `uniforms`, or call otm.audit.sampled."
        )
    probes = np.random.default_rng(_SEED).random((_PROBES, num_uniforms))
    root = _cells_from(function, [], probes)
    masses: dict[Hashable, list[float]] = {}
    cells = _collect(root, 1.0, masses)
    missed = sum(_look_up(root, point) != value for point, value in zip(points, values, strict=True))
    error = float(scipy.stats.beta.isf(_FALSE_ALARM, missed + 1, len(points) - missed)) if missed else 0.0
    return Integral(mass={value: math.fsum(parts) for value, parts in masses.items()}, error=error, cells=cells)


def _cells_from(function: Function, prefix: list[float], probes: NDArray[np.float64]) -> Any:
    """Divide the next axis at every breakpoint that a probe of the remaining axes shows, and each cell recursively."""
    axis = len(prefix)
    num_uniforms = probes.shape[1]
    if axis == num_uniforms:
        return function(np.asarray(prefix))
    # On the last axis the prefix is all there is: one probe.
    rest = probes[:, axis + 1 :] if axis + 1 < num_uniforms else probes[:1, axis + 1 :]

    def signature(u: float) -> tuple[Hashable, ...]:
        return tuple(function(np.asarray([*prefix, u, *row])) for row in rest)

    grid = [(j + 0.5) / GRID for j in range(GRID)]
    points = [0.0, *grid, math.nextafter(1.0, 0.0)]
    seen = [signature(u) for u in points]
    ends, middles = [], []
    start = 0.0
    for left, right, at_left, at_right in zip(points, points[1:], seen, seen[1:], strict=False):
        for end in _breakpoints(signature, left, right, at_left, at_right):
            ends.append(end)
            middles.append(0.5 * (start + end))
            start = end
    ends.append(1.0)
    middles.append(0.5 * (start + 1.0))
    return _Cells(ends=ends, below=[_cells_from(function, [*prefix, u], probes) for u in middles])


def _breakpoints(
    signature: Callable[[float], tuple[Hashable, ...]],
    left: float,
    right: float,
    at_left: tuple[Hashable, ...],
    at_right: tuple[Hashable, ...],
) -> list[float]:
    """Return, ascending, the first floats at which the signature is a new one; halves with equal ends hold none."""
    if at_left == at_right:
        return []
    middle = 0.5 * (left + right)
    # Below 2^-70 of volume there is nothing to tell apart; near 0 floats would go on for a thousand halvings.
    if not left < middle < right or right - left < _LEAST_WIDTH:
        return [right]
    at_middle = signature(middle)
    return [
        *_breakpoints(signature, left, middle, at_left, at_middle),
        *_breakpoints(signature, middle, right, at_middle, at_right),
    ]


def _collect(node: Any, length: float, masses: dict[Hashable, list[float]]) -> int:
    if not isinstance(node, _Cells):
        masses.setdefault(node, []).append(length)
        return 1
    starts = [0.0, *node.ends]
    return sum(
        _collect(below, length * (end - start), masses)
        for start, end, below in zip(starts, node.ends, node.below, strict=False)
        if end > start
    )


def _look_up(node: Any, point: NDArray[np.float64]) -> Hashable:
    for u in point:
        node = node.below[bisect.bisect_right(node.ends, u)]
    value: Hashable = node
    return value
