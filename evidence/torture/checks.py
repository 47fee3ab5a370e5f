"""Families whose functions are not asked row by row: each check is one random instance with an
oracle of its own.

@checks.add("otm.trees.new", "8 u", "docstring", "every shape, exactly")
def _new(random):
    ...
    return error / bound, "what it was"
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from decimal import Decimal

import numpy as np

from evidence.torture.frame import Trial, family
from evidence.torture.promises import UNIT_ROUNDOFF, Direction, Statement, stated

Check = Callable[[np.random.Generator], tuple[float, str]]
"""One random instance: error ÷ bound, and what it was."""


class Checks:
    """The checks of one family."""

    def __init__(self, name: str, *, times: int = 10) -> None:
        self._entered: list[tuple[str, Check]] = []
        self._times = times
        family(name)(self._trials)

    def add(
        self, name: str, said: str, source: str, witness: str, *, direction: Direction = "exact"
    ) -> Callable[[Check], Check]:
        """Enter a check of one function, with what the accuracy page says of it."""

        def enter(check: Check) -> Check:
            self._entered.append((name, check))
            stated(Statement(name, direction, said, source, witness))
            return check

        return enter

    def _trials(self, random: np.random.Generator) -> Iterator[Trial]:
        while True:
            name, check = self._entered[random.integers(len(self._entered))]
            found = [check(random) for _ in range(self._times)]
            worst, told = max(found, key=lambda both: math.inf if math.isnan(both[0]) else both[0])
            yield Trial(name, len(found), worst, "", told)


def exact(values: np.ndarray) -> list[Decimal]:
    """Return floats as the numbers that they are."""
    return [Decimal(float(x)) for x in np.asarray(values).reshape(-1)]


def off(found: float, truth: Decimal, units: float) -> float:
    """Return the error in so many units of roundoff of the truth."""
    if not math.isfinite(found):
        return 0.0 if Decimal(found) == truth else math.inf
    error = abs(Decimal(float(found)) - truth)
    return (
        0.0
        if error == 0
        else float(error / (Decimal(units * UNIT_ROUNDOFF) * abs(truth) + Decimal("1e-320")))
    )
