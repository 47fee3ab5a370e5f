"""Budgets of audits: how much samples may miss and how often the verdict may be wrong, one budget
for all audits (`Errors`); and how long somebody's code may run (`Deadline`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

from otm._machine.compiled import is_loading
from otm._machine.patience import WAITING, Stopwatch
from otm.errors import InvalidParameter
from otm.pmf import check_instance, check_real

DETECT = 0.02
"""Total variation that samples of one token, a block or a log are planned to find."""

DETECT_END_TO_END = 0.05
"""Total variation that samples of a step, a tree or a generation are planned to find."""

ENOUGH = 0.2
"""Total variation up to which finding nothing lets a candidate pass that nothing else clears."""

_LEAST = 1e-100

_FOREVER = 1e6
"""Seconds that stand for no limit; timers know no infinity."""

_GRACE = 1.0
"""Seconds beyond the limit after which a call that has not come back is ended."""


@dataclasses.dataclass(frozen=True)
class DetectionBudget:
    """A request for the smallest of several total variations that samples can find in the time.

    Args:
        levels: the total variations, the smallest first; the last is taken whatever it costs.
        seconds: the time, in seconds of `Deadline`.
        early: whether to end as soon as samples show less than they are planned to find.
    """

    levels: tuple[float, ...]
    seconds: float
    early: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Errors:
    """Error rates of an audit by samples, and the total variation to detect.

    Args:
        detect: total variation ε that must not go unnoticed, or a `DetectionBudget`; None for what
            the audit plans by itself: .02 of one token, a block or a log, .05 of a step, a tree or
            a generation, and in a battery what the time allows.
        false_alarm: probability δ in (0, 1/2] at most of calling a lossless candidate lossy.
        missed: probability β in (0, 1/2] at most of not noticing a law at `detect` or more.

    Raises:
        InvalidParameter: if a probability is out of its range.

    >>> Errors(detect=0.1)
    Errors(detect=0.1, false_alarm=1e-09, missed=0.001)
    """

    detect: float | DetectionBudget | None = None
    false_alarm: float = 1e-9
    missed: float = 1e-3

    def __post_init__(self) -> None:
        for level in self.levels(DETECT):
            check_real(level, name="detect", low=_LEAST, high=1.0)
        check_real(self.false_alarm, name="false_alarm", low=_LEAST, high=0.5)
        check_real(self.missed, name="missed", low=_LEAST, high=0.5)

    def levels(self, default: float) -> tuple[float, ...]:
        """Return the total variations to detect, several for a `DetectionBudget`."""
        if isinstance(self.detect, DetectionBudget):
            return self.detect.levels
        return (default if self.detect is None else self.detect,)

    def level(self, default: float, *, low: float = _LEAST) -> float:
        """Return the one total variation to detect, checked to be at least `low`."""
        if isinstance(self.detect, DetectionBudget):
            raise InvalidParameter(
                "Only audits that draw by themselves choose what they find by the time; this one "
                "needs a number. Pass Errors(detect=0.02), say."
            )
        return check_real(self.levels(default)[0], name="detect", low=low, high=1.0)

    def shared(self, count: int, detect: float | DetectionBudget | None = None) -> Errors:
        """Divide the false alarms by a number of audits, and return the budget of one of these.

        Args:
            count: how many.
            detect: what they are to find unless the budget says it.
        """
        asked = detect if self.detect is None else self.detect
        alarm = self.false_alarm / max(1, count)
        return dataclasses.replace(self, detect=asked, false_alarm=alarm)


def check_errors(errors: object) -> Errors:
    """Return a budget of errors, or raise `InvalidParameter` for anything else."""
    return check_instance(errors, Errors, name="errors")


USUAL = Errors()
"""The default budget of audits."""


class OutOfTime(BaseException):
    """Raised by a limited candidate at the next call after time is up.

    No `Exception`: what a candidate raises is caught and counted, this must get through.
    """


class Deadline:
    """A limit on the running time of somebody's code, enforced at each call of the code.

    Seconds are CPU time of the process and of its children that have ended, so that a busy machine
    takes nothing from them; code that waits may do so for ten times as long.

    Args:
        seconds: for all checks together.
        spare: seconds on top, for what a verdict needs, or for a counterexample.

    >>> late = Deadline(0.0)
    >>> late.start(share=1.0, with_spare=True)
    >>> late.limit(max)(1, 2)
    Traceback (most recent call last):
    otm.audit.budget.OutOfTime
    """

    def __init__(self, seconds: float = math.inf, *, spare: float = 0.0) -> None:
        self.seconds, self.spare = min(seconds, _FOREVER), spare
        self.restart(self.seconds)

    def restart(self, seconds: float) -> None:
        """Start to count `seconds` from now."""
        self.watch = Stopwatch()
        self.until = self.stop = min(seconds, _FOREVER)

    def start(self, *, share: float, with_spare: bool, kept: float = 0.0) -> None:
        """Set the next check's limit to a share of all the time.

        Args:
            share: of all the time.
            with_spare: whether it may have the spare time, too.
            kept: the part of the time that is kept for later checks.
        """
        most = self.until + self.spare if with_spare else self.until - kept * self.seconds
        self.stop = min(most, self.watch.seconds + share * (self.seconds + self.spare))

    @contextlib.contextmanager
    def enforced(self) -> Iterator[None]:
        """Interrupt even one call that does not return, where the system has a timer of CPU time.

        No such timer exists beside a profiler's, on Windows, and outside the main thread.
        """
        timer = getattr(signal, "ITIMER_PROF", None)
        main = threading.current_thread() is threading.main_thread()
        if timer is None or not main or signal.getsignal(signal.SIGPROF) != signal.SIG_DFL:
            yield
            return

        def end(number: int, frame: object) -> None:
            left = self.stop - self.watch.seconds  # some, where code was loaded meanwhile
            if is_loading() or left > 0.0:
                signal.setitimer(timer, max(0.0, left) + _GRACE)
                return
            raise OutOfTime

        signal.signal(signal.SIGPROF, end)
        signal.setitimer(timer, max(0.0, self.stop - self.watch.seconds) + _GRACE)
        try:
            yield
        finally:
            signal.setitimer(timer, 0.0)
            signal.signal(signal.SIGPROF, signal.SIG_DFL)

    @property
    def left(self) -> float:
        """Seconds that are left, without the spare seconds."""
        return self.until - self.watch.seconds

    @property
    def why(self) -> str:
        """The reason for which a check ended early, in words."""
        if self.watch.waited:
            return f"after {WAITING:g} times the time, most of it spent waiting"
        return "time was up"

    def limit(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function so that a call after the end of time raises `OutOfTime`."""

        def in_time(*arguments: Any) -> Any:
            if self.watch.reaches(self.stop):
                raise OutOfTime
            return function(*arguments)

        return in_time
