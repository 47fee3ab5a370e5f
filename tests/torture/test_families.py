"""Every family for its share of a minute, with a seed of its own for every revision of
the sources.
"""

from __future__ import annotations

import math

import pytest

from tests.torture import frame

SECONDS = {"inputs": 35.0, "others": 25.0}
"""Of the numeric families together, and of those that need files and processes."""

MOST = {"commands": 24}
"""Trials of a family at most: a few seconds of commands on two slow cores, so that a faster machine
tries the same ones.
"""


def _kind(name: str) -> str:
    return "inputs" if frame.families()[name].counts == "inputs" else "others"


@pytest.mark.parametrize("name", list(frame.families()))
def test_nothing_fails(name: str) -> None:
    share = SECONDS[_kind(name)] / sum(_kind(other) == _kind(name) for other in frame.families())
    seed = frame.revision_seed()
    failures = [
        frame.told(name, seed, index, trial)
        for index, trial in frame.spend(
            name, seconds=share, seed=seed, most=MOST.get(name, math.inf)
        )
        if trial.failed
    ]
    assert not failures, "\n\n".join(failures[:5])
