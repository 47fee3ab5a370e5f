"""What is drawn: new sources and choices while code is traced, the values that were found when it
is executed again.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import scipy

from otm.tracing.execution import Execution, TraceAborted
from otm.tracing.exponentials import UniformSource
from otm.tracing.traced_numbers import TracedNumber, mapped, uniform

MOST_OUTCOMES = 1 << 16
"""Integers drawn from more outcomes than this are taken for seeds."""

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
        return (
            max(range(len(self.weights)), key=self.weights.__getitem__)
            if self._index is None
            else self._index
        )


class DeferredDraw:
    """A plain answer that depends on random numbers and has not been asked for yet."""

    __slots__ = ("_answer", "_known", "_question")

    def __init__(self, question: Callable[[], Any]) -> None:
        self._question = question
        self._known = False
        self._answer: Any = None

    def resolve(self) -> Any:
        """Ask for it."""
        if not self._known:
            self._answer = self._question()
            self._known = True
        return self._answer


class Draws(abc.ABC):
    """Where intercepted draws come from."""

    @abc.abstractmethod
    def uniforms(self, state: Hashable, size: int, kind: str = "uniform") -> list[Any]:
        """Return uniforms on [0, 1): numbers or floats.

        Args:
            state: of the generator before the draw.
            size: how many.
            kind: what is made of them, which the same state must be asked for again.
        """

    @abc.abstractmethod
    def choices(self, state: Hashable, weights: Sequence[Sequence[float]]) -> list[Any]:
        """Return a `DrawnOutcome` or an index for every row of weights (not normalised)."""

    @abc.abstractmethod
    def escape(self, how: str) -> TraceAborted:
        """Return the exception to raise where a draw cannot be followed."""

    def exponentials(self, state: Hashable, size: int) -> list[Any]:
        """Return exponential variables of mean 1."""
        return [-logarithm(u) for u in self.uniforms(state, size, "exponential")]

    def gumbels(self, state: Hashable, size: int) -> list[Any]:
        """Return standard Gumbel variables."""
        return [-logarithm(-logarithm(u)) for u in self.uniforms(state, size, "gumbel")]

    def normals(self, state: Hashable, size: int) -> list[Any]:
        """Return standard normal variables."""
        found = self.uniforms(state, size, "normal")
        return [
            mapped(u, scipy.special.ndtri)
            if isinstance(u, TracedNumber)
            else float(scipy.special.ndtri(u))
            for u in found
        ]

    def integers(self, state: Hashable, size: int, outcomes: int, seed: int) -> list[Any]:
        """Return indices of equally likely outcomes; of very many only the real one, which is good
        for a seed and nothing else.
        """
        if outcomes > MOST_OUTCOMES:
            return [SeedInteger(seed)] * size
        return self.choices(state, [(1.0,) * outcomes] * size)

    def permutation(self, state: Hashable, size: int) -> list[int]:
        """Return a random order of `size` things."""
        found = self.choices(state, [(1.0,) * (size - i) for i in range(size)])
        rest, order = list(range(size)), []
        for choice in found:
            order.append(rest.pop(outcome(choice)))
        return order

    def without_replacement(
        self, state: Hashable, weights: Sequence[float], size: int
    ) -> list[int]:
        """Return successive distinct indices, each with probability proportional to its weight
        among those left.
        """
        left, order = list(weights), []
        for place in range(size):
            (choice,) = self.choices((state, place), [tuple(left)])
            order.append(outcome(choice))
            left[order[-1]] = 0.0
        return order


def outcome(choice: Any) -> int:
    """Return the index that was chosen."""
    return choice.resolve() if isinstance(choice, DrawnOutcome) else int(choice)


def logarithm(x: Any) -> Any:
    """Return the logarithm of a number or a float, −∞ at 0."""
    if isinstance(x, TracedNumber):
        return x.log()
    return math.log(x) if x > 0.0 else -math.inf


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

    def uniforms(self, state: Hashable, size: int, kind: str = "uniform") -> list[Any]:
        """Return uniforms on [0, 1)."""
        return [
            uniform(source)
            for source in self._take(
                state, (kind, size), lambda: [UniformSource(self.run) for _ in range(size)]
            )
        ]

    def choices(self, state: Hashable, weights: Sequence[Sequence[float]]) -> list[Any]:
        """Return an outcome for every row of weights."""
        for row in weights:
            total = math.fsum(row)
            if not (math.isfinite(total) and total > 0.0 and min(row) >= 0.0):
                raise ValueError(
                    "probabilities must be non-negative and finite, with a positive sum"
                )
        return self._take(
            state,
            ("choice", tuple(map(tuple, weights))),
            lambda: [DrawnOutcome(self.run, row) for row in weights],
        )

    def escape(self, how: str) -> TraceAborted:
        """Return the exception that stops the execution."""
        return self.run.escape(how)

    def _take(self, state: Hashable, signature: Hashable, make: Any) -> list[Any]:
        before, elements = self._known.get(state, (signature, None))
        if before != signature:
            raise self.escape("a generator was set back and drew otherwise than before")
        if elements is None:
            elements = make()
            # a draw of nothing leaves the generator as it is: what comes next has the same state
            if elements:
                self._known[state] = signature, elements
        self.events.append(elements)
        return list(elements)

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

    def uniforms(self, state: Hashable, size: int, kind: str = "uniform") -> list[Any]:
        """Return uniforms on [0, 1)."""
        return self._take(size)

    def choices(self, state: Hashable, weights: Sequence[Sequence[float]]) -> list[Any]:
        """Return an outcome for every row of weights."""
        return self._take(len(weights))

    def escape(self, how: str) -> TraceAborted:
        """Return the exception that stops the execution."""
        return TraceAborted(how)

    def _take(self, size: int) -> list[Any]:
        if self._next >= len(self.values) or len(self.values[self._next]) != size:
            raise self.escape("other draws at a second execution")
        self._next += 1
        return list(self.values[self._next - 1])


class SeedInteger(int):
    """A random integer from so many that it can only be a seed: computing with it is refused, but
    for an offset.
    """

    def _refuse(self, *others: Any) -> Any:
        raise TraceAborted("arithmetic on a random integer with very many outcomes")

    def _offset(self, other: Any) -> Any:
        return SeedInteger(int(self) + other) if isinstance(other, int) else self._refuse()

    __add__ = __radd__ = _offset
    __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __floordiv__ = __mod__ = __and__ = __rshift__ = __lt__ = __le__ = __gt__ = __ge__ = (
        __float__
    ) = _refuse
