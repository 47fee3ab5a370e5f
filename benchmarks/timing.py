"""Medians of interleaved runs, and the machine that they were taken on."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from importlib import metadata

import numpy as np

from analysis.provenance import processor

_MOST_ROUNDS = 200


def medians(
    functions: Mapping[str, Callable[[], object]],
    *,
    seconds: float = 2.0,
    least: int = 5,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return the median time of each function in milliseconds.

    The functions take turns, so that a slow minute of a shared machine hits all of them and ratios
    keep their meaning. Each runs once unmeasured first. For what runs in one thread
    `time.process_time` is a clock that others on the machine do not turn.
    """
    for function in functions.values():
        function()
    times: dict[str, list[float]] = {name: [] for name in functions}
    deadline = time.perf_counter() + seconds * len(functions)
    rounds = 0
    while rounds < least or (rounds < _MOST_ROUNDS and time.perf_counter() < deadline):
        for name, function in functions.items():
            start = clock()
            function()
            times[name].append(clock() - start)
        rounds += 1
    return {name: 1e3 * statistics.median(values) for name, values in times.items()}


def machine(*further: str) -> dict[str, object]:
    """Return processor, cores, the vector extensions that sorting depends on, load, and versions,
    those of further packages too.
    """
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "load at start": round(os.getloadavg()[0], 2),
        "vector extensions": ", ".join(_extensions()) or "unknown",
        "python": sys.version.split()[0],
        **{name: metadata.version(name) for name in ("numpy", "scipy", "highspy", "POT", *further)},
    }


def _extensions() -> list[str]:
    found: dict[str, object] = np.show_config(mode="dicts").get("SIMD Extensions", {})  # type: ignore[union-attr, assignment]
    return [str(name) for name in found.get("found", [])]  # type: ignore[union-attr, attr-defined]
