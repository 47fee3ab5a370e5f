"""Seconds that a busy machine cannot steal: CPU time, or a tenth of the wall time for waiting."""

from __future__ import annotations

import os
import time
from typing import final

WAITING = 10.0
"""Seconds of wall time that count as one: code that waits for a device or a server uses no CPU."""


@final
class Stopwatch:
    """How long something took, in CPU seconds of this process and of its children that have ended.

    >>> Stopwatch().seconds < 1.0
    True
    """

    def __init__(self) -> None:
        self._cpu, self._wall = _cpu_seconds(), time.monotonic()

    @property
    def seconds(self) -> float:
        """CPU seconds so far, or a tenth of the wall time if that is more."""
        return max(*self._parts())

    @property
    def waited(self) -> bool:
        """Whether the wall time is what counts."""
        cpu, wall = self._parts()
        return wall > cpu

    def _parts(self) -> tuple[float, float]:
        return _cpu_seconds() - self._cpu, (time.monotonic() - self._wall) / WAITING


def _cpu_seconds() -> float:
    children = os.times()
    return time.process_time() + children.children_user + children.children_system
