"""What makes rows distributions: their sums, a division by them, and leaving out tokens without
mass.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from otm._numba import compile_once
from otm.table.compiled.parts import BLOCK, FAST, ROW, ROWS, Floats, Integers, bits

SUMS_TO_ONE = 2.0**-49


def unit_chunk(rows: NDArray[Any]) -> tuple[Floats, Floats, Integers]:
    """Return rows in float64, divided by their sums, these, NaN where an entry is negative, and how
    many entries are 0.

    Rows that sum to 1 but for 16 units of roundoff are returned as they are: their masses are as
    close as that to p/Σp.
    """
    wide = np.require(rows, np.float64, ["C", "A"])
    sums, zeros = np.empty(len(wide)), np.empty(len(wide), dtype=np.int64)
    is_plain = _add_up(wide, sums, zeros)
    if is_plain and (np.abs(sums - 1.0) <= SUMS_TO_ONE).all():
        return wide, sums, zeros
    unit = np.empty(wide.shape) if np.may_share_memory(wide, rows) else wide
    _divide(wide, sums, unit)
    return unit, sums, zeros


def live_tokens(p: Floats, q: Floats, least: int) -> tuple[Floats, Floats]:
    """Return the tokens of a row with any mass, `(1, n)` both, and some without where there are
    fewer than `least`.
    """
    kept = np.empty((2, 1, len(p)))
    n = _keep_live(p, q, least, kept[0, 0], kept[1, 0])
    return kept[0, :, :n], kept[1, :, :n]


@compile_once(types.boolean(ROWS, types.float64[::1], types.int64[::1]), fastmath=FAST)
def _add_up(rows: Floats, sums: Floats, zeros: Integers) -> bool:
    """Fill each row's sum, NaN where an entry is negative, and its zeros, and return whether no
    entry has a sign, not even a 0.
    """
    width = rows.shape[1]
    is_plain = True
    for r in range(len(rows)):
        is_negative, whole = False, 0.0
        zeros[r] = 0
        for start in range(0, width, BLOCK):
            end, part, signs, alike = min(start + BLOCK, width), 0.0, np.int64(0), 0
            for i in range(start, end):
                part += rows[r, i]
                signs |= bits(rows[r, i])
                alike += rows[r, i] == 0
            whole += part
            zeros[r] += alike
            if signs < 0:
                is_plain = False
                for i in range(start, end):
                    is_negative |= rows[r, i] < 0
        sums[r] = np.nan if is_negative else whole
    return is_plain


@compile_once(types.void(ROWS, types.float64[::1], types.float64[:, ::1]))
def _divide(rows: Floats, sums: Floats, unit: Floats) -> None:
    """Fill rows divided by their sums, but for those that sum to 1; −0 becomes 0, or q/p would be
    −∞.
    """
    for r in range(len(rows)):
        scale = 1.0 if abs(sums[r] - 1.0) <= SUMS_TO_ONE else 1.0 / sums[r]
        for i in range(rows.shape[1]):
            unit[r, i] = abs(rows[r, i]) * scale


@compile_once(types.int64(ROW, ROW, types.int64, types.float64[::1], types.float64[::1]))
def _keep_live(p: Floats, q: Floats, least: int, kept_p: Floats, kept_q: Floats) -> int:
    """Fill the masses of the tokens with any, zeros after them if they are fewer than `least`, and
    return how many there are.
    """
    at = 0
    for i in range(len(p)):  # the next one is written over what has no mass: no branch to guess
        kept_p[at], kept_q[at] = p[i], q[i]
        at += (p[i] > 0) | (q[i] > 0)
    while at < least:
        kept_p[at] = kept_q[at] = 0.0
        at += 1
    return at
