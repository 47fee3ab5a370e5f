"""Interception of the standard library's draws (`random`, any `random.Random`), and of the
functions of `math` applied to the drawn numbers.
"""

from __future__ import annotations

import _random
import contextlib
import functools
import itertools
import math
import random
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from otm.audit.tracing.intercept.draws import Generators, settled
from otm.audit.tracing.intercept.laws import PYTHON, Entry
from otm.audit.tracing.traced_numbers import TracedNumber

_FUNCTIONS: dict[str, Callable[[TracedNumber], Any]] = {
    "log": TracedNumber.log,
    "log1p": TracedNumber.log1p,
    "exp": TracedNumber.exp,
    "expm1": TracedNumber.expm1,
    "sqrt": TracedNumber.sqrt,
    "isnan": lambda x: False,
    "isinf": lambda x: False,
    "isfinite": lambda x: True,
}
_OF_SYSTEM = ("random", "_randbelow", "getrandbits")


@contextlib.contextmanager
def patched(*places: tuple[Any, str, Any]) -> Iterator[None]:
    """Set attributes, and restore the old values at the end."""
    before = [(thing, name, vars(thing).get(name, _MISSING)) for thing, name, _ in places]
    for thing, name, value in places:
        setattr(thing, name, value)
    try:
        yield
    finally:
        for thing, name, value in reversed(before):
            if value is _MISSING:
                delattr(thing, name)
            else:
                setattr(thing, name, value)


_MISSING = object()


@contextlib.contextmanager
def python_draws() -> Iterator[Generators]:
    """Replace the draws of `random` by draws of the execution."""
    counter = itertools.count()

    def state(generator: random.Random) -> Hashable:
        system = isinstance(generator, random.SystemRandom)
        return ("system", next(counter)) if system else generator.getstate()

    def move(generator: random.Random) -> None:
        _random.Random.getrandbits(generator, 64)

    generators = Generators("random", random._inst, state, move)

    def drawing(entry: Entry) -> Callable[..., Any]:
        def draw(self: random.Random, *args: Any) -> Any:
            parameters = entry.parameters(entry.bound(args, {}))
            return settled(entry.law(generators.draws, generators.moved(self), 1, **parameters)[0])

        return draw

    methods = {name: drawing(entry) for name, entry in PYTHON.items()}
    of_system = [(random.SystemRandom, name, methods[name]) for name in _OF_SYSTEM]
    methods |= {
        name: seeding(getattr(random.Random, name), generators) for name in ("seed", "setstate")
    }
    places: list[tuple[Any, str, Any]] = [
        *((random.Random, name, method) for name, method in methods.items()),
        *of_system,
        *(
            (random, name, functools.partial(method, random._inst))
            for name, method in methods.items()
            if name in vars(random)
        ),
        *(
            (math, name, _also_of(getattr(math, name), function))
            for name, function in _FUNCTIONS.items()
        ),
    ]
    with patched(*places):
        yield generators


def seeding(original: Callable[..., Any], generators: Generators) -> Callable[..., None]:
    """Wrap a method that sets a generator, so that the new state is noted."""

    def seed(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        generators.look(self)

    return seed


def _also_of(
    original: Callable[..., Any], function: Callable[[TracedNumber], Any]
) -> Callable[..., Any]:
    """Return a function of `math` that takes traced numbers, too."""

    def called(x: Any, *rest: Any) -> Any:
        if not isinstance(x, TracedNumber):
            return original(x, *rest)
        return function(x) / original(rest[0]) if rest else function(x)  # math.log(x, base)

    return called
