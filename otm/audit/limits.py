"""How long somebody's code may run: a candidate whose calls end an audit when time is up."""

from __future__ import annotations

import dataclasses
import time
from typing import Any, TypeVar

from otm.audit.candidate import (
    BatchCandidate,
    BlockKernel,
    Candidate,
    LogitCandidate,
    WholeCandidate,
)

Timed = TypeVar("Timed", Candidate, BatchCandidate, BlockKernel, LogitCandidate, WholeCandidate)


class OutOfTime(
    BaseException
):  # no Exception: what a candidate raises is caught and counted, this must get through
    """Time is up; raised by a `limited` candidate at its next call."""


def limited(candidate: Timed, until: float) -> Timed:
    """Return a candidate that raises `OutOfTime` when it is called after `until`, a reading of
    `time.monotonic`.

    >>> limited(Candidate(lambda p, q, drafts, uniforms: 0), time.monotonic() - 1.0).verify(
    ...     0, 0, 0, 0
    ... )
    Traceback (most recent call last):
    otm.audit.limits.OutOfTime
    """
    verify = candidate.verify

    def in_time(*arguments: Any) -> Any:
        if time.monotonic() > until:
            raise OutOfTime
        return verify(*arguments)

    return dataclasses.replace(candidate, verify=in_time)
