"""The laws that NumPy, `random` and torch draw from: one table by name, and the implementations.

A law makes values of what is intercepted: of uniforms on [0, 1), and of outcomes with given
weights. It takes the source of draws, the state of the generator (the name of what is drawn), how
many values are asked for, and its parameters, each a number or one for every value.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import pickle
from collections.abc import Callable, Hashable, Mapping, Sequence

# by name, since `math` itself is patched while code is traced
from math import inf, log
from typing import Any

import numpy as np
import scipy

from otm.audit.tracing.execution import TraceAborted
from otm.audit.tracing.intercept.draws import DeferredDraw, DrawnOutcome, Draws, settled
from otm.audit.tracing.traced_numbers import TracedNumber, mapped

MOST_OUTCOMES = 1 << 16
"""Integers drawn from more outcomes than this are taken for seeds."""


def uniform(
    draws: Draws, state: Hashable, count: int, low: Any = 0.0, high: Any = 1.0
) -> list[Any]:
    """Draw uniformly from [low, high)."""
    return _placed(draws.uniforms(state, count), low, high - low)


def exponential(draws: Draws, state: Hashable, count: int, scale: Any = 1.0) -> list[Any]:
    """Draw exponential variables of mean `scale`."""
    found = [-_logarithm(u) for u in draws.uniforms(state, count, "exponential")]
    return _placed(found, 0.0, scale)


def exponential_of_rate(draws: Draws, state: Hashable, count: int, rate: Any = 1.0) -> list[Any]:
    """Draw exponential variables of mean 1/rate."""
    return exponential(draws, state, count, 1.0 / rate)


def gumbel(
    draws: Draws, state: Hashable, count: int, loc: Any = 0.0, scale: Any = 1.0
) -> list[Any]:
    """Draw Gumbel variables of this location and scale."""
    found = [-_logarithm(-_logarithm(u)) for u in draws.uniforms(state, count, "gumbel")]
    return _placed(found, loc, scale)


def normal(
    draws: Draws, state: Hashable, count: int, loc: Any = 0.0, scale: Any = 1.0
) -> list[Any]:
    """Draw normal variables of this mean and standard deviation."""
    ndtri = scipy.special.ndtri
    found = draws.uniforms(state, count, "normal")
    values = [mapped(u, ndtri) if isinstance(u, TracedNumber) else float(ndtri(u)) for u in found]
    return _placed(values, loc, scale)


def bernoulli(draws: Draws, state: Hashable, count: int, p: Any) -> list[Any]:
    """Draw 1 with probability p, else 0."""
    return draws.choices(state, [(1.0 - each, each) for each in _each(p, count)])


def binomial(draws: Draws, state: Hashable, count: int, n: Any, p: Any) -> list[int]:
    """Draw how many of n trials succeed with probability p."""
    found = []
    for place, (trials, chance) in enumerate(zip(_each(n, count), _each(p, count), strict=True)):
        tried = bernoulli(draws, (state, place), int(trials), chance)
        found.append(sum(map(settled, tried)))
    return found


def integers(
    draws: Draws, state: Hashable, count: int, low: Any, high: Any = None, *, endpoint: bool = False
) -> list[Any]:
    """Draw integers from [low, high), or [0, low) without `high`; with `high` if `endpoint`.

    Of very many only one is returned, which is good for a seed and nothing else; on plain numbers
    it is another one, so that code with a generator that is not followed answers otherwise.
    """
    start, stop = (0, int(low)) if high is None else (int(low), int(high))
    size = stop + endpoint - start
    if size <= 0:
        raise ValueError("low >= high")
    if size > MOST_OUTCOMES:
        draws.seeds += 1
        names = [pickle.dumps((state, place, draws.replayed)) for place in range(count)]
        return [
            SeedInteger(start + int.from_bytes(hashlib.sha256(name).digest(), "little") % size)
            for name in names
        ]
    return [_shifted(choice, start) for choice in draws.choices(state, [(1.0,) * size] * count)]


def bits(draws: Draws, state: Hashable, count: int, k: int) -> list[Any]:
    """Draw integers of k random bits."""
    return integers(draws, state, count, 1 << k)


def any_integers(
    draws: Draws, state: Hashable, count: int, low: int = 0, high: int | None = None
) -> list[Any]:
    """Draw integers from [low, high), or from [low, 2⁵³) without `high`."""
    return integers(draws, state, count, low, 1 << 53 if high is None else high)


def categories(
    draws: Draws, state: Hashable, count: int, rows: Sequence[Sequence[float]], *, replace: bool
) -> list[Any]:
    """Draw `count` indices for each row of weights, with replacement or successively without."""
    if replace or count == 1:
        return draws.choices(state, [tuple(row) for row in rows for _ in range(count)])
    found = []
    for number, row in enumerate(rows):
        left = list(row)
        for place in range(count):
            (choice,) = draws.choices((state, number, place), [tuple(left)])
            found.append(settled(choice))
            left[found[-1]] = 0.0
    return found


def permutation(draws: Draws, state: Hashable, size: int) -> list[int]:
    """Draw a random order of `size` things."""
    found = draws.choices(state, [(1.0,) * (size - i) for i in range(size)])
    rest = list(range(size))
    return [rest.pop(settled(choice)) for choice in found]


@dataclasses.dataclass(frozen=True)
class Entry:
    """The law that a function draws from, and the function's arguments.

    Attributes:
        law: of the values.
        arguments: of the drawing function, in its order: name, or name=what the law calls it.
    """

    law: Callable[..., list[Any]]
    arguments: str = ""

    @functools.cached_property
    def names(self) -> dict[str, str]:
        """The law's name of each argument, in the order of the drawing function."""
        pairs = [word.partition("=") for word in self.arguments.split()]
        return {name: known or name for name, _, known in pairs}

    def bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by the function's names."""
        if len(args) > len(self.names):
            raise TypeError(f"takes {len(self.names)} arguments, not {len(args)}")
        return {**dict(zip(self.names, args, strict=False)), **kwargs}

    def parameters(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Select the arguments with a name in `names`, under the law's names."""
        return {known: given[name] for name, known in self.names.items() if name in given}


NUMPY = {
    "random": Entry(uniform, "size dtype out"),
    "random_sample": Entry(uniform, "size"),
    "uniform": Entry(uniform, "low high size"),
    "standard_exponential": Entry(exponential, "size dtype method out"),
    "exponential": Entry(exponential, "scale size"),
    "gumbel": Entry(gumbel, "loc scale size"),
    "standard_normal": Entry(normal, "size dtype out"),
    "normal": Entry(normal, "loc scale size"),
    "integers": Entry(integers, "low high size dtype endpoint"),
    "randint": Entry(integers, "low high size dtype"),
    "binomial": Entry(binomial, "n p size"),
}
"""The laws of `numpy.random`; `choice`, `multinomial` and orders have their own shapes."""

PYTHON = {
    "random": Entry(uniform),
    "_randbelow": Entry(integers, "n=low"),
    "getrandbits": Entry(bits, "k"),
    "expovariate": Entry(exponential_of_rate, "lambd=rate"),
}
"""The laws of `random.Random`, whose other methods call these."""

TORCH = {
    "rand": Entry(uniform),
    "uniform": Entry(uniform, "from=low to=high"),
    "exponential": Entry(exponential_of_rate, "lambd=rate"),
    "randn": Entry(normal),
    "normal": Entry(normal, "mean=loc std=scale"),
    "bernoulli": Entry(bernoulli, "p"),
    "randint": Entry(any_integers, "low high"),
    "random": Entry(any_integers, "from=low to=high"),
    "multinomial": Entry(categories),
    "randperm": Entry(permutation),
}
"""The laws of torch by operation, without `_like` and the underscore of in-place operations."""


class SeedInteger(int):
    """A random integer with very many outcomes, fit only for a seed: only an offset may be
    added.
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


def _placed(values: Sequence[Any], loc: Any, scale: Any) -> list[Any]:
    """Return scale · value + loc, the unchanged value for 1 · value + 0."""
    places = zip(_each(loc, len(values)), _each(scale, len(values)), strict=True)
    return [
        value if (at, by) == (0.0, 1.0) else value * by + at
        for value, (at, by) in zip(values, places, strict=True)
    ]


def _each(parameter: Any, count: int) -> list[Any]:
    """Return a parameter for every value."""
    if isinstance(parameter, float | int):
        return [parameter] * count
    values: list[Any] = np.broadcast_to(parameter, count).tolist()
    return values


def _shifted(choice: Any, by: int) -> Any:
    """Return an outcome plus an integer, open as long as the outcome is."""
    if isinstance(choice, DrawnOutcome):
        return DeferredDraw(lambda: by + choice.resolve())
    return by + int(choice)


def _logarithm(x: Any) -> Any:
    """Return the logarithm of a traced number or a float, −∞ at 0."""
    if isinstance(x, TracedNumber):
        return x.log()
    return log(x) if x > 0.0 else -inf
