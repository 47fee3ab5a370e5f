"""The choice between bins, compiled or as array operations, and a sort for the rows of a batch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import array_api_compat
import numpy as np

from otm._machine.arrays import Array, by_rows, is_on_host, namespace
from otm._machine.compiled import compiled
from otm.overlap import arrays
from otm.overlap.curve import OverlapCurve

SHORTEST_BINNED = 1024
"""Rows from this length on are asked without a sort where that is compiled, or on a device: below,
clearing the bins costs as much.
"""

SORT_SECONDS = 6e-8
"""Seconds in which array calls sort a token and answer one question of its row, roughly."""

SUM_SECONDS = 1e-8
"""The same for a running sum."""

_SHORTEST_ON_HOST = 1 << 16
"""The same on the host without numba: an operation on arrays clears, fills and scans bins as slowly
as NumPy sorts this many.
"""


def dispatch_by_length(
    by_bins: Callable[[Any, Array, Array], tuple[Array, Array]],
    by_sort: Callable[[OverlapCurve], Array],
    draft: Array,
    target: Array,
) -> Array:
    """Evaluate a function of every row in bins where possible, else from the sorted curve.

    Args:
        by_bins: given `otm.overlap.compiled` (`otm.overlap.arrays` where that cannot be had or the
            rows lie on a device) and rows `(rows, V)`, returns answers `(n, rows)` and which rows
            it leaves out.
        by_sort: given a curve, returns answers `(n, ...)`.
        draft, target: masses `(..., V)`, float32 or float64.

    Returns:
        Answers `(n, ...)`, the leading axes of the rows restored.

    Waits for a device once: to learn whether a row was left out.
    """
    xp, width, shape = namespace(draft, target), int(draft.shape[-1]), tuple(draft.shape[:-1])
    known = isinstance(draft, np.ndarray) or array_api_compat.is_torch_array(draft)
    fast = (
        compiled("otm.overlap.compiled", seconds=SORT_SECONDS * math.prod(draft.shape))
        if known and width >= SHORTEST_BINNED and is_on_host(draft)
        else None
    )
    if not known or width < (
        SHORTEST_BINNED if fast or not is_on_host(draft) else _SHORTEST_ON_HOST
    ):
        return by_rows(lambda p, q: by_sort(OverlapCurve.of(p, q)), draft, target)
    bins = fast or arrays

    def chunk(p: Array, q: Array) -> Array:
        answers, left = by_bins(bins, *(_contiguous(a, width) for a in (p, q)))
        kind = namespace(answers)
        return kind.concat([answers, kind.astype(left, answers.dtype)[None, :]], axis=0)

    p, q = (xp.reshape(a, (-1, width)) for a in (draft, target))
    joined = by_rows(chunk, p, q)
    answers, left = joined[:-1, :], joined[-1, :] > 0
    if bool(xp.any(left)):
        (rows,) = xp.nonzero(left)
        answers[:, rows] = by_rows(
            lambda p, q: by_sort(OverlapCurve.of(p, q)), p[rows, :], q[rows, :]
        )
    return xp.reshape(answers, (int(answers.shape[0]), *shape))


def _contiguous(array: Array, width: int) -> Array:
    return (
        np.ascontiguousarray(array.reshape(-1, width)) if isinstance(array, np.ndarray) else array
    )
