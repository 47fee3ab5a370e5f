"""Integrating a black box over its uniforms: breakpoints by bisection, and what that leaves
unproved.

Compiled kernels, and code that turns its numbers into floats, see plain floats only, and a black
box can always hide a cell from finitely many questions. Axis by axis a grid separates the
breakpoints that are at least 1/64 apart for some of the probes on the other axes, and bisection
finds each to the last bit: a tree of cells, which predicts the answer everywhere. So a law that is
found right is right under an assumption that is stated: no cell is narrower than 1/64.

A law that is found wrong needs no assumption. The predictions are compared with the function at
random points of drafts and uniforms together, and with m of N missed the probability of all that is
predicted wrongly is below the Clopper–Pearson bound at 1 − δ, whatever the function. A total
variation beyond that bound is proved; a smaller one is looked at again with more points.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from otm.errors import InvalidParameter
from otm.tracing.branching import TracedLaw, UniformFunction

GRID = 64
"""Cells at least 1/64 wide are found."""

CHECKS = (1_200, 4_800, 19_200)
"""Random points at which predictions are compared, so many by the first look, the second, the
third.
"""

FALSE_ALARM = 1e-9
"""Probability at most that the bound on what is predicted wrongly fails, at any of the looks."""

_PROBES = 12
_REPEATED = 256
_SEED = 0
_LEAST_WIDTH = 2.0**-70


@dataclasses.dataclass(frozen=True, eq=False)
class _Cells:
    """The cells along one axis: their upper ends, and what lies below each (a further axis, or a
    value).
    """

    ends: list[float]
    below: list[Any]


@dataclasses.dataclass(frozen=True, eq=False)
class Prediction:
    """What a black box is predicted to do everywhere, by cells along each axis in turn."""

    root: Any

    def at(self, point: NDArray[np.float64]) -> Hashable:
        """Return the value at a point."""
        node = self.root
        for u in point:
            node = node.below[bisect.bisect_right(node.ends, u)]
        value: Hashable = node
        return value

    def law(self) -> TracedLaw:
        """Return the law of the value; its `error` is for the `Check` to say."""
        masses: dict[Hashable, list[float]] = {}
        cells = _collect(self.root, 1.0, masses)
        return TracedLaw(
            mass={value: math.fsum(parts) for value, parts in masses.items()},
            error=0.0,
            cells=cells,
        )


class PredictionCheck:
    """The comparison of functions with what is predicted of them, at random points of drafts and
    uniforms.

    Args:
        functions: one for each draft.
        predictions: the same.
        weights: the drafts' probabilities.
        num_uniforms: n.
    """

    def __init__(
        self,
        functions: Sequence[UniformFunction],
        predictions: Sequence[Prediction],
        weights: Sequence[float],
        num_uniforms: int,
    ) -> None:
        self._functions, self._predictions = functions, predictions
        self._points = _points(weights, num_uniforms)
        self._checked = self._missed = self._looks = 0

    @property
    def missed(self) -> int:
        """At how many points the answer was another one than predicted."""
        return self._missed

    @property
    def finished(self) -> bool:
        """Whether all looks have been taken."""
        return self._looks == len(CHECKS)

    def look(self) -> float:
        """Compare up to the next number of points, and return the bound on the probability of what
        is predicted wrongly.
        """
        for number, point in itertools.islice(self._points, CHECKS[self._looks] - self._checked):
            self._missed += self._predictions[number].at(point) != self._functions[number](
                point.copy()
            )
        self._checked = CHECKS[self._looks]
        self._looks += 1
        return float(
            scipy.stats.beta.isf(
                FALSE_ALARM / len(CHECKS), self._missed + 1, self._checked - self._missed
            )
        )


def _points(
    weights: Sequence[float], num_uniforms: int
) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """Yield (number of a draft, uniforms), as they come when drafts and uniforms are drawn."""
    rng = np.random.default_rng(_SEED + 1)
    share = np.asarray(weights) / math.fsum(weights)
    while True:
        numbers = rng.choice(len(share), size=_REPEATED, p=share)
        yield from zip(numbers.tolist(), rng.random((_REPEATED, num_uniforms)), strict=True)


class OwnRandomness(InvalidParameter):
    """A callable gave two answers to one question: it rolls dice of its own, or keeps state.

    Attributes:
        reason: why its dice could not be followed.
    """

    reason = ""


def require_deterministic(
    functions: Sequence[UniformFunction], weights: Sequence[float], num_uniforms: int, reason: str
) -> None:
    """Ask twice at some random points, after a trace that was void for this reason.

    Raises:
        OwnRandomness: if there were two answers to one question.
    """
    asked = list(itertools.islice(_points(weights, num_uniforms), _REPEATED))
    answers = [[functions[number](point.copy()) for number, point in asked] for _ in range(2)]
    if answers[0] != answers[1]:
        error = OwnRandomness(
            "The callable must be a function of its arguments to be audited exactly, or draw what "
            "can be followed; it returned two "
            f"values for the same uniforms, and {reason}. Take its randomness from `uniforms`, or "
            "call otm.audit.sampled."
        )
        error.reason = reason
        raise error


def probe(function: UniformFunction, num_uniforms: int) -> Prediction:
    """Return the cells of a black box `function(uniforms)`, with `uniforms` float64
    `(num_uniforms,)`.

    Returns:
        Prediction, exact if no cell is narrower than 1/64 along an axis.

    Cost: about 64 · 12 calls for each axis and each cell of the axes before it, and 53 · 12 per
    breakpoint.
    """
    return Prediction(
        _cells_from(function, [], np.random.default_rng(_SEED).random((_PROBES, num_uniforms)))
    )


def _cells_from(function: UniformFunction, prefix: list[float], probes: NDArray[np.float64]) -> Any:
    """Divide the next axis at every breakpoint that a probe of the remaining axes shows, and each
    cell recursively.
    """
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
    """Return, ascending, the first floats at which the signature is a new one; halves with equal
    ends hold none.
    """
    if at_left == at_right:
        return []
    middle = 0.5 * (left + right)
    # Below 2^-70 of volume there is nothing to tell apart; near 0 floats would go on for a thousand
    # halvings.
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
