"""One execution under trace: the box of uniforms, the decisions made, and the parts set aside.

An execution divides a box of independent uniforms [0, 1)ⁿ whenever the code asks something that the
box leaves open, and it chooses one of several outcomes whenever the code draws one. Both are
decisions; the same decisions lead to the same place again, so a part set aside is a list of
decisions to follow, with its probability. Axes are numbered as the code first asks for them.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any

_LEAST_WIDTH = 2.0**-50

_DECISIONS, _NO_MATTER = 32, 1e-30
"""After a multiple of the first number of decisions, an execution of at most the second probability
ends undecided.
"""

_NEAR = 8
"""Units in the last place around the expected place in which a change is sought first."""

AGAIN = "at a second execution"
"""End of the reasons why a trace is void: the code does not repeat itself."""

Decision = tuple[Any, ...]
"""("split", axis, at, whether the lower part was kept) or ("choice", index)."""

Holds = Callable[[Sequence[float]], bool]
"""The answer of a comparison at a point."""


class TraceAborted(BaseException):  # no error of the code under audit, which may catch its own
    """Raised on a use of a random number that cannot be followed; the message names the use."""


class TraceUnbounded(BaseException):  # as `TraceAborted`
    """Raised where the code goes on until the remaining decisions are too unlikely to matter."""


@dataclasses.dataclass(eq=False)
class Execution:
    """One execution: the current box, the decisions that led there, and the state of the trace.

    Attributes:
        prescribed: the decisions to follow before any is made anew.
        made: the decisions so far.
        low, high: the box, half-open.
        factor: probability of what is no longer in the box: of choices, and of races that were run.
        pending: the parts set aside, (probability, decisions).
        aborted: how a random number was used that the box does not know of; empty if none was.
        undecided: a comparison was answered without being the same all over the box.
        slanted: the box was halved along a boundary that is not parallel to an axis.
        slack: what was neglected, by what neglected it: bounds on a total variation.
        exponentials: the sources that are known as exponential variables
            (`otm.audit.tracing.exponentials`).
        coarsest: largest unit roundoff (at most float32's) of the numbers that random numbers met.
    """

    prescribed: Sequence[Decision] = ()
    made: list[Decision] = dataclasses.field(default_factory=list)
    low: list[float] = dataclasses.field(default_factory=list)
    high: list[float] = dataclasses.field(default_factory=list)
    factor: float = 1.0
    pending: list[tuple[float, tuple[Decision, ...]]] = dataclasses.field(default_factory=list)
    aborted: str = ""
    undecided: bool = False
    slanted: bool = False
    slack: dict[Any, float] = dataclasses.field(default_factory=dict)
    exponentials: list[Any] = dataclasses.field(default_factory=list)
    coarsest: float = 2.0**-53

    @property
    def middle(self) -> list[float]:
        """A point of the box."""
        # Between neighbouring floats the mean rounds to one of them; the upper one is not in the
        # box.
        return [
            min(0.5 * (a + b), math.nextafter(b, 0.0))
            for a, b in zip(self.low, self.high, strict=True)
        ]

    @property
    def volume(self) -> float:
        """The probability of reaching this point."""
        return self.factor * math.prod(b - a for a, b in zip(self.low, self.high, strict=True))

    def abort(self, how: str) -> TraceAborted:
        """Void the trace for good and return the exception to raise, which the code might catch."""
        self.aborted = self.aborted or how
        return TraceAborted(self.aborted)

    def axis(self) -> int:
        """Return a new axis: a uniform independent of everything so far."""
        self.low.append(0.0)
        self.high.append(1.0)
        return len(self.low) - 1

    def retire(self, axis: int) -> None:
        """Take an axis out of the box, with the share into `factor`; nothing may refer to the
        axis.
        """
        self.factor *= self.high[axis] - self.low[axis]
        self.low[axis], self.high[axis] = 0.0, 1.0

    def choose(self, weights: Sequence[float]) -> int:
        """Choose an outcome in proportion to the weights: the likeliest now, the others later."""
        total = math.fsum(weights)
        decision = self._prescribed("choice")
        if decision is None:
            index = likeliest(weights)
            here, made = self.volume, tuple(self.made)
            self.pending += [
                (here * weight / total, (*made, ("choice", other)))
                for other, weight in enumerate(weights)
                if other != index and weight > 0.0
            ]
        else:
            index = decision[1]
            if not (index < len(weights) and weights[index] > 0.0):
                raise self.abort(f"other outcomes {AGAIN}")
        self.made.append(("choice", index))
        self.factor *= weights[index] / total
        self._go_on()
        return index

    def cut(self, axis: int, ends: Sequence[float]) -> int:
        """Choose one of the parts of a fresh axis between ends in [0, 1), and go on in that part.

        One decision, where a search among the ends would be several.
        """
        edges, before = [0.0, *ends, 1.0], self.factor
        index = self.choose([high - low for low, high in itertools.pairwise(edges)])
        self.factor = before  # the length of the part is in the box
        self.low[axis], self.high[axis] = edges[index : index + 2]
        return index

    def split(self, axis: int, at: float, *, keep_low: bool) -> None:
        """Go on in one part of the box and leave the other for later."""
        low, high = self.low[axis], self.high[axis]
        rest = (high - at if keep_low else at - low) / (high - low)
        self.pending.append((self.volume * rest, (*self.made, ("split", axis, at, not keep_low))))
        self._keep(("split", axis, at, keep_low))

    def follow_split(self) -> bool:
        """Divide the box as prescribed; return False if the prescription has ended."""
        decision = self._prescribed("split")
        if decision is None:
            return False
        _, axis, at, _ = decision
        if not (axis < len(self.low) and self.low[axis] < at < self.high[axis]):
            raise self.abort(f"other comparisons {AGAIN}")
        self._keep(decision)
        return True

    def split_at_change(self, axis: int, holds: Holds, *, near: float = 0.5) -> bool:
        """Split where a monotone comparison changes on an axis; return True if there is a change.

        Non-negative floats are ordered as their bit patterns are: 62 halvings at most, however
        close to 0 the change lies, and a few where it lies near what the caller expects.
        """
        point = list(self.low)

        def holds_at(bits: int) -> bool:
            point[axis] = _float(bits)
            return holds(point)

        first, last = _bits(self.low[axis]), _bits(math.nextafter(self.high[axis], 0.0))
        before = holds_at(first)
        if holds_at(last) == before:
            return False
        expected = _bits(abs(near))
        probes = iter((expected - _NEAR, expected + _NEAR))
        while last - first > 1:
            middle = next(probes, (first + last) // 2)
            if not first < middle < last:
                continue
            if holds_at(middle) == before:
                first = middle
            else:
                last = middle
        change = _float(last)
        self.split(axis, change, keep_low=change - self.low[axis] >= self.high[axis] - change)
        return True

    def halve(self, axes: Iterable[int], holds: Holds) -> bool:
        """Halve the longest axis along which a comparison is open; return False if too short.

        The execution goes on in the half that is likely settled sooner: the lower one, unless only
        the upper one's opposite corners agree.
        """
        self.slanted = True
        axis = max(axes, key=lambda i: self.high[i] - self.low[i])
        if self.high[axis] - self.low[axis] < _LEAST_WIDTH:
            return False
        middle = 0.5 * (self.low[axis] + self.high[axis])
        high_of_lower, low_of_upper = list(self.high), list(self.low)
        high_of_lower[axis] = low_of_upper[axis] = middle
        lower, upper = (self.low, high_of_lower), (low_of_upper, self.high)
        self.split(
            axis,
            middle,
            keep_low=_opposite_corners_agree(lower, holds)
            or not _opposite_corners_agree(upper, holds),
        )
        return True

    def _prescribed(self, kind: str) -> Decision | None:
        """Return the next decision to follow, or None at the end of the prescription."""
        if len(self.made) >= len(self.prescribed):
            return None
        decision = self.prescribed[len(self.made)]
        if decision[0] != kind:
            raise self.abort(f"other decisions {AGAIN}: hidden state, or randomness from elsewhere")
        return decision

    def _keep(self, decision: Decision) -> None:
        """Reduce the box to the part that a decision keeps."""
        _, axis, at, keep_low = decision
        self.made.append(decision)
        if keep_low:
            self.high[axis] = at
        else:
            self.low[axis] = at
        self._go_on()

    def _go_on(self) -> None:
        """Stop a loop that would go on in the likelier part for ever."""
        if len(self.made) % _DECISIONS == 0 and self.volume < _NO_MATTER:
            self.undecided = True
            raise TraceUnbounded


def likeliest(weights: Sequence[float]) -> int:
    """Return the first outcome of the largest weight."""
    return max(range(len(weights)), key=weights.__getitem__)


def _opposite_corners_agree(box: tuple[Sequence[float], Sequence[float]], holds: Holds) -> bool:
    """True if a comparison has one answer at both ends of two diagonals that cross."""
    lows, highs = box[0], [math.nextafter(b, 0.0) for b in box[1]]
    if holds(lows) != holds(highs):
        return False
    corners = list(zip(lows, highs, strict=True))
    one, other = (
        [ends[(axis + start) % 2] for axis, ends in enumerate(corners)] for start in (0, 1)
    )
    return holds(one) == holds(other)


def _bits(value: float) -> int:
    return int.from_bytes(struct.pack("<d", value), "little")


def _float(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<q", bits))[0])
