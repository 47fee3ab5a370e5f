"""Seconds that a busy machine cannot steal: CPU time, or a tenth of the wall time for waiting.

And what refuses to spend too many of them.
"""

from __future__ import annotations

import os
import time
from typing import final

from otm._machine.compiled import loading_seconds
from otm.errors import TooLarge

PATIENCE = 60.0
"""Seconds that an enumeration may take; longer ones are refused as `TooLarge`."""

_FIRST_LOOK, _SURE = 2.0, 30.0
"""Seconds after which an estimate counts that is far off, and one that is just too long."""

_BETWEEN_LOOKS = 0.25

WAITING = 10.0
"""Seconds of wall time that count as one: code that waits for a device or a server uses no CPU."""


@final
class Stopwatch:
    """The running time in CPU seconds of this process and of ended children, without the loading of
    compiled code.

    >>> Stopwatch().seconds < 1.0
    True
    """

    def __init__(self) -> None:
        self._cpu, self._wall = _cpu_seconds(), _wall_seconds()
        self._limit, self._next_look = 0.0, 0.0

    @property
    def seconds(self) -> float:
        """CPU seconds so far, or a tenth of the wall time if that is more."""
        return max(*self._parts())

    @property
    def waited(self) -> bool:
        """True if the wall time determines `seconds`."""
        cpu, wall = self._parts()
        return wall > cpu

    def reaches(self, limit: float) -> bool:
        """True if `limit` seconds are over; the CPU clock is read when that is possible."""
        now = time.monotonic()  # far cheaper than CPU time
        if limit == self._limit and now < self._next_look:
            return False
        left = limit - self.seconds
        self._limit, self._next_look = limit, now + left / (os.cpu_count() or 1)
        return left <= 0.0

    def _parts(self) -> tuple[float, float]:
        return _cpu_seconds() - self._cpu, (_wall_seconds() - self._wall) / WAITING


@final
class Pace:
    """A guard that stops an enumeration that would take too long, from the share done so far.

    Args:
        what: is limited, the beginning of a sentence.
        remedy: what to do instead, a sentence.

    >>> pace = Pace("An enumeration", "Sample.")
    >>> pace.check(0.001)  # no time is over yet
    """

    def __init__(self, what: str, remedy: str) -> None:
        self._what, self._remedy, self._watch = what, remedy, Stopwatch()
        self._next_look = time.monotonic() + _FIRST_LOOK

    def check(self, share: float) -> None:
        """Raise `TooLarge` if the time so far, for a share in (0, 1], implies too long a total."""
        if time.monotonic() < self._next_look:  # far cheaper than CPU time
            return
        self._next_look += _BETWEEN_LOOKS
        spent = self._watch.seconds
        whole = spent / share
        if spent > _FIRST_LOOK and whole > PATIENCE * max(1.0, _SURE / spent):
            raise TooLarge(
                f"{self._what} is limited to {PATIENCE:g} s of CPU time; by the first "
                f"{spent:.0f} s this one would take {whole:,.0f} s or more. {self._remedy}"
            )


def _cpu_seconds() -> float:
    children = os.times()
    ended = children.children_user + children.children_system
    return time.process_time() + ended - loading_seconds()


def _wall_seconds() -> float:
    return time.monotonic() - loading_seconds()  # a compiler does not wait
