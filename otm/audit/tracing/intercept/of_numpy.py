"""Interception of NumPy's draws: `numpy.random.Generator`, `RandomState` and the functions."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from otm.audit.tracing.intercept.draws import Generators, settled
from otm.audit.tracing.intercept.laws import NUMPY, categories, permutation
from otm.audit.tracing.intercept.of_python import patched, seeding
from otm.audit.tracing.traced_numbers import TracedArray, TracedNumber

_WORDS_AND_PLACE = 4 * (624 + 1)
"""Bytes of the state of NumPy's MT19937."""


class _Drawing:
    """A generator of NumPy with intercepted draws."""

    def __init__(self, generators: Generators, generator: Any) -> None:
        self.draws, self.moved = generators.draws, functools.partial(generators.moved, generator)

    def draw(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Return the draws of the generator's method `name`."""
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
_SAFE = {"bit_generator", "get_state", "spawn", "bytes"}


def state_of(generator: Any) -> bytes:
    """Return bytes that identify the state of a generator.

    Of a Mersenne twister, as behind the functions of `numpy.random`, the words themselves, read in
    place: to ask for them politely takes a hundred times as long.
    """
    bits = generator._bit_generator
    if isinstance(bits, np.random.MT19937):
        return ctypes.string_at(bits.ctypes.state_address, _WORDS_AND_PLACE)
    return pickle.dumps(bits.state)


@contextlib.contextmanager
def numpy_draws() -> Iterator[Generators]:
    """Replace NumPy's draws by draws of the execution."""
    behind: Any = np.random.mtrand._rand
    generators, generator, before = _intercepting(behind)
    generators.start()
    places: list[tuple[Any, str, Any]] = [
        (np.random, "Generator", generator),
        (np.random, "RandomState", before),
        (np.random, "default_rng", functools.partial(_default_rng, generator)),
    ]
    # Looked up each time: what somebody else has put in a function's place stays there.
    for name in dir(np.random):
        if getattr(getattr(np.random, name), "__self__", None) is behind:
            places.append((np.random, name, functools.partial(getattr(before, name), behind)))
    with patched(*places):
        yield generators


@functools.cache
def _intercepting(behind: Any) -> tuple[Generators, Any, Any]:
    """Return generators whose draws are intercepted, and their classes; made once, as classes take
    longer to make than a small audit.

    Args:
        behind: the generator behind the functions of `numpy.random`.
    """
    generators = Generators(
        "numpy.random", behind, state_of, lambda generator: generator._bit_generator.random_raw()
    )
    return (
        generators,
        _subclass(np.random.Generator, generators),
        _subclass(np.random.RandomState, generators),
    )


def _default_rng(generator: Any, seed: Any = None) -> Any:
    if isinstance(seed, np.random.BitGenerator):
        return generator(seed)
    return seed if isinstance(seed, generator) else generator(np.random.PCG64(seed))


def _subclass(base: Any, generators: Generators) -> Any:
    """Return a class of generators with every drawing method intercepted."""

    def method(name: str) -> Callable[..., Any]:
        if name in ("seed", "set_state"):
            return seeding(getattr(base, name), generators)

        def draw(self: Any, *args: Any, **kwargs: Any) -> Any:
            if name not in _DRAWN:
                raise generators.draws.abort(f"numpy.random.{name} has no branches")
            return _Drawing(generators, self).draw(name, *args, **kwargs)

        return draw

    names = [name for name in dir(base) if not name.startswith("_") and name not in _SAFE]
    return type(base.__name__, (base,), {name: method(name) for name in names})


def _shape(size: Any) -> tuple[int, ...]:
    if size is None:
        return ()
    return (int(size),) if np.ndim(size) == 0 else tuple(int(n) for n in size)


def _count(size: Any) -> int:
    return math.prod(_shape(size))


def _shaped(values: list[Any], size: Any) -> Any:
    """Return values in the requested shape, the plain value where no shape was given."""
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
