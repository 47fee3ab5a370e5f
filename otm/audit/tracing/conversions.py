"""Calls of `float` by code under trace, which return a traced number unchanged.

`float(rng.random())` changes nothing, and Python lets no object decide what it returns. So the name
`float` is bound to another class in the namespaces of the code that converts, for as long as it is
traced.
"""

from __future__ import annotations

import builtins
import contextlib
import re
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np

from otm.audit.tracing.execution import TraceAborted
from otm.audit.tracing.traced_numbers import TracedNumber

_LIBRARIES = re.compile(r"(otm\.audit|numpy|torch)(\.|$)")
"""Modules whose frames may stand between a call of `float` and the conversion."""


class _Type(type):
    """The type of `FollowedFloat`, of which every float is an instance."""

    def __instancecheck__(cls, thing: object) -> bool:
        return isinstance(thing, builtins.float | TracedNumber)


class FollowedFloat(builtins.float, metaclass=_Type):
    """The class that stands for `float`: as a type too, also for NumPy."""

    dtype = np.dtype(np.float64)

    def __new__(cls, thing: Any = 0.0) -> Any:
        """Return a traced number, alone or in an array or tensor, unchanged, else a float."""
        shape, item = getattr(thing, "shape", None), getattr(thing, "item", None)
        if callable(item) and isinstance(shape, tuple) and set(shape) <= {1}:
            thing = item()
        return thing if isinstance(thing, TracedNumber) else builtins.float(thing)


class Conversions(contextlib.ExitStack):
    """The namespaces in which `float` is followed, until the context ends."""

    def __init__(self) -> None:
        super().__init__()
        self._namespaces: list[dict[str, Any]] = []

    @contextlib.contextmanager
    def left_out(self) -> Iterator[None]:
        """Leave `float` alone in this context: a second execution shows any dependence."""
        for namespace in self._namespaces:
            namespace.pop("float", None)
        try:
            yield
        finally:
            for namespace in self._namespaces:
                namespace["float"] = FollowedFloat

    def follows(self, aborted: TraceAborted) -> bool:
        """Follow `float` where a conversion voided a trace; False if that was something else.

        Args:
            aborted: as it was caught; its traceback leads to the conversion.
        """
        namespace = _converting(aborted)
        if namespace is None:
            return False
        self.callback(namespace.pop, "float", None)
        self._namespaces.append(namespace)
        namespace["float"] = FollowedFloat
        return True


def _converting(aborted: TraceAborted) -> dict[str, Any] | None:
    """Return the namespace of the innermost code of no library that calls Python's float."""
    frames = [frame for frame, _ in traceback.walk_tb(aborted.__traceback__)]
    own = [frame for frame in frames if not _LIBRARIES.match(frame.f_globals.get("__name__", ""))]
    if not own or "float" not in own[-1].f_code.co_names or "float" in own[-1].f_globals:
        return None
    return own[-1].f_globals
