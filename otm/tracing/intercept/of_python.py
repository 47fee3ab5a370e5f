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

from otm.tracing.intercept.draws import Draws, logarithm, outcome
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


class _Common:
    """The generator behind the functions of `random`, which must move only where it is seen."""

    def __init__(self, draws: Draws) -> None:
        self._draws = draws
        self._last: Any = None

    def begin(self, draws: Draws) -> None:
        self._last = _COMMON.getstate()

    def end(self) -> None:
        if _COMMON.getstate() != self._last:
            raise self._draws.escape("random drew by a function imported before")

    def moved(self, generator: random.Random) -> Any:
        """Return the state of a generator, and move it on."""
        state = generator.getstate()
        if generator is _COMMON:
            self.end()
        _random.Random.getrandbits(generator, 64)
        self.seeded(generator)
        return "random", state

    def seeded(self, generator: random.Random) -> None:
        """Take the state as it is."""
        if generator is _COMMON:
            self._last = generator.getstate()


@contextlib.contextmanager
def python_draws(draws: Draws) -> Iterator[_Common]:
    """Take what `random` draws from `draws`; stop where its common generator moves by itself."""
    counter = itertools.count()
    common = _Common(draws)

    def moved(generator: random.Random) -> Any:
        return (
            ("system", next(counter))
            if isinstance(generator, random.SystemRandom)
            else common.moved(generator)
        )

    def uniform(self: random.Random) -> Any:
        return draws.uniforms(moved(self), 1)[0]

    def below(self: random.Random, n: int) -> Any:
        seed = 0 if isinstance(self, random.SystemRandom) else _peek(self, n)
        return _index(draws.integers(moved(self), 1, n, seed)[0])

    def bits(self: random.Random, k: int) -> Any:
        return below(self, 1 << k)

    def exponential(self: random.Random, lambd: float = 1.0) -> Any:
        return -logarithm(uniform(self)) / lambd

    def seeding(name: str) -> Callable[..., None]:
        original = getattr(random.Random, name)

        def seed(self: random.Random, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            common.seeded(self)

        return seed

    methods: dict[str, Any] = {
        "random": uniform,
        "_randbelow": below,
        "getrandbits": bits,
        "expovariate": exponential,
        "seed": seeding("seed"),
        "setstate": seeding("setstate"),
    }
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


def _index(choice: Any) -> Any:
    return choice if type(choice) is not int and isinstance(choice, int) else outcome(choice)


def _peek(generator: random.Random, n: int) -> int:
    """Return what the generator would give, without moving it."""
    state = generator.getstate()
    found = _random.Random.getrandbits(generator, max(1, n.bit_length())) % n
    _random.Random.setstate(generator, state[1])
    return found


def _also_of(
    original: Callable[..., Any], function: Callable[[TracedNumber], Any]
) -> Callable[..., Any]:
    def called(x: Any, *rest: Any) -> Any:
        if not isinstance(x, TracedNumber):
            return original(x, *rest)
        return function(x) / original(rest[0]) if rest else function(x)  # math.log(x, base)

    return called
