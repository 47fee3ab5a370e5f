"""Calls of `float` by code under trace, which return a traced number as it is.

`float(rng.random())` changes nothing, and Python lets no object decide what it returns. So the name
`float` is bound to another class in the namespaces of the code that converts, for as long as it is
traced.
"""

from __future__ import annotations

import builtins
import contextlib
import re
import traceback
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
        if isinstance(thing, str | builtins.float):
            return builtins.float(thing)
        item = thing.item() if isinstance(getattr(thing, "shape", None), tuple) else thing
        return item if isinstance(item, TracedNumber) else builtins.float(thing)


class Conversions(contextlib.ExitStack):
    """The namespaces in which `float` is followed, until the context ends."""

    def follows(self, aborted: TraceAborted) -> bool:
        """Follow `float` where it voided a trace; False if that was something else.

        Args:
            aborted: as it was caught; its traceback leads to the conversion.
        """
        namespace = _converting(aborted)
        if namespace is None:
            return False
        namespace["float"] = FollowedFloat
        self.callback(namespace.pop, "float")
        return True


def _converting(aborted: TraceAborted) -> dict[str, Any] | None:
    """Return the namespace of the innermost code of no library, if it calls Python's float."""
    frames = [frame for frame, _ in traceback.walk_tb(aborted.__traceback__)]
    own = [frame for frame in frames if not _LIBRARIES.match(frame.f_globals.get("__name__", ""))]
    if not own or "float" not in own[-1].f_code.co_names or "float" in own[-1].f_globals:
        return None
    return own[-1].f_globals
