"""What is drawn: new sources and choices while code is traced, the values that were found when it
is executed again.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from otm.audit.tracing.execution import Execution, TraceAborted, likeliest
from otm.audit.tracing.exponentials import UniformSource
from otm.audit.tracing.traced_numbers import uniform

_GOLDEN = 0.6180339887498949


class DrawnOutcome:
    """One of several outcomes, drawn but not yet looked at."""

    __slots__ = ("_index", "run", "weights")

    def __init__(self, run: Execution, weights: Sequence[float]) -> None:
        self.run, self.weights = run, weights
        self._index: int | None = None

    def resolve(self) -> int:
        """Look at it: the execution chooses."""
        if self._index is None:
            self._index = self.run.choose(self.weights)
        return self._index

    def recorded(self) -> int:
        """Return what it was, or might have been."""
        return likeliest(self.weights) if self._index is None else self._index


class DeferredDraw:
    """A plain answer that depends on random numbers and has not been asked for yet."""

    def __init__(self, question: Callable[[], Any]) -> None:
        self.resolve = functools.cache(question)


class Draws(abc.ABC):
    """Where intercepted draws come from."""

    def uniforms(self, state: Hashable, size: int, kind: str = "uniform") -> list[Any]:
        """Return uniforms on [0, 1): numbers or floats.

        Args:
            state: of the generator before the draw.
            size: how many.
            kind: what is made of them, which the same state must be asked for again.
        """
        return self._take(state, (kind, size), [()] * size)

    def choices(self, state: Hashable, weights: Sequence[Sequence[float]]) -> list[Any]:
        """Return a `DrawnOutcome` or an index for every row of weights (not normalised)."""
        for row in weights:
            total = math.fsum(row)
            if not (math.isfinite(total) and total > 0.0 and min(row) >= 0.0):
                raise ValueError(
                    "probabilities must be non-negative and finite, with a positive sum"
                )
        rows = tuple(map(tuple, weights))
        return self._take(state, ("choice", rows), rows)

    @abc.abstractmethod
    def _take(
        self, state: Hashable, signature: Hashable, rows: Sequence[Sequence[float]]
    ) -> list[Any]:
        """Return an outcome for every row of weights, a uniform where it is empty."""

    @abc.abstractmethod
    def abort(self, how: str) -> TraceAborted:
        """Return the exception to raise where a draw cannot be followed."""

    @property
    @abc.abstractmethod
    def drew(self) -> bool:
        """Whether the code drew anything itself."""


def settled(thing: Any) -> Any:
    """Look at what is open; return anything else as it is."""
    return thing.resolve() if isinstance(thing, DeferredDraw | DrawnOutcome) else thing


@dataclasses.dataclass(eq=False)
class TracingDraws(Draws):
    """Draws of an execution that is traced.

    Attributes:
        run: the execution.
        events: what was drawn, in order.
    """

    run: Execution
    events: list[list[UniformSource | DrawnOutcome]] = dataclasses.field(default_factory=list)
    _known: dict[Hashable, tuple[Hashable, list[Any]]] = dataclasses.field(default_factory=dict)

    def abort(self, how: str) -> TraceAborted:
        """Return the exception that stops the execution."""
        return self.run.abort(how)

    @property
    def drew(self) -> bool:
        """Whether anything was drawn after the argument."""
        return len(self.events) > 1

    def _take(
        self, state: Hashable, signature: Hashable, rows: Sequence[Sequence[float]]
    ) -> list[Any]:
        """Return what was drawn in this state, made now if it was not drawn before."""
        before, elements = self._known.get(state, (signature, None))
        if before != signature:
            raise self.abort("a generator was set back and drew otherwise than before")
        if elements is None:
            elements = [
                DrawnOutcome(self.run, row) if row else UniformSource(self.run) for row in rows
            ]
            # a draw of nothing leaves the generator as it is: what comes next has the same state
            if elements:
                self._known[state] = signature, elements
        self.events.append(elements)
        return [uniform(one) if isinstance(one, UniformSource) else one for one in elements]

    def recorded(self) -> list[list[float | int]]:
        """Return what was drawn, at the middle of the box where the box leaves it open."""
        middle = self.run.middle
        found: list[list[float | int]] = []
        for elements in self.events:
            values: list[float | int] = []
            for element in elements:
                if isinstance(element, DrawnOutcome):
                    values.append(element.recorded())
                elif element.known and max(element.axes, default=-1) < len(middle):
                    values.append(element.value(middle))
                else:
                    values.append(math.fmod((len(found) + len(values) + 1) * _GOLDEN, 1.0))
            found.append(values)
        return found


@dataclasses.dataclass(eq=False)
class ReplayedDraws(Draws):
    """Draws of an execution that was traced, given to it again as plain numbers.

    Attributes:
        values: by draw.
    """

    values: Sequence[Sequence[float | int]]
    _next: int = 0

    def abort(self, how: str) -> TraceAborted:
        """Return the exception that stops the execution."""
        return TraceAborted(how)

    @property
    def drew(self) -> bool:
        """Whether any of them was drawn again."""
        return self._next > 0

    def _take(
        self, state: Hashable, signature: Hashable, rows: Sequence[Sequence[float]]
    ) -> list[Any]:
        """Return the next of the recorded draws, which must be of this size."""
        if self._next >= len(self.values) or len(self.values[self._next]) != len(rows):
            raise self.abort("other draws at a second execution")
        self._next += 1
        return list(self.values[self._next - 1])


class Generators:
    """The generators of one library, of which the one behind its functions moves only when seen.

    Args:
        library: its name, for the message.
        common: the generator behind its functions.
        state: returns where a generator is.
        move: moves one on.

    Attributes:
        draws: where the intercepted draws of the execution come from.
    """

    draws: Draws

    def __init__(
        self,
        library: str,
        common: Any,
        state: Callable[[Any], Hashable],
        move: Callable[[Any], object],
    ) -> None:
        self._library, self._common, self._state, self._move = library, common, state, move
        self._last: Hashable = None

    def begin(self, draws: Draws) -> None:
        """Take note of an execution that begins."""
        self.draws = draws
        self.look(self._common)

    def look(self, generator: Any) -> None:
        """Take note of where a generator was set, if it is the common one."""
        if generator is self._common:
            self._last = self._state(generator)

    def end(self) -> None:
        """Stop the execution if the common generator is elsewhere."""
        if self._state(self._common) != self._last:
            raise self.draws.abort(f"{self._library} drew by a function imported before")

    def moved(self, generator: Any) -> Hashable:
        """Return the state of a generator, which names what it draws, and move it on."""
        if generator is self._common:
            self.end()
        state = self._state(generator)
        self._move(generator)
        self.look(generator)
        return self._library, state
