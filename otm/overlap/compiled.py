"""The compiled engine (`otm.overlap.walk`) for whole rows in fixed bins.

There are 4,096 bins, 32 to an octave of q/p from 2⁻⁶⁴ to 2⁶⁴; ratios beyond join the first and
last.

A row in which more than a quarter of the tokens would have to be ordered (all ratios alike to five
bits but not equal, or many minima) is left to the caller, who sorts it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import types

from otm._machine.arrays import BLOCK, Floats, reserve
from otm._machine.compiled import compile_once
from otm.overlap.curve import LOWEST_BIN, NUM_BINS, RATIO_SHIFT, Containment
from otm.overlap.walk import (
    FLAGS,
    GROUPS,
    HIGH,
    INTEGERS,
    LINES,
    LOW,
    MASS_P,
    MASS_Q,
    ROW,
    ROWS,
    SIZES,
    TABLE,
    Flags,
    Groups,
    Integers,
    add_to_bins,
    bound_optima,
    close_bins,
    kseq_group,
    kseq_root,
    late_matches,
    lay_out,
    list_tokens,
    refine_optima,
    sort_row,
    sort_tokens,
)

_MOST_IN_ORDER = 4  # at most one in so many tokens is put in order


def try_out() -> None:
    """Compute one row of one token, so that the compiled code is loaded or made now."""
    one = np.ones((1, 1))
    optimum(one, one, [Containment()])
    kseq_roots(one, one, [1])
    Lumps(one[0], one[0]).in_order(np.zeros(1, dtype=np.int64))


def optimum(p: Floats, q: Floats, sizes: Sequence[Containment]) -> tuple[Floats, Flags]:
    """Return α* and then, in as many rows again, P of the tokens outside a minimising set, and a
    mask of the rows left to the caller.

    Rows are `(rows, V)`, answers `(2 len(sizes), rows)`.
    """
    ascending = sorted(set(sizes))
    cs, ks = np.array([c for c, _ in ascending]), np.array([k for _, k in ascending])
    values, left = np.empty((2, len(ascending), len(p))), np.empty(len(p), dtype=np.bool_)
    _optima_of_rows(p, q, cs, ks, _room(p.shape[1]), _sums(), values, left)
    of_size = [ascending.index(size) for size in sizes]
    return values[:, of_size].reshape(2 * len(sizes), -1), left


def kseq_roots(p: Floats, q: Floats, ks: Sequence[int]) -> tuple[Floats, Flags]:
    """Return γ*_k, slope and offset of the piece of H at γ*_k, and a mask of the rows left open.

    Rows are `(rows, V)`, answers `(3 len(ks), rows)`.
    """
    roots, left = np.empty((3, len(ks), len(p))), np.empty(len(p), dtype=np.bool_)
    asked = np.asarray(ks, dtype=np.int64)
    _kseq_of_rows(p, q, asked, _room(p.shape[1]), _sums(), roots, left)
    return roots.reshape(3 * len(ks), -1), left


def matches(p: Floats, q: Floats, sizes: Sequence[Containment]) -> Floats:
    """Return the probability that the drafts of a race contain the target's winner.

    Rows are `(rows, V)`, answers `(len(sizes), rows)`.
    """
    cs, ks = np.array([float(c) for c, _ in sizes]), np.array([k for _, k in sizes])
    values = np.empty((len(p), len(sizes)))
    reserve(16 * p.shape[1])
    _matches_of_rows(p, q, cs, ks, values)
    return values.T


class Lumps:
    """One row's tokens lumped together by bins, with an order inside chosen bins on request.

    Attributes:
        steps: P, Q, the largest and the smallest ratio of each lump, in descending order of q/p,
            `(4, n)`.
    """

    def __init__(self, p: Floats, q: Floats) -> None:
        self._p, self._q, self._groups = p, q, _room(len(p))
        self._number = _group(p, q, self._groups, _sums())
        self.steps = self._groups.ends[[MASS_P, MASS_Q, HIGH, LOW], : self._number]

    def in_order(self, chosen: Integers) -> tuple[Integers, Integers] | None:
        """Return the tokens of the chosen lumps in descending order of q/p, and the number in each
        lump; None if there are too many.
        """
        wanted = np.zeros((1, self._number), dtype=np.bool_)
        wanted[0, chosen] = True
        if not _order(self._p, self._q, self._groups, self._number, wanted):
            return None
        starts = self._groups.starts[: self._number + 1]
        return self._groups.tokens[: starts[-1]], np.diff(starts)


def _room(width: int) -> Groups:
    """Allocate the arrays for a row of a width, with room to order one token in a few."""
    listed = width // _MOST_IN_ORDER + 1
    return Groups(
        bin=np.empty(width, dtype=np.int16),
        sizes=np.empty(NUM_BINS, dtype=np.int64),
        bins=np.empty(NUM_BINS, dtype=np.int64),
        tokens=np.empty(listed, dtype=np.int64),
        starts=np.zeros(NUM_BINS + 1, dtype=np.int64),
        is_sorted=np.empty(NUM_BINS, dtype=np.bool_),
        ends=np.empty((LINES, NUM_BINS + 1)),
        opened=np.empty((4, listed)),
    )


def _sums() -> Floats:
    """Allocate the sums of fixed bins."""
    return np.empty((4, NUM_BINS, 4))


@compile_once(types.int64(ROW, ROW, GROUPS, types.float64[:, :, ::1]))
def _group(p: Floats, q: Floats, groups: Groups, sums: Floats) -> int:
    """Put a row into the fixed bins; return the number of groups."""
    sums[:] = 0.0
    groups.sizes[:] = 0
    for start in range(0, len(p), BLOCK):
        end = min(start + BLOCK, len(p))
        add_to_bins(
            p[start:end],
            q[start:end],
            LOWEST_BIN,
            RATIO_SHIFT,
            groups.bin[start:end],
            sums,
            groups.sizes,
        )
    return int(close_bins(groups, LOWEST_BIN, RATIO_SHIFT, sums))


_ROOM = (GROUPS, types.float64[:, :, ::1])
_ANSWER = (types.float64[:, :, ::1], types.boolean[::1])


@compile_once(types.void(ROWS, ROWS, *SIZES, *_ROOM, *_ANSWER))
def _optima_of_rows(
    p: Floats,
    q: Floats,
    cs: Floats,
    ks: Integers,
    groups: Groups,
    sums: Floats,
    values: Floats,
    left: Flags,
) -> None:
    wanted, best = np.empty((len(ks), NUM_BINS), dtype=np.bool_), np.empty((2, len(ks)))
    for r in range(len(p)):
        n = _group(p[r], q[r], groups, sums)
        bound_optima(groups, n, cs, ks, wanted, best)
        left[r] = not list_tokens(groups, n, wanted)
        if not left[r]:
            left[r] = not refine_optima(p[r], q[r], groups, n, cs, ks, wanted, best)
        for i in range(len(ks)):
            values[0, i, r], values[1, i, r] = best[0, i], best[1, i]


@compile_once(types.void(ROWS, ROWS, INTEGERS, *_ROOM, *_ANSWER))
def _kseq_of_rows(
    p: Floats,
    q: Floats,
    ks: Integers,
    groups: Groups,
    sums: Floats,
    roots: Floats,
    left: Flags,
) -> None:
    wanted, at = np.empty((1, NUM_BINS), dtype=np.bool_), np.empty(len(ks), dtype=np.int64)
    for r in range(len(p)):
        n = _group(p[r], q[r], groups, sums)
        for g in range(n):
            wanted[0, g] = False
        for i, k in enumerate(ks):
            at[i] = kseq_group(groups, n, k)
            if at[i] < n:
                wanted[0, at[i]] = True
        left[r] = not list_tokens(groups, n, wanted)
        if not left[r]:
            for i, k in enumerate(ks):
                root = kseq_root(p[r], q[r], groups, n, at[i], k)
                roots[0, i, r], roots[1, i, r], roots[2, i, r] = root


@compile_once(types.boolean(ROW, ROW, GROUPS, types.int64, FLAGS))
def _order(p: Floats, q: Floats, groups: Groups, n: int, wanted: Flags) -> bool:
    if not list_tokens(groups, n, wanted):
        return False
    for g in range(n):
        sort_tokens(p, q, groups.tokens[groups.starts[g] : groups.starts[g + 1]])
    return True


@compile_once(types.void(ROWS, ROWS, *SIZES, TABLE))
def _matches_of_rows(p: Floats, q: Floats, cs: Floats, ks: Integers, values: Floats) -> None:
    tokens = np.empty(p.shape[1], dtype=np.int64)
    ratios = np.empty(p.shape[1] + 1, dtype=np.int64)
    opened = np.empty((4, (p.shape[1] + BLOCK - 1) // BLOCK * BLOCK))
    for r in range(len(p)):
        live = sort_row(p[r], q[r], ratios, tokens)
        lay_out(p[r], q[r], tokens, opened)
        late_matches(opened, ratios, live, cs, ks, values[r])
