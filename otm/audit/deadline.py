"""How long somebody's code may run: calls that end a check when time is up."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any


class OutOfTime(BaseException):
    """Time is up; raised by a limited candidate at its next call.

    No `Exception`: what a candidate raises is caught and counted, this must get through.
    """


class Deadline:
    """How long somebody's code may run: its calls end a check when time is up.

    Args:
        seconds: for all checks together.
        spare: seconds on top, for what a verdict needs, or for a counterexample.

    >>> late = Deadline(0.0)
    >>> late.start(share=1.0, with_spare=True)
    >>> late.limit(max)(1, 2)
    Traceback (most recent call last):
    otm.audit.deadline.OutOfTime
    """

    def __init__(self, seconds: float = math.inf, *, spare: float = 0.0) -> None:
        self.seconds, self.spare = seconds, spare
        self.restart(seconds)

    def restart(self, seconds: float) -> None:
        """Begin to count so many seconds."""
        self.until = self.stop = time.monotonic() + seconds

    def start(self, *, share: float, with_spare: bool) -> None:
        """Give the next check a share of all the time, and the spare time if it may have that."""
        most = self.until + (self.spare if with_spare else 0.0)
        self.stop = min(most, time.monotonic() + share * (self.seconds + self.spare))

    def limit(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, which raises `OutOfTime` where it is called too late."""

        def in_time(*arguments: Any) -> Any:
            if time.monotonic() > self.stop:
                raise OutOfTime
            return function(*arguments)

        return in_time
