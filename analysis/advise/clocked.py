"""A language model on the clock, which answers no more when the time for measuring is over."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from ..models.causal import CausalModel
from ..statistics import Floats


class OutOfTime(Exception):
    """The time for measuring is over."""


class Clocked:
    """A language model that counts its calls and contexts and adds up how long its answers take.

    Attributes:
        until: after this time of `time.monotonic` a call raises `OutOfTime`.
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
        """Raise `OutOfTime` if the time is over."""
        if time.monotonic() > self.until:
            raise OutOfTime

    def forget(self) -> None:
        """Let the model forget what it has read."""
        self.model.forget()

    def reset(self) -> None:
        """Begin anew."""
        self.seconds, self.calls, self.contexts = 0.0, 0, 0
