"""The overlap curve of two Gaussians of equal covariance, in closed form.

Along the shift, in units of the standard deviation, the draft is x ~ N(0, 1) and the target
N(δ, 1); across it both are the same, whatever the dimension. The ratio q/p = e^{δx − δ²/2} rises
with x, and exceeds t beyond x(t) = log(t)/δ + δ/2:

    P(q/p > t) = Φ(−x(t)),    Q(q/p > t) = Φ(δ − x(t)),    H(t) = Φ(x(t) − δ) + t Φ(−x(t)).

Everything that i.i.d. drafts can do is a functional of H (docs/theory.md, "The curve of other
laws").
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Self, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from otm._machine.arrays import Array, Floats, quiet, unit_quadrature
from otm.errors import InvalidParameter
from otm.overlap.curve import Containment, Curve, Piece
from otm.overlap.lumped_row import Steps
from otm.pmf import plain_reals

MOST_SHIFT = 1e100
"""Standard deviations: the largest distance of means that is answered."""

_FARTHEST = 37.0  # Φ(−37) = 6e-300: ratios of masses stay finite
_HALVINGS = 80
_HIGHEST_LEVEL = 709.0  # e to it is finite

_FIRST_STEPS = 256
_PARTS = 16
_ONE_RATIO = 2.0**-26
"""Relative width of ratios below which a step counts as one ratio, at an error of the square."""


def ratio(x: Array, shift: Array | float) -> Array:
    """Return q/p at points along the shift."""
    with quiet():
        return np.exp(shift * (x - 0.5 * shift))


@final
@dataclasses.dataclass(frozen=True, eq=False)
class GaussianCurve(Curve):
    """The overlap curve of N(μ_p, Σ) and N(μ_q, Σ) at a distance δ = ‖Σ^{−1/2}(μ_q − μ_p)‖.

    H(t) = Φ(log(t)/δ − δ/2) + t Φ(−log(t)/δ − δ/2); one draft is accepted with H(1) = 2Φ(−δ/2).

    Args:
        shift: δ ≥ 0, a number or `(...)`: a curve for each.

    Raises:
        InvalidParameter: unless every δ is a number in [0, 1e100].

    Cost: two values of Φ a level. Accuracy: some 1e-15 in absolute terms.
    Reference: docs/theory.md, "The curve of other laws"; maximal coupling of diffusion steps: De
        Bortoli et al. 2025.

    >>> curve = GaussianCurve(1.0)
    >>> curve.at([0.0, 1.0]).round(6).tolist()  # 2Φ(−1/2)
    [0.0, 0.617075]
    """

    shift: Array

    def __post_init__(self) -> None:
        shift = np.asarray(plain_reals(self.shift, "shift"), dtype=np.float64)
        if not ((shift >= 0.0) & (shift <= MOST_SHIFT)).all():
            raise InvalidParameter(
                f"shift must be a distance from 0 to {MOST_SHIFT:g} in standard deviations; got "
                f"{self.shift!r}. Divide the difference of the means by the standard deviation."
            )
        object.__setattr__(self, "shift", shift)

    @functools.cached_property
    def total_target(self) -> Array:
        """1 for each curve, `(...)`."""
        return np.ones(self.shift.shape)

    def place(self, level: Array | float) -> Array:
        """Return x(t), the point along the shift beyond which q/p exceeds a level t ≥ 0."""
        t = np.asarray(level, dtype=np.float64)
        with quiet():  # at δ = 0 the ratio is 1 everywhere, and either side of it will do
            return np.where(t == 1.0, 0.0, np.log(t) / self.shift) + 0.5 * self.shift

    def at(self, level: Array | float) -> Array:
        """Return H(t) at one level of each curve `(...)`, or at several `(n, ...)`.

        Raises:
            InvalidParameter: if a level is no number of at least 0.
        """
        t = plain_reals(level, "level")
        if not (t >= 0.0).all():
            raise InvalidParameter(f"level must be at least 0; got {t.min()}. Pass a ratio q/p.")
        slope, offset = self._line(np.asarray(t, dtype=np.float64))
        with quiet():
            return np.where(slope > 0, slope * t, 0.0) + offset

    def _line(self, level: Array) -> tuple[Array, Array]:
        """Return P(q/p > t) and Q(q/p ≤ t)."""
        x = self.place(level)
        return ndtr(-x), ndtr(x - self.shift)

    def piece(self, beyond: Callable[[Array, Array, Array], Array], *, like: Array) -> Piece:
        """Return the tangent where a condition ends, by bisection of log t.

        Cost: 80 rounds on arrays of the answer's shape.
        """
        low = np.full(np.shape(like), -_HIGHEST_LEVEL)
        high = -low
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            level = np.exp(middle)
            slope, offset = self._line(level)
            holds = beyond(level[None], slope[None], offset[None])[0]
            low, high = np.where(holds, low, middle), np.where(holds, middle, high)
        slope, offset = self._line(np.exp(high))
        one_ratio = np.broadcast_to(self.shift == 0.0, slope.shape)
        return Piece(np.where(one_ratio, 0, 1), np.exp(low), np.exp(high), slope, offset)

    def matched(self, c: float) -> Array:
        """Return Pr(the target's winner arrives before c times the draft race's first), `(...)`.

        The race runs over the points of a Poisson process: ∫ q/(1 + t − H(t)), t = q/(c p).

        Accuracy: 1e-13 *observed*; the trapezoid rule, whose step shrinks with the shift.
        """
        most = np.reshape(self.at(c), (-1,)).tolist()
        values = [
            _matched(shift, c) if bound > 0 and shift > 0 else bound
            for shift, bound in zip(np.reshape(self.shift, (-1,)).tolist(), most, strict=True)
        ]
        return np.reshape(values, self.shift.shape)


def _matched(shift: float, c: float) -> float:
    step = min(0.2, 0.4 / shift)
    # the integrand is below q, and below c p
    y = np.arange(min(0.0, shift) - 12.0, shift + 12.0, step)
    with quiet():
        before = y - np.log(c) / shift
        level = np.exp(shift * (y - 0.5 * shift) - np.log(c))
        late = np.where(before > -_FARTHEST, level * ndtr(before), 0.0)
        density = np.exp(-0.5 * (y - shift) ** 2) / np.sqrt(2.0 * np.pi)
        terms = density / (ndtr(shift - before) + late)
    return min(1.0, float(step * terms.sum()))


@final
@dataclasses.dataclass(frozen=True, eq=False)
class GaussianSteps(Steps):
    """The points along the shift in steps of descending q/p; the first step lies beyond an edge.

    Attributes:
        shift: δ.
        edges: ends of the steps, descending, from the lower end of the first one on.
    """

    shift: float
    edges: Floats

    @classmethod
    def of(cls, shift: float, size: Containment) -> Self:
        """Cut the line into initial steps for a scan, up to the largest slope of b."""
        highest = np.log(size.steepest) / shift + 0.5 * shift if shift > 0 else _FARTHEST
        top = float(min(highest, _FARTHEST))
        return cls._between(shift, np.linspace(top, -_FARTHEST, _FIRST_STEPS))

    @classmethod
    def _between(cls, shift: float, edges: Floats) -> Self:
        ends, width = ratio(edges, shift), edges[:-1] - edges[1:]
        places, weights = unit_quadrature(10)
        points = edges[1:, None] + width[:, None] * places
        # by quadrature: differences of Φ have no digits left in narrow steps
        masses = [
            np.append(
                ndtr(mean - edges[0]),
                width * (np.exp(-0.5 * (points - mean) ** 2) @ weights) / np.sqrt(2.0 * np.pi),
            )
            for mean in (0.0, shift)
        ]
        with quiet():
            first = masses[1][0] / masses[0][0]
        high, low = np.append(first, ends[:-1]), np.append(first, ends[1:])
        one = high - low <= _ONE_RATIO * high
        middle = np.clip(masses[1] / masses[0], low, high)
        p, q = masses
        return cls(p, q, np.where(one, middle, high), np.where(one, middle, low), shift, edges)

    def resolve(self, which: NDArray[np.int64]) -> Self:
        """Return the steps with the chosen steps cut into 16 each."""
        begin, end = self.edges[which - 1, None], self.edges[which, None]
        inner = begin + (end - begin) * (np.arange(1, _PARTS) / _PARTS)
        return self._between(self.shift, np.sort(np.append(self.edges, inner))[::-1].copy())
