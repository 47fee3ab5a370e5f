"""What a long command says of where it is, from its first second on."""

from __future__ import annotations

import math
import sys
import threading
import time

_TICK, _REMINDER = 1.0, 30.0
"""Seconds between two looks at the clock on a terminal, and between two lines elsewhere."""


class Progress:
    """A clock on standard error that ticks on a terminal; elsewhere a line for each phase.

    A thread of its own draws it, so that it ticks through a long call too.

    Args:
        what: the first phase.
        seconds: of a budget; infinity without one.
    """

    def __init__(self, what: str, seconds: float = math.inf) -> None:
        self._what, self._seconds, self._began = what, seconds, time.monotonic()
        self._terminal = sys.stderr.isatty()
        self._ended = threading.Event()
        self._ticking = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Progress:
        self._show()
        self._ticking.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End, before what is asked for is printed."""
        self._ended.set()
        self._ticking.join()
        if self._terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    @property
    def deadline(self) -> float:
        """When the budget is over, by `time.monotonic`."""
        return self._began + self._seconds

    def told(self, what: str) -> None:
        """Say what is done now, which may be what was done before."""
        if what != self._what:
            self._what = what
            self._show()

    def _tick(self) -> None:
        while not self._ended.wait(_TICK if self._terminal else _REMINDER):
            self._show()

    def _show(self) -> None:
        budget = f" of at most {self._seconds:.0f} s" if math.isfinite(self._seconds) else " s"
        line = f"{time.monotonic() - self._began:4.0f}{budget}  {self._what}"
        before, after = ("\r", "\033[K") if self._terminal else ("", "\n")
        print(f"{before}{line}{after}", end="", file=sys.stderr, flush=True)
