"""A box of uniforms, and how an execution of somebody's code divides it: on in one part, the other set aside for later."""

from __future__ import annotations

import dataclasses
import math
import struct
from collections.abc import Callable, Iterable, Sequence

_LEAST_WIDTH = 2.0**-50

Box = tuple[list[float], list[float]]
"""Where each axis begins and where it ends: half-open."""

Holds = Callable[[Sequence[float]], bool]
"""The answer of a comparison at a point."""


def volume(box: Box) -> float:
    """Return the probability that independent uniforms lie in the box."""
    return math.prod(b - a for a, b in zip(*box, strict=True))


@dataclasses.dataclass(eq=False)
class Execution:
    """One execution: the box it is in, the parts set aside on the way, and what became of the trace.

    Attributes:
        low, high: the box.
        pending: the parts set aside.
        escaped: a number was read as a plain float, so that the box does not know what the output depends on.
        undecided: a comparison was answered without being the same all over the box.
        slanted: the box was halved along a boundary that is not parallel to an axis.
    """

    low: list[float]
    high: list[float]
    pending: list[Box] = dataclasses.field(default_factory=list)
    escaped: bool = False
    undecided: bool = False
    slanted: bool = False

    @property
    def middle(self) -> list[float]:
        """A point of the box."""
        # Between neighbouring floats the mean rounds to one of them; the upper one is not in the box.
        return [min(0.5 * (a + b), math.nextafter(b, 0.0)) for a, b in zip(self.low, self.high, strict=True)]

    @property
    def volume(self) -> float:
        """The probability of the box."""
        return volume((self.low, self.high))

    def split(self, axis: int, at: float, *, keep_low: bool) -> None:
        """Go on in one part of the box and leave the other for later."""
        lower, upper = self._parts(axis, at)
        (self.low, self.high), other = (lower, upper) if keep_low else (upper, lower)
        self.pending.append(other)

    def split_at_change(self, axis: int, holds: Holds) -> bool:
        """Split at the first float of the axis where a monotone comparison changes its answer; return False if it does not.

        Non-negative floats are ordered as their bit patterns are: 62 halvings at most, however close to 0 the change lies.
        """
        point = list(self.low)

        def holds_at(bits: int) -> bool:
            point[axis] = _float(bits)
            return holds(point)

        first, last = _bits(self.low[axis]), _bits(math.nextafter(self.high[axis], 0.0))
        before = holds_at(first)
        if holds_at(last) == before:
            return False
        while last - first > 1:
            middle = (first + last) // 2
            first, last = (middle, last) if holds_at(middle) == before else (first, middle)
        change = _float(last)
        self.split(axis, change, keep_low=change - self.low[axis] >= self.high[axis] - change)
        return True

    def halve(self, axes: Iterable[int], holds: Holds) -> bool:
        """Halve the longest of these axes, along which a comparison is open; return False if all are too short.

        The execution goes on in the half that is likely settled sooner: the lower one, unless only the upper one's opposite corners
        agree.
        """
        self.slanted = True
        axis = max(axes, key=lambda i: self.high[i] - self.low[i])
        if self.high[axis] - self.low[axis] < _LEAST_WIDTH:
            return False
        middle = 0.5 * (self.low[axis] + self.high[axis])
        lower, upper = self._parts(axis, middle)
        self.split(axis, middle, keep_low=_opposite_corners_agree(lower, holds) or not _opposite_corners_agree(upper, holds))
        return True

    def _parts(self, axis: int, at: float) -> tuple[Box, Box]:
        high_of_lower, low_of_upper = list(self.high), list(self.low)
        high_of_lower[axis] = low_of_upper[axis] = at
        return (list(self.low), high_of_lower), (low_of_upper, list(self.high))


def _opposite_corners_agree(box: Box, holds: Holds) -> bool:
    """Whether a comparison has one answer at both ends of the diagonal, and one at both ends of a diagonal across it."""
    lows, highs = box[0], [math.nextafter(b, 0.0) for b in box[1]]
    if holds(lows) != holds(highs):
        return False
    corners = list(zip(lows, highs, strict=True))
    one, other = ([ends[(axis + start) % 2] for axis, ends in enumerate(corners)] for start in (0, 1))
    return holds(one) == holds(other)


def _bits(value: float) -> int:
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return bits


def _float(bits: int) -> float:
    value: float = struct.unpack("<d", struct.pack("<q", bits))[0]
    return value
