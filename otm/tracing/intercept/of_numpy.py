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

from otm.tracing.intercept.draws import CommonGenerator, Draws, settled
from otm.tracing.intercept.laws import NUMPY, categories, permutation
from otm.tracing.intercept.of_python import patched
from otm.tracing.traced_numbers import TracedArray, TracedNumber

_WORDS_AND_PLACE = 4 * (624 + 1)
"""Bytes of the state of NumPy's MT19937."""

_REFUSED = "numpy.random.{} has no branches"


class _Drawing:
    """A generator of NumPy whose draws are intercepted.

    Args:
        draws: where the draws come from.
        moved: returns the state of the generator, and moves it on.
    """

    def __init__(self, draws: Draws, moved: Callable[[], Any]) -> None:
        self.draws, self.moved = draws, moved

    def draw(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Return what the generator's method of this name draws."""
        if name in _OF_OWN_SHAPE:
            return getattr(self, name)(*args, **kwargs)
        given = NUMPY[name].bound(args, kwargs)
        if given.pop("out", None) is not None:
            raise self.draws.abort("numpy.random filled an array of plain floats")
        size, _, _ = (given.pop(own, None) for own in ("size", "dtype", "method"))
        parameters = NUMPY[name].parameters(given)
        if size is None:
            shapes = (np.shape(parameter) for parameter in parameters.values())
            size = np.broadcast_shapes(*shapes) or None
        for name_of, parameter in parameters.items():
            if np.ndim(parameter):
                parameters[name_of] = np.broadcast_to(parameter, _shape(size)).reshape(-1)
        values = NUMPY[name].law(self.draws, self.moved(), _count(size), **parameters)
        return _shaped([settled(value) for value in values], size)

    def rand(self, *shape: int) -> Any:
        return self.draw("random", shape or None)

    def randn(self, *shape: int) -> Any:
        return self.draw("standard_normal", shape or None)

    def random_integers(self, low: Any, high: Any = None, size: Any = None) -> Any:
        ends = (1, low) if high is None else (low, high)
        return self.draw("integers", *ends, size, endpoint=True)

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
        if not replace and _count(size) > np.count_nonzero(weights):
            raise ValueError("Fewer non-zero entries in p than size")
        found = categories(self.draws, self.moved(), _count(size), [weights], replace=replace)
        picked = things.take([settled(choice) for choice in found], axis=axis)
        return picked[0] if size is None else picked.reshape((*_shape(size), *things.shape[1:]))

    def multinomial(self, n: int, pvals: Any, size: Any = None) -> Any:
        mass = np.asarray(pvals, dtype=np.float64)
        shape = mass.shape if size is None else (*_shape(size), *mass.shape[-1:])
        rows = np.broadcast_to(mass, shape).reshape(-1, mass.shape[-1])
        weights = [_weights(row) for row in rows]
        found = categories(self.draws, self.moved(), int(n), weights, replace=True)
        counts = np.zeros(rows.shape, dtype=np.int64)
        for i, choice in enumerate(found):
            counts[i // int(n), settled(choice)] += 1
        return counts.reshape(shape)

    def permutation(self, x: Any, axis: int = 0) -> Any:
        things = np.arange(x) if np.ndim(x) == 0 else np.asarray(x)
        order = permutation(self.draws, self.moved(), things.shape[axis])
        return things.take(order, axis=axis)

    def shuffle(self, x: Any, axis: int = 0) -> None:
        order = permutation(self.draws, self.moved(), len(x))
        x[:] = [x[i] for i in order] if isinstance(x, list) else np.asarray(x)[order]


_OF_OWN_SHAPE = {name for name in vars(_Drawing) if not name.startswith("_")} - {"draw"}
_DRAWN = _OF_OWN_SHAPE | NUMPY.keys()
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


@contextlib.contextmanager
def numpy_draws(draws: Draws) -> Iterator[CommonGenerator]:
    """Take what NumPy draws from `draws`; stop where the common generator moves by itself."""
    common = CommonGenerator(draws, "numpy.random", common_state)
    behind: Any = np.random.mtrand._rand

    def moved() -> Any:
        common.end()
        state = common_state()
        behind.random_sample()
        common.look()
        return "numpy.random", state

    def seeding(original: Callable[..., Any]) -> Callable[..., Any]:
        def seed(*args: Any, **kwargs: Any) -> None:
            original(*args, **kwargs)
            common.look()

        return seed

    drawing = _Drawing(draws, moved)
    functions: dict[str, Any] = {name: functools.partial(drawing.draw, name) for name in _DRAWN}
    functions |= {name: seeding(getattr(behind, name)) for name in ("seed", "set_state")}
    places = []
    for name in dir(np.random):
        thing = getattr(np.random, name)
        if getattr(thing, "__self__", None) is behind and name != "get_state":
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

            return _Drawing(draws, moved)

    def method(name: str) -> Callable[..., Any]:
        def called(self: Any, *args: Any, **kwargs: Any) -> Any:
            return self._drawing().draw(name, *args, **kwargs)

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
        raise draws.abort(_REFUSED.format(name))

    return refuse


def _shape(size: Any) -> tuple[int, ...]:
    if size is None:
        return ()
    return (int(size),) if np.ndim(size) == 0 else tuple(int(n) for n in size)


def _count(size: Any) -> int:
    return math.prod(_shape(size))


def _shaped(values: list[Any], size: Any) -> Any:
    """Return values in the shape asked for, the value itself where none was."""
    if size is None:
        return values[0]
    if not any(isinstance(value, TracedNumber) for value in values):
        return np.asarray(values).reshape(_shape(size))
    found: Any = np.empty(len(values), dtype=object)
    found[:] = values
    return found.reshape(_shape(size)).view(TracedArray)


def _weights(p: Any) -> tuple[float, ...]:
    mass = np.asarray(p, dtype=np.float64)
    if (
        mass.ndim != 1
        or not math.isclose(float(mass.sum()), 1.0, abs_tol=1e-6)
        or (mass < 0.0).any()
    ):
        raise ValueError("probabilities do not sum to 1")
    return tuple(mass.tolist())
