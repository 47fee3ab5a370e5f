"""Intercepted draws: new sources and choices while code is traced, the recorded values when the
code is executed again.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar

from otm.audit.tracing.execution import AGAIN, Execution, TraceAborted, likeliest
from otm.audit.tracing.exponentials import UniformSource
from otm.audit.tracing.traced_numbers import uniform

_GOLDEN = 0.6180339887498949


class DrawnOutcome:
    """One of several outcomes, drawn but not yet read."""

    __slots__ = ("_index", "run", "weights")

    def __init__(self, run: Execution, weights: Sequence[float]) -> None:
        self.run, self.weights = run, weights
        self._index: int | None = None

    def resolve(self) -> int:
        """Return the chosen index; the execution chooses on the first call."""
        if self._index is None:
            self._index = self.run.choose(self.weights)
        return self._index

    def recorded(self) -> int:
        """Return the chosen index, or the likeliest one if none is chosen yet."""
        return likeliest(self.weights) if self._index is None else self._index


class DeferredDraw:
    """A plain answer that depends on random numbers and has not been read yet."""

    def __init__(self, question: Callable[[], Any]) -> None:
        self.resolve = functools.cache(question)


class Draws(abc.ABC):
    """A source of intercepted draws.

    Attributes:
        replayed: whether it is a second execution, on plain numbers.
        seeds: how many seeds were drawn.
    """

    replayed: ClassVar[bool] = False
    seeds: int = 0

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
        """Return an outcome for every row of weights, a uniform for an empty row."""

    @abc.abstractmethod
    def abort(self, how: str) -> TraceAborted:
        """Return the exception to raise where a draw cannot be followed."""


def settled(thing: Any) -> Any:
    """Return the outcome of a deferred draw, resolved now; anything else unchanged."""
    return thing.resolve() if isinstance(thing, (DeferredDraw, DrawnOutcome)) else thing


@dataclasses.dataclass(eq=False)
class TracingDraws(Draws):
    """The draws of a traced execution.

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
        """True if anything was drawn after the argument."""
        return len(self.events) > 1

    def _take(
        self, state: Hashable, signature: Hashable, rows: Sequence[Sequence[float]]
    ) -> list[Any]:
        """Return the draws of a generator's state, made now if the state is new."""
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
        """Return all draws, at the middle of the box where the box leaves a value open."""
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
    """The draws of a traced execution, replayed as plain numbers.

    Attributes:
        values: by draw.
    """

    replayed: ClassVar[bool] = True

    values: Sequence[Sequence[float | int]]
    _next: int = 0

    def abort(self, how: str) -> TraceAborted:
        """Return the exception that stops the execution."""
        return TraceAborted(how)

    def _take(
        self, state: Hashable, signature: Hashable, rows: Sequence[Sequence[float]]
    ) -> list[Any]:
        """Return the next recorded draws, which must have the requested number of values."""
        if self._next >= len(self.values) or len(self.values[self._next]) != len(rows):
            raise self.abort(f"other draws {AGAIN}")
        self._next += 1
        return list(self.values[self._next - 1])


class Generators:
    """The generators of one library; the common one behind the functions moves only when used.

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
        self.start()

    def start(self) -> None:
        """Note where the common generator is: there every execution begins."""
        self._first = self._last = self._state(self._common)

    @property
    def moved_on(self) -> bool:
        """True if the common generator is elsewhere than at the start."""
        return self._last != self._first

    def begin(self, draws: Draws) -> None:
        """Start an execution: set the draws."""
        self.draws = draws

    def look(self, generator: Any) -> None:
        """Note the new state of a generator that was set, if this is the common generator."""
        if generator is self._common:
            self._last = self._state(generator)

    def end(self) -> None:
        """Stop the execution if the common generator has moved unseen."""
        if self._state(self._common) != self._last:
            raise self.draws.abort(f"{self._library} drew by a function imported before")

    def moved(self, generator: Any) -> Hashable:
        """Return the state of a generator, which names the draw, and advance the generator."""
        if generator is self._common:
            self.end()
        state = self._state(generator)
        self._move(generator)
        self.look(generator)
        return self._library, state
