"""Progress of a long command on standard error, from the second second on.

A process has one clock at most, and code below the command reports to the clock without an
argument: in a worker, a test or a notebook there is no clock, and nothing is printed.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import TypeVar

Item = TypeVar("Item")

TICK, REMINDER = 1.0, 3.0
"""Seconds between two looks at the clock on a terminal, and between two lines elsewhere."""

INTERRUPTED = 130
"""Exit status after Ctrl-C, as of a shell."""


class _Clock(threading.Thread):
    """A clock that ticks on a terminal, also during long calls; elsewhere a line for each phase."""

    def __init__(self, what: str) -> None:
        super().__init__(daemon=True)
        self.what, self.part, self.seconds = what, "", math.inf
        self.stream, self.ended = sys.stderr, threading.Event()
        self.terminal = self.stream is not None and self.stream.isatty()
        self.began = time.monotonic()

    def run(self) -> None:
        pause = TICK
        while not self.ended.wait(pause):
            self.show()
            pause = TICK if self.terminal else REMINDER

    def show(self) -> None:
        budget = f" of at most {self.seconds:.0f} s" if math.isfinite(self.seconds) else " s"
        line = f"{time.monotonic() - self.began:4.0f}{budget}  {self.what}{self.part}"
        before, after = ("\r", "\033[K") if self.terminal else ("", "\n")
        self.write(f"{before}{line}{after}")

    def clear(self) -> None:
        if self.terminal:
            self.write("\r\033[K")

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # where it cannot go, nobody reads it
            print(text, end="", file=self.stream, flush=True)


_clocks: list[_Clock] = []
"""The one that runs, if any."""


@contextlib.contextmanager
def clock(what: str) -> Iterator[None]:
    """Print the progress of a command on standard error while a block runs.

    Args:
        what: the first phase, said after a second if no other has come.
    """
    running = _Clock(what)
    _clocks.append(running)
    running.start()
    try:
        with on_interrupt(_interrupt):
            yield
    finally:
        running.ended.set()
        running.join()
        running.clear()
        _clocks.remove(running)


@contextlib.contextmanager
def on_interrupt(handler: Callable[[int, object], None]) -> Iterator[None]:
    """Call a handler on Ctrl-C in a block, unless ignored as in a shell's background."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _interrupt(number: int, frame: object) -> None:
    """Raise `KeyboardInterrupt`, delayed while an interrupt would end the process in C++."""
    torch = sys.modules.get("torch")
    if torch is not None and getattr(torch.__spec__, "_initializing", False):
        os._exit(INTERRUPTED)
    raise KeyboardInterrupt


def report_phase(what: str, part: str = "") -> None:
    """Report the current phase and the progress within the phase."""
    for running in _clocks:
        new = what != running.what
        running.what, running.part = what, part and f": {part}"
        if new:
            running.show()


def report_detail(text: str) -> None:
    """Report what is done within the current part of a phase."""
    for running in _clocks:
        running.part = f"{running.part.partition(' – ')[0]} – {text}"


def with_progress(
    items: Iterable[Item], what: str, *, total: int | None = None, done: int = 0
) -> Iterator[Item]:
    """Yield items, and report the number of the current one.

    >>> list(with_progress("ab", "letters"))
    ['a', 'b']
    """
    if total is None and isinstance(items, Sized):
        total = done + len(items)
    for number, item in enumerate(items, done + 1):
        report_phase(what, f"{number:,}" if total is None else f"{number:,} of {total:,}")
        yield item


def announce_limit(seconds: float) -> float:
    """Announce the command's time limit, and return the end of the limit (`time.monotonic`)."""
    began = time.monotonic()
    for running in _clocks:
        running.seconds, began = seconds, running.began
    return began + seconds


def say(text: str, *, error: bool = False) -> None:
    """Print a result, or a remark on standard error, while the clock goes on."""
    for running in _clocks:
        running.clear()
    print(text, file=sys.stderr if error else sys.stdout, flush=True)
