"""A timed language model that answers no more when the time for measuring is over."""

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
    """Let the first Ctrl-C in a block end the measuring instead of the program."""
    before = signal.getsignal(signal.SIGINT)

    def stop(number: int, frame: object) -> None:
        _stopped.set()
        signal.signal(signal.SIGINT, before)
        os.write(2, _STOPPING)  # print may be what was interrupted

    _stopped.clear()
    with on_interrupt(stop):
        yield


def was_stopped() -> bool:
    """Return True if Ctrl-C has ended the last stoppable measuring."""
    return _stopped.is_set()


def seconds_left(until: float) -> float:
    """Return the seconds until a deadline of `time.monotonic`; 0 after Ctrl-C if finite."""
    return 0.0 if was_stopped() and until < math.inf else until - time.monotonic()


class Clocked:
    """A language model that counts calls and contexts and adds up the time of the answers.

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
        """Clear the model's caches."""
        self.model.forget()

    def reset(self) -> None:
        """Set the counts and the time to 0."""
        self.seconds, self.calls, self.contexts = 0.0, 0, 0
