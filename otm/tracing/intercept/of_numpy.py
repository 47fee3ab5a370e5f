"""What NumPy draws: `numpy.random.Generator` and the functions and `RandomState` of before."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from otm.tracing.intercept.draws import Draws, SeedInteger, outcome
from otm.tracing.intercept.of_python import patched
from otm.tracing.traced_numbers import TracedArray, TracedNumber

_WORDS_AND_PLACE = 4 * (624 + 1)
"""Bytes of the state of NumPy's MT19937."""

_REFUSED = "numpy.random.{} has no branches"


class _Drawing:
    """The methods of NumPy's generators by their names, old and new, on intercepted draws.

    Args:
        draws: where the draws come from.
        moved: returns the state of the generator, and moves it on.
        seed: returns a large random integer, without moving it.
    """

    def __init__(self, draws: Draws, moved: Callable[[], Any], seed: Callable[[], int]) -> None:
        self.draws, self.moved, self.seed = draws, moved, seed

    # Uniforms and what is made of them.
    def random(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        if out is not None:
            raise self.draws.escape("numpy.random filled an array of plain floats")
        return self._shaped(self.draws.uniforms(self.moved(), _count(size)), size)

    def random_sample(self, size: Any = None) -> Any:
        return self.random(size)

    def rand(self, *shape: int) -> Any:
        return self.random(shape or None)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
        size = _common(size, low, high)
        return low + (high - low) * self.random(size)

    def standard_exponential(
        self, size: Any = None, dtype: Any = np.float64, method: str = "zig", out: Any = None
    ) -> Any:
        if out is not None:
            raise self.draws.escape("numpy.random filled an array of plain floats")
        return self._shaped(self.draws.exponentials(self.moved(), _count(size)), size)

    def exponential(self, scale: Any = 1.0, size: Any = None) -> Any:
        return self.standard_exponential(_common(size, scale)) * scale

    def gumbel(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        size = _common(size, loc, scale)
        return self._shaped(self.draws.gumbels(self.moved(), _count(size)), size) * scale + loc

    def standard_normal(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        return self._shaped(self.draws.normals(self.moved(), _count(size)), size)

    def randn(self, *shape: int) -> Any:
        return self.standard_normal(shape or None)

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        return self.standard_normal(_common(size, loc, scale)) * scale + loc

    # Outcomes.
    def integers(
        self,
        low: Any,
        high: Any = None,
        size: Any = None,
        dtype: Any = np.int64,
        endpoint: bool = False,
    ) -> Any:
        start, stop = (0, int(low)) if high is None else (int(low), int(high))
        return self._integers(start, stop + bool(endpoint) - start, size)

    def randint(self, low: Any, high: Any = None, size: Any = None, dtype: Any = int) -> Any:
        return self.integers(low, high, size)

    def random_integers(self, low: Any, high: Any = None, size: Any = None) -> Any:
        return self.integers(
            1 if high is None else low, low if high is None else high, size, endpoint=True
        )

    def choice(
        self,
        a: Any,
        size: Any = None,
        replace: bool = True,
        p: Any = None,
        axis: int = 0,
        shuffle: bool = True,
    ) -> Any:
        things = np.arange(a) if np.ndim(a) == 0 else np.asarray(a)
        weights = (1.0,) * len(things) if p is None else _weights(p)
        if len(weights) != len(things):
            raise ValueError("'a' and 'p' must have same size")
        state = self.moved()
        if replace:
            found = [
                outcome(choice) for choice in self.draws.choices(state, [weights] * _count(size))
            ]
        else:
            if _count(size) > np.count_nonzero(weights):
                raise ValueError("Fewer non-zero entries in p than size")
            found = self.draws.without_replacement(state, weights, _count(size))
        picked = things.take(found, axis=axis)
        return picked[0] if size is None else picked.reshape((*_shape(size), *things.shape[1:]))

    def multinomial(self, n: int, pvals: Any, size: Any = None) -> Any:
        mass = np.asarray(pvals, dtype=np.float64)
        rows = np.broadcast_to(
            mass, (*_shape(size), *mass.shape[-1:]) if size is not None else mass.shape
        )
        flat = rows.reshape(-1, mass.shape[-1])
        found = self.draws.choices(
            self.moved(), [_weights(row) for row in flat for _ in range(int(n))]
        )
        counts = np.zeros((len(flat), mass.shape[-1]), dtype=np.int64)
        for i, choice in enumerate(found):
            counts[i // int(n), outcome(choice)] += 1
        return counts.reshape(rows.shape)

    def binomial(self, n: Any, p: Any, size: Any = None) -> Any:
        size = _common(size, n, p)
        trials, chances = (np.broadcast_to(x, _shape(size)).reshape(-1) for x in (n, p))
        state, found = self.moved(), []
        for i, (count, chance) in enumerate(zip(trials, chances, strict=True)):
            rows = [(1.0 - float(chance), float(chance))] * int(count)
            found.append(sum(outcome(choice) for choice in self.draws.choices((state, i), rows)))
        return self._shaped(found, size)

    def permutation(self, x: Any, axis: int = 0) -> Any:
        things = np.arange(x) if np.ndim(x) == 0 else np.asarray(x)
        return things.take(self.draws.permutation(self.moved(), things.shape[axis]), axis=axis)

    def shuffle(self, x: Any, axis: int = 0) -> None:
        order = self.draws.permutation(self.moved(), len(x))
        x[:] = [x[i] for i in order] if isinstance(x, list) else np.asarray(x)[order]

    def _integers(self, start: int, outcomes: int, size: Any) -> Any:
        if outcomes <= 0:
            raise ValueError("low >= high")
        seed = self.seed() % outcomes
        found = self.draws.integers(self.moved(), _count(size), outcomes, seed)
        if any(isinstance(choice, SeedInteger) for choice in found):
            return (
                SeedInteger(start + seed) if size is None else np.full(_shape(size), start + seed)
            )
        return self._shaped([start + outcome(choice) for choice in found], size)

    def _shaped(self, values: list[Any], size: Any) -> Any:
        if size is None:
            return values[0]
        if not any(isinstance(value, TracedNumber) for value in values):
            return np.asarray(values).reshape(_shape(size))
        found: Any = np.empty(len(values), dtype=object)
        found[:] = values
        return found.reshape(_shape(size)).view(TracedArray)


_DRAWN = [name for name in vars(_Drawing) if not name.startswith("_")]
_SAFE = {"bit_generator", "seed", "get_state", "set_state", "spawn", "bytes"}


def common_state() -> bytes:
    """Return what tells where the generator behind the functions of `numpy.random` is.

    Of the usual one the words themselves, read in place: to ask for them politely takes a hundred
    times as long.
    """
    behind = np.random.mtrand._rand._bit_generator
    if isinstance(behind, np.random.MT19937):
        return ctypes.string_at(behind.ctypes.state_address, _WORDS_AND_PLACE)
    return pickle.dumps(behind.state)


class _Common:
    """The generator behind the functions of `numpy.random`, which must move only where it is seen."""

    def __init__(self, draws: Draws) -> None:
        self._draws = draws
        self._last: Any = None
        self.generator: Any = np.random.mtrand._rand

    def begin(self, draws: Draws) -> None:
        self._last = common_state()

    def end(self) -> None:
        if common_state() != self._last:
            raise self._draws.escape("numpy.random drew by a function imported before")

    def moved(self) -> Any:
        """Return the state, and move on."""
        self.end()
        state = self._last
        self.generator.random_sample()
        self._last = common_state()
        return "numpy.random", state

    def seeding(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> None:
            original(*args, **kwargs)
            self._last = common_state()

        return called


@contextlib.contextmanager
def numpy_draws(draws: Draws) -> Iterator[_Common]:
    """Take what NumPy draws from `draws`; stop where the common generator moves by itself."""
    common = _Common(draws)
    drawing = _Drawing(draws, common.moved, lambda: int.from_bytes(common_state()[:8], "little"))
    functions: dict[str, Any] = {name: getattr(drawing, name) for name in _DRAWN}
    functions |= {
        name: common.seeding(getattr(common.generator, name)) for name in ("seed", "set_state")
    }
    places = []
    for name in dir(np.random):
        thing = getattr(np.random, name)
        if getattr(thing, "__self__", None) is common.generator and name != "get_state":
            places.append((np.random, name, functions.get(name) or _refusing(draws, name)))
    generator, state = (
        _subclass(np.random.Generator, draws),
        _subclass(np.random.RandomState, draws),
    )
    seeded = functools.partial(_default_rng, generator)
    places += [
        (np.random, "Generator", generator),
        (np.random, "RandomState", state),
        (np.random, "default_rng", seeded),
    ]
    with patched(*places):
        yield common


def _default_rng(generator: Any, seed: Any = None) -> Any:
    if isinstance(seed, np.random.BitGenerator):
        return generator(seed)
    return seed if isinstance(seed, generator) else generator(np.random.PCG64(seed))


def _subclass(base: Any, draws: Draws) -> Any:
    """Return a generator class with every drawing method intercepted."""

    class Intercepted(base):  # type: ignore[misc]
        def _drawing(self) -> _Drawing:
            def state() -> bytes:
                old = base is np.random.RandomState
                return pickle.dumps(self.get_state() if old else self.bit_generator.state)

            def moved() -> Any:
                before = state()
                base.random_sample(self) if base is np.random.RandomState else base.random(self)
                return base.__name__, before

            return _Drawing(draws, moved, lambda: int.from_bytes(state()[-40:], "little"))

    def method(name: str) -> Callable[..., Any]:
        def called(self: Any, *args: Any, **kwargs: Any) -> Any:
            return getattr(self._drawing(), name)(*args, **kwargs)

        return called

    for name in dir(base):
        if name in _DRAWN:
            setattr(Intercepted, name, method(name))
        elif not name.startswith("_") and name not in _SAFE:
            setattr(Intercepted, name, _refusing(draws, name))
    Intercepted.__name__ = base.__name__
    return Intercepted


def _refusing(draws: Draws, name: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise draws.escape(_REFUSED.format(name))

    return refuse


def _shape(size: Any) -> tuple[int, ...]:
    if size is None:
        return ()
    return (int(size),) if np.ndim(size) == 0 else tuple(int(n) for n in size)


def _count(size: Any) -> int:
    return math.prod(_shape(size))


def _common(size: Any, *parameters: Any) -> Any:
    """Return the size asked for, or that of the parameters."""
    if size is not None:
        return size
    return np.broadcast_shapes(*(np.shape(parameter) for parameter in parameters)) or None


def _weights(p: Any) -> tuple[float, ...]:
    mass = np.asarray(p, dtype=np.float64)
    if (
        mass.ndim != 1
        or not math.isclose(float(mass.sum()), 1.0, abs_tol=1e-6)
        or (mass < 0.0).any()
    ):
        raise ValueError("probabilities do not sum to 1")
    return tuple(mass.tolist())
