"""Integrating somebody's code over its uniforms, exactly, by running it on numbers that record how they are compared.

A verifier uses its uniforms by comparing them: with an acceptance probability, with a cumulative sum, with each other. Inside a box
of uniforms on which every comparison comes out the same way the output is constant, and the volume of the box is its probability.
So the code is run on numbers that know only which box they are in (`otm.audit.traced_numbers`). A comparison that the box does not
decide splits it, at the very float where the comparison changes its answer, and the run goes on in one part while the other waits
its turn. When nothing waits, the boxes tile [0, 1)^n and the law of the output is a sum of volumes.

Where uniforms are compared with each other (races) boxes are halved, the most voluminous first, until the budget is spent, and what
is then left undecided is an error bound that needs no assumption. Code that converts the numbers to plain floats is noticed, and
the attempt is void: see `otm.audit.probing` for what is done then.
"""

from __future__ import annotations

import contextlib
import dataclasses
import heapq
import itertools
import math
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm.audit.boxes import Box, Execution, volume
from otm.audit.traced_numbers import TracedArray, uniform

MOST_SLANTED = 1_500
"""How many boxes are halved along slanted boundaries, over all functions of an audit, before what is undecided stays so."""

MOST_WORK = 40_000
"""How many boxes are visited or set aside, over all functions of an audit: ``int(u * 2**32)`` has no end."""

_NO_VOLUME = 1e-30

_CHECKS = 32

Function = Callable[[NDArray[Any]], Hashable]
"""A function of uniforms `(n,)`: an object array of traced numbers, or a float64 array."""


@dataclasses.dataclass(frozen=True, eq=False)
class Integral:
    """The law of a function of n uniforms.

    Attributes:
        mass: probability of each value.
        error: bound on the error of each probability, and of the law in total variation. Of a trace it is the volume of the boxes
            on which the value is not known.
        cells: number of boxes.
    """

    mass: dict[Hashable, float]
    error: float
    cells: int


def integrate(
    function: Function,
    num_uniforms: int,
    *,
    most_slanted: int = MOST_SLANTED,
    most_work: int = MOST_WORK,
) -> Integral | None:
    """Return the law of `function(uniforms)` by running it on boxes of uniforms, or None if the trace is incomplete.

    Args:
        function: takes uniforms `(num_uniforms,)` and returns a hashable value.
        num_uniforms: n.
        most_slanted: budget of runs that compare uniforms with each other.
        most_work: budget of boxes in all, those counted that a run sets aside for later.

    Returns:
        Integral, or None if the function converted a uniform to a plain number, raised, or gave another value on plain floats from
        the same box.

    Cost: two runs per box and 32 more. Accuracy: each boundary is exact to the last bit of the float that the code compares, 2^-53
    per box.
    """
    tie = itertools.count()
    everything: Box = ([0.0] * num_uniforms, [1.0] * num_uniforms)
    waiting = [(-1.0, next(tie), everything)]
    masses: dict[Hashable, list[float]] = {}
    undecided: list[float] = []
    leaves: list[tuple[Box, Hashable]] = []
    cells = slanted = work = 0
    while waiting and slanted < most_slanted and work < most_work:
        run = Execution(*heapq.heappop(waiting)[2])
        value = _execute(function, run)
        if run.escaped:
            return None
        cells += 1
        work += 1 + len(run.pending)
        slanted += run.slanted
        for box in run.pending:
            size = volume(box)
            if size > 0.0:
                heapq.heappush(waiting, (-size, next(tie), box))
        if run.undecided:
            undecided.append(run.volume)
        else:
            masses.setdefault(value, []).append(run.volume)
            leaves.append(((run.low, run.high), value))
    if not _confirmed(function, leaves, num_uniforms):
        return None
    undecided += [-size for size, _, _ in waiting]
    return Integral(mass={v: math.fsum(m) for v, m in masses.items()}, error=math.fsum(undecided), cells=cells)


def _execute(function: Function, run: Execution) -> Hashable:
    """Run the code on a box, then on plain floats from what became of the box; disagreement or an exception voids the trace."""
    numbers: NDArray[Any] = np.empty(len(run.low), dtype=object)
    for axis in range(len(run.low)):
        numbers[axis] = uniform(run, axis)
    # Whatever the code does with objects it was not written for must not end the audit: plain floats come next.
    with contextlib.suppress(Exception), np.errstate(all="ignore"):
        value = function(numbers.view(TracedArray))
        if run.escaped:
            return None
        # Boxes of no volume, where a uniform is exactly 0, may hold a 0/0 that objects and floats treat differently.
        if run.undecided or run.volume < _NO_VOLUME or function(np.asarray(run.middle)) == value:
            return value
    run.escaped = True
    return None


def _confirmed(function: Function, leaves: list[tuple[Box, Hashable]], num_uniforms: int) -> bool:
    """Run the code on plain floats at random points: code with randomness of its own does not keep to its boxes."""
    lows, highs = (np.asarray([box[side] for box, _ in leaves]).reshape(len(leaves), num_uniforms) for side in (0, 1))
    for point in np.random.default_rng(0).random((_CHECKS, num_uniforms)):
        inside = np.flatnonzero(((lows <= point) & (point < highs)).all(axis=1))
        if inside.size and function(point.copy()) != leaves[int(inside[0])][1]:
            return False
    return True
