"""Every family for its share of a minute, with a seed of its own for every revision of
the sources; what needs files and processes in `make test-long` only.
"""

from __future__ import annotations

import math

import pytest

from tests.torture import frame

SECONDS = {"inputs": 35.0, "others": 25.0}
"""Of the numeric families together, and of those that need files and processes."""

MOST = {"inputs": 30, "commands": 24}
"""Trials of a family at most, so that a faster machine tries the same ones."""


def _kind(family: frame.Family) -> str:
    return "inputs" if family.counts == "inputs" else "others"


FAMILIES = {
    kind: [family for family in frame.families().values() if _kind(family) == kind]
    for kind in SECONDS
}


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(family, id=family.name, marks=[pytest.mark.long] if kind == "others" else [])
        for kind, families in FAMILIES.items()
        for family in families
    ],
)
def test_nothing_fails(family: frame.Family) -> None:
    share = SECONDS[_kind(family)] / len(FAMILIES[_kind(family)])
    seed, most = frame.revision_seed(), MOST.get(family.counts, math.inf)
    failures = [
        frame.told(family.name, seed, index, trial)
        for index, trial in frame.spend(family.name, seconds=share, seed=seed, most=most)
        if trial.failed
    ]
    assert not failures, "\n\n".join(failures[:5])
