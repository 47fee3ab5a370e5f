"""From logits to distributions and their logarithms in one go: the exponential of a block is a polynomial, and so vectorised."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from otm._numba import compile_once
from otm.table.compiled.parts import BLOCK, FAST, Floats, number, part

_LOG_2_E = 1.4426950408889634
_LOG_2_HIGH, _LOG_2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # the first with 32 bits, so that n times it is exact
_NOTHING = -1100.0  # the exponential is 0 from here on
_FINITE = -1.7976931348623157e308  # what −∞ is taken for, so that 0 times it is 0


def softmax(logits: NDArray[Any], temperature: float) -> tuple[Floats, Floats]:
    """Return exp(z/T)/Σ exp(z/T) and its finite logarithm, in float64, `(rows, V)`.

    The largest logit is subtracted first, in float64, so that nothing overflows but what is far below it, and is nothing then.

    Args:
        logits: float32 or float64 `(rows, V)`, each row with a finite one, neither NaN nor +∞.
        temperature: T, positive, no less than the least normal number.

    Accuracy: that of `otm.from_logits` in float64.
    """
    rows = np.require(logits, requirements=["C", "A"])
    mass, logs = np.empty(rows.shape), np.empty(rows.shape)
    _softmax(rows, temperature, mass, logs)
    return mass, logs


@part()
def _exponential(x: float) -> float:
    """Return e^x of x ≤ 0: 2^n e^r with |r| ≤ log 2/2, whose series of 14 terms leaves out 4e-18; 2^n in two steps, as it may be tiny."""
    x = max(x, _NOTHING)
    n = np.int32(x * _LOG_2_E - 0.5)
    r = (x - n * _LOG_2_HIGH) - n * _LOG_2_LOW
    r2 = r * r
    r4 = r2 * r2
    low = (1.0 + r + r2 * (1 / 2 + r * (1 / 6))) + r4 * (1 / 24 + r * (1 / 120) + r2 * (1 / 720 + r * (1 / 5040)))
    high = (1 / 40320 + r * (1 / 362880) + r2 * (1 / 3628800 + r * (1 / 39916800))) + r4 * (1 / 479001600 + r * (1 / 6227020800))
    half = np.int64(n) >> 1
    series = low + r4 * r4 * high
    return float(series * number((half + 1023) << 52) * number((np.int64(n) - half + 1023) << 52))


@part(FAST)
def _total(mass: Floats) -> float:
    total = 0.0
    for i in range(len(mass)):
        total += mass[i]
    return total


@part()
def _largest(row: NDArray[Any]) -> float:
    """Return the largest entry; of eight side by side, as a maximum of floats is not vectorised."""
    most = np.full(8, -np.inf)
    whole = len(row) // 8 * 8
    for i in range(0, whole, 8):
        for j in range(8):
            most[j] = row[i + j] if row[i + j] > most[j] else most[j]
    for i in range(whole, len(row)):
        most[0] = max(most[0], row[i])
    return float(most.max())


def _kind(mass: Any) -> Any:
    table = types.float64[:, ::1]
    return types.void(types.Array(mass, 2, "C", readonly=True), types.float64, table, table)


@compile_once(_kind(types.float32), _kind(types.float64), fastmath=frozenset({"contract", "nsz"}))
def _softmax(logits: NDArray[Any], temperature: float, mass: Floats, logs: Floats) -> None:
    width = logits.shape[1]
    for r in range(len(logits)):
        largest = _largest(logits[r])
        whole = 0.0
        for start in range(0, width, BLOCK):
            end = min(start + BLOCK, width)
            for i in range(start, end):
                logs[r, i] = (logits[r, i] - largest) / temperature
            for i in range(start, end):
                mass[r, i] = _exponential(logs[r, i])
            whole += _total(mass[r, start:end])
        scale, log = 1.0 / whole, math.log(whole)
        for i in range(width):
            mass[r, i] *= scale
            logs[r, i] = max(logs[r, i] - log, _FINITE)
