"""Compiled draws from the target's residual after a rejection, in one pass and little memory.

The residual ∝ (q − s)₊ is summed in blocks of `_BLOCK` tokens; the running sum of the blocks tells
in which one a draw lies, and that block alone is walked through. A draw is what the inverse of the
row's running sum gives, up to the rounding of sums.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from otm._machine.arrays import Floats
from otm._machine.compiled import compile_once

Tokens = NDArray[np.int64]

_BLOCK = 512
_FAST = frozenset({"reassoc", "contract", "nsz"})


def try_out() -> None:
    """Draw from one row of one token, so that the compiled code is loaded or made now."""
    one = np.ones((1, 1))
    binned(
        one,
        one,
        one[0],
        one[0],
        one.astype(np.int16) - 1,
        one,
        np.zeros(1, dtype=np.int64),
        one - 1.0,
    )


def binned(
    p: NDArray[Any],
    q: NDArray[Any],
    p_sum: Floats,
    q_sum: Floats,
    index: NDArray[Any],
    level: Floats,
    rows: Tokens,
    uniforms: Floats,
) -> Tokens:
    """Draw from ∝ (q − p a_b)₊ of some rows of a batch, or from q where the residual is 0.

    Args:
        p, q: masses `(rows, V)`, float32 or float64; `p_sum`, `q_sum` are what they are divided by,
            `(rows,)`.
        index: each token's bin `(rows, V)`.
        level: a of each bin, `(rows, bins)`.
        rows: which rows, `(m,)`.
        uniforms: `(m, n)`.

    Returns:
        Tokens `(m, n)`.
    """
    drawn = np.empty(uniforms.shape, dtype=np.int64)
    unsigned = index.view(np.uint16 if index.dtype == np.int16 else np.uint32)
    _binned(p, q, p_sum, q_sum, unsigned, level, rows, np.ascontiguousarray(uniforms), drawn)
    return drawn


@compile_once(fastmath=_FAST)
def _find(blocks: Floats, total: float, uniform: float) -> tuple[int, float]:
    """Return the block of a draw, and the mass of the block before the draw."""
    wanted, before, last = uniform * total, 0.0, 0
    for b in range(len(blocks)):
        if blocks[b] > 0.0:
            last = b
            if before + blocks[b] > wanted:
                break
            before += blocks[b]
    return last, wanted - before if wanted < before + blocks[last] else np.inf


_VECTOR = types.Array(types.float64, 1, "C", readonly=True)


def _signatures() -> list[object]:
    return [
        types.void(
            *(types.Array(mass, 2, "C", readonly=True),) * 2,
            *(_VECTOR,) * 2,
            types.Array(index, 2, "C", readonly=True),
            types.Array(types.float64, 2, "C", readonly=True),
            types.int64[::1],
            types.float64[:, ::1],
            types.int64[:, ::1],
        )
        for mass in (types.float32, types.float64)
        for index in (types.uint16, types.uint32)
    ]


@compile_once(*_signatures(), fastmath=_FAST)
def _binned(
    p: Floats,
    q: Floats,
    p_sum: Floats,
    q_sum: Floats,
    index: NDArray[Any],
    level: Floats,
    rows: Tokens,
    uniforms: Floats,
    drawn: Tokens,
) -> None:
    width = p.shape[1]
    blocks, scaled, factor = (
        np.empty((width + _BLOCK - 1) // _BLOCK),
        np.empty(level.shape[1]),
        np.empty(_BLOCK),
    )
    for m in range(len(rows)):
        r = rows[m]
        for c in range(len(scaled)):  # (q − p a)₊ up to the factor Σ q
            scaled[c] = level[r, c] * (q_sum[r] / p_sum[r])
        while True:
            total = 0.0
            for b in range(len(blocks)):
                part, start = 0.0, b * _BLOCK
                n = min(_BLOCK, width - start)
                for i in range(n):  # looked up first, the rest of the loop is vectorised
                    factor[i] = scaled[index[r, start + i]]
                for i in range(n):
                    excess = np.float64(q[r, start + i]) - factor[i] * np.float64(p[r, start + i])
                    part += excess if excess > 0.0 else 0.0
                blocks[b] = part
                total += part
            if total > 0.0 or not scaled.any():
                break
            scaled[:] = 0.0
        for d in range(uniforms.shape[1]):
            b, left = _find(blocks, total, uniforms[m, d])
            for i in range(b * _BLOCK, min((b + 1) * _BLOCK, width)):
                excess = np.float64(q[r, i]) - scaled[index[r, i]] * np.float64(p[r, i])
                if excess > 0.0:
                    drawn[m, d] = i
                    left -= excess
                    if left < 0.0:
                        break
