"""The precision of arrays in sight of code: arguments, local variables, returned values.

A compiled kernel rounds to the precision of its arrays, and so does NumPy; a deviation of a few
units in the last place is then rounding, and no fault of a rule. What a function has in sight is
seen by a profiler of Python's while it runs, a type that it only names where it holds no array.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Sequence
from types import CodeType, FrameType
from typing import Any

import numpy as np

from otm.audit.tracing.intercept.interception import preserved

_ROUNDOFF = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Unit roundoffs of the types that are coarser than float64."""

_UNITS = 4.0
"""Total variation that counts as rounding, in units of the coarsest type."""

MOST_ROUNDED = _UNITS * max(_ROUNDOFF.values())
"""Total variation that is explained at most."""

_RUNS = 24
_LIBRARIES = {"numpy", "torch", "scipy", "otm"}
"""Libraries that name types without the use of any."""


def type_in_sight(functions: Sequence[Callable[[Any], Any]], num_uniforms: int) -> str:
    """Return the coarsest type of arrays in sight while functions run; "" for none below float64.

    Args:
        functions: of uniforms `(num_uniforms,)`; some executions are shared by some of them.
        num_uniforms: n.
    """
    # by identity: their names take longer than all else that the code does
    types: dict[int, Any] = {}
    codes: dict[int, CodeType] = {}

    def look(frame: FrameType, event: str, argument: Any) -> None:
        if event != "return":
            return
        things = [argument]
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _LIBRARIES:
            things += frame.f_locals.values()
            codes[id(frame.f_code)] = frame.f_code
        for thing in things:
            for one in thing[:_RUNS] if isinstance(thing, (tuple, list)) else (thing,):
                kind = getattr(one, "dtype", "")
                types[id(kind)] = kind

    rng = np.random.default_rng(0)
    runs = itertools.islice(itertools.cycle(functions[:: 1 + len(functions) // _RUNS]), _RUNS)
    with preserved(seed=0), np.errstate(all="ignore"), contextlib.ExitStack() as stack:
        stack.callback(_set_profiler, sys.getprofile())
        sys.setprofile(look)
        for function in runs:
            with contextlib.suppress(Exception):
                function(rng.random(num_uniforms))
    # without the library's name: torch.float32 is float32
    if seen := {str(kind).rpartition(".")[2] for kind in types.values()} & _ROUNDOFF.keys():
        return max(seen, key=_ROUNDOFF.__getitem__)
    named = {str(one) for code in codes.values() for one in (*code.co_names, *code.co_consts)}
    return min(named & _ROUNDOFF.keys(), key=_ROUNDOFF.__getitem__, default="")


def _set_profiler(profiler: Any) -> None:
    """Set the profiler that was there before, cProfile's by a method of cProfile."""
    if profiler is None or callable(profiler):
        sys.setprofile(profiler)
    else:
        profiler.enable()


def explained(name: str) -> float:
    """Return the total variation that counts as rounding to a type, 0 for float64 and "".

    >>> explained("float32"), explained("")
    (2.384185791015625e-07, 0.0)
    """
    return _UNITS * _ROUNDOFF.get(name, 0.0)
