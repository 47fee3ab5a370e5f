"""What the standard library draws (`random`, any `random.Random`), and the functions of `math` that
are applied to it.
"""

from __future__ import annotations

import _random
import contextlib
import functools
import itertools
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

from otm.tracing.intercept.draws import CommonGenerator, Draws, settled
from otm.tracing.intercept.laws import PYTHON, Entry
from otm.tracing.traced_numbers import TracedNumber

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
_COMMON = random._inst


@contextlib.contextmanager
def patched(*places: tuple[Any, str, Any]) -> Iterator[None]:
    """Set attributes, and put back what was there."""
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
def python_draws(draws: Draws) -> Iterator[CommonGenerator]:
    """Take what `random` draws from `draws`; stop where its common generator moves by itself."""
    counter = itertools.count()
    common = CommonGenerator(draws, "random", _COMMON.getstate)

    def moved(generator: random.Random) -> Any:
        """Return the state of a generator, and move it on."""
        if isinstance(generator, random.SystemRandom):
            return "system", next(counter)
        state = generator.getstate()
        if generator is _COMMON:
            common.end()
        _random.Random.getrandbits(generator, 64)
        if generator is _COMMON:
            common.look()
        return "random", state

    def drawing(entry: Entry) -> Callable[..., Any]:
        def draw(self: random.Random, *args: Any) -> Any:
            parameters = entry.parameters(entry.bound(args, {}))
            return settled(entry.law(draws, moved(self), 1, **parameters)[0])

        return draw

    def seeding(name: str) -> Callable[..., None]:
        original = getattr(random.Random, name)

        def seed(self: random.Random, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            if self is _COMMON:
                common.look()

        return seed

    methods = {name: drawing(entry) for name, entry in PYTHON.items()}
    methods |= {name: seeding(name) for name in ("seed", "setstate")}
    places: list[tuple[Any, str, Any]] = [
        (random.Random, name, method) for name, method in methods.items()
    ]
    places += [
        (random, name, functools.partial(method, _COMMON))
        for name, method in methods.items()
        if name in vars(random)
    ]
    places += [
        (random.SystemRandom, name, methods[name])
        for name in ("random", "_randbelow", "getrandbits")
    ]
    places += [
        (math, name, _also_of(getattr(math, name), function))
        for name, function in _FUNCTIONS.items()
    ]
    with patched(*places):
        yield common


def _also_of(
    original: Callable[..., Any], function: Callable[[TracedNumber], Any]
) -> Callable[..., Any]:
    def called(x: Any, *rest: Any) -> Any:
        if not isinstance(x, TracedNumber):
            return original(x, *rest)
        return function(x) / original(rest[0]) if rest else function(x)  # math.log(x, base)

    return called
