"""Integration of a black box over uniforms: breakpoints by bisection, and a bound on the rest.

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

from otm.audit.tracing.branching import TracedLaw, UniformFunction
from otm.errors import InvalidParameter

GRID = 64
"""Cells at least 1/64 wide are found."""

CHECKS = (1_200, 4_800, 19_200)
"""Numbers of random points for comparisons in the first, second and third look."""

FALSE_ALARM = 1e-9
"""Probability at most that the bound on wrong predictions fails at any of the looks."""

_PROBES = 12
_REPEATED = 256
_SEED = 0
_LEAST_WIDTH = 2.0**-70


@dataclasses.dataclass(frozen=True, eq=False)
class _Cells:
    """The cells along one axis: upper ends, and a further axis or a value below each."""

    ends: list[float]
    below: list[Any]


@dataclasses.dataclass(frozen=True, eq=False)
class Prediction:
    """The predicted answers of a black box everywhere, by cells along each axis in turn."""

    root: Any

    def at(self, point: NDArray[np.float64]) -> Hashable:
        """Return the value at a point."""
        node = self.root
        for u in point:
            node = node.below[bisect.bisect_right(node.ends, u)]
        value: Hashable = node
        return value

    def law(self) -> TracedLaw:
        """Return the law of the value; `error` is 0 here and found by `PredictionCheck`."""
        cells = list(_leaves(self.root, 1.0))
        masses: dict[Hashable, list[float]] = {}
        for value, volume in cells:
            masses.setdefault(value, []).append(volume)
        law = {value: math.fsum(parts) for value, parts in masses.items()}
        return TracedLaw(mass=law, error=0.0, cells=len(cells))


class PredictionCheck:
    """The comparison of functions with predictions at random points of drafts and uniforms.

    Args:
        functions: one for each draft.
        predictions: the same.
        weights: the drafts' probabilities.
        num_uniforms: n.

    Attributes:
        missed: at how many points the answer was another one than predicted.
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
        self.missed = self._checked = 0

    @property
    def finished(self) -> bool:
        """True if all looks have been taken."""
        return self._checked == CHECKS[-1]

    def look(self) -> float:
        """Compare at further points; return a bound on the probability of a wrong prediction."""
        wanted = next(checks for checks in CHECKS if checks > self._checked)
        for number, point in itertools.islice(self._points, wanted - self._checked):
            predicted = self._predictions[number].at(point)
            self.missed += predicted != self._functions[number](point.copy())
        self._checked = wanted
        level = FALSE_ALARM / len(CHECKS)
        return float(scipy.stats.beta.isf(level, self.missed + 1, wanted - self.missed))


def _points(
    weights: Sequence[float], num_uniforms: int
) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """Yield (number of a draft, uniforms), drawn at random."""
    rng = np.random.default_rng(_SEED + 1)
    share = np.asarray(weights) / math.fsum(weights)
    while True:
        numbers = rng.choice(len(share), size=_REPEATED, p=share)
        yield from zip(numbers.tolist(), rng.random((_REPEATED, num_uniforms)), strict=True)


class OwnRandomness(InvalidParameter):
    """Raised where a callable gave two answers to one input: internal randomness or kept state.

    Attributes:
        reason: why its dice could not be followed.
    """

    reason = ""

    @classmethod
    def because(cls, reason: str) -> OwnRandomness:
        """Return the error with a reason."""
        error = cls(
            "The callable must be a function of its arguments to be audited exactly, or draw what "
            f"can be followed; it is neither, since {reason.rstrip('.')}. Take its randomness from "
            "`uniforms`, or call otm.audit.sampled."
        )
        error.reason = reason
        return error


def require_deterministic(
    functions: Sequence[UniformFunction], weights: Sequence[float], num_uniforms: int, reason: str
) -> None:
    """Call the functions twice at some random points, after a void trace, and compare.

    Raises:
        OwnRandomness: if there were two answers to one question.
    """
    asked = list(itertools.islice(_points(weights, num_uniforms), _REPEATED))
    answers = [[functions[number](point.copy()) for number, point in asked] for _ in range(2)]
    if answers[0] != answers[1]:
        raise OwnRandomness.because(reason)


def probe(function: UniformFunction, num_uniforms: int) -> Prediction:
    """Return the cells of a black box `function(uniforms)` by bisection on a grid.

    Returns:
        Prediction, exact if no cell is narrower than 1/64 along an axis.

    Cost: about 64 · 12 calls for each axis and each cell of the axes before it, and 53 · 12 per
        breakpoint.
    """
    return Prediction(
        _cells_from(function, [], np.random.default_rng(_SEED).random((_PROBES, num_uniforms)))
    )


def _cells_from(function: UniformFunction, prefix: list[float], probes: NDArray[np.float64]) -> Any:
    """Divide the next axis at every breakpoint that a probe shows, then each cell alike."""
    axis = len(prefix)
    num_uniforms = probes.shape[1]
    if axis == num_uniforms:
        return function(np.asarray(prefix))
    # On the last axis the prefix is all there is: one probe.
    rest = probes[:, axis + 1 :] if axis + 1 < num_uniforms else probes[:1, axis + 1 :]

    def signature(u: float) -> tuple[Hashable, ...]:
        return tuple(function(np.asarray([*prefix, u, *row])) for row in rest)

    grid = [(j + 0.5) / GRID for j in range(GRID)]
    seen = [(u, signature(u)) for u in (0.0, *grid, math.nextafter(1.0, 0.0))]
    ends = []
    for (left, at_left), (right, at_right) in itertools.pairwise(seen):
        ends += _breakpoints(signature, left, right, at_left, at_right)
    ends.append(1.0)
    below = [
        _cells_from(function, [*prefix, 0.5 * (start + end)], probes)
        for start, end in itertools.pairwise([0.0, *ends])
    ]
    return _Cells(ends, below)


def _breakpoints(
    signature: Callable[[float], tuple[Hashable, ...]],
    left: float,
    right: float,
    at_left: tuple[Hashable, ...],
    at_right: tuple[Hashable, ...],
) -> list[float]:
    """Return, ascending, the first floats at which the signature is a new one."""
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


def _leaves(node: Any, length: float) -> Iterator[tuple[Hashable, float]]:
    """Yield the value and the volume of every cell below a node."""
    if not isinstance(node, _Cells):
        yield node, length
        return
    for (start, end), below in zip(itertools.pairwise([0.0, *node.ends]), node.below, strict=True):
        if end > start:
            yield from _leaves(below, length * (end - start))
