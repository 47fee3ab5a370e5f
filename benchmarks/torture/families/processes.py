"""Commands that are killed, run out of room, meet a second writer or lose a worker, and what is
there afterwards.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterator

import numpy as np

from benchmarks.torture import processes
from benchmarks.torture.frame import Trial, family


@family("processes", counts="kills", limit=900.0)
def kills(random: np.random.Generator) -> Iterator[Trial]:
    """Let something befall a command, then have it finish: the same files as undisturbed, and
    nothing left running.
    """
    events = list(processes.EVENTS)
    often = np.array([processes.EVENTS[event][1] for event in events])
    while True:
        event = str(random.choice(events, p=often / often.sum()))
        names = processes.EVENTS[event][2]
        weights = np.array([processes.WORK[name].weight for name in names])
        name, seed = (
            str(random.choice(names, p=weights / weights.sum())),
            int(random.integers(2**53)),
        )
        reproduce = (
            f"from benchmarks.torture.processes import trial\n\ntrial({event!r}, {name!r}, {seed})"
        )
        try:
            told, ratio = processes.trial(event, name, seed), 0.0
        except AssertionError:
            told, ratio = traceback.format_exc(limit=-4), math.inf
        yield Trial(processes.WORK[name].command, 1, ratio, reproduce, f"{event}: {told}")
