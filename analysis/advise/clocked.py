"""A language model on the clock, which answers no more when the time for measuring is over."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence

from otm._machine.arrays import Floats
from otm._machine.progress import on_interrupt

from ..models.causal import CausalModel

_STOPPING = b"\nstopping: what is known is said in a moment; Ctrl-C again ends at once\n"

_stopped = threading.Event()


class DeadlinePassed(Exception):
    """The time for measuring is over."""


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Let the first Ctrl-C in a block end the measuring, as if its time was over."""
    before = signal.getsignal(signal.SIGINT)

    def stop(number: int, frame: object) -> None:
        _stopped.set()
        signal.signal(signal.SIGINT, before)
        os.write(2, _STOPPING)  # print may be what was interrupted

    _stopped.clear()
    with on_interrupt(stop):
        yield


def was_stopped() -> bool:
    """Return whether Ctrl-C has ended the last measuring that it could."""
    return _stopped.is_set()


def seconds_left(until: float) -> float:
    """Return the seconds until a time of `time.monotonic`; none after Ctrl-C, if there is one."""
    return 0.0 if was_stopped() and until < math.inf else until - time.monotonic()


class Clocked:
    """A language model that counts its calls and contexts and adds up how long its answers take.

    Attributes:
        until: after this time of `time.monotonic` a call raises `DeadlinePassed`.
    """

    def __init__(self, model: CausalModel) -> None:
        self.model, self.until = model, math.inf
        self.reset()
        self.num_tokens, self.max_length = model.num_tokens, model.max_length

    def next(self, context: Sequence[int]) -> Floats:
        """Return the next-token distribution `(V,)`."""
        mass: Floats = self.next_batch([context])[0]
        return mass

    def next_batch(self, contexts: Sequence[Sequence[int]]) -> Floats:
        """Return the next-token distributions `(n, V)`, on the clock."""
        self.check()
        start = time.perf_counter()
        answer = self.model.next_batch(contexts)  # on the host: a device has been waited for
        self.seconds += time.perf_counter() - start
        self.calls += 1
        self.contexts += len(contexts)
        return answer

    def check(self) -> None:
        """Raise `DeadlinePassed` if the time is over."""
        if seconds_left(self.until) <= 0.0:
            raise DeadlinePassed

    def forget(self) -> None:
        """Let the model forget what it has read."""
        self.model.forget()

    def reset(self) -> None:
        """Begin anew."""
        self.seconds, self.calls, self.contexts = 0.0, 0, 0
