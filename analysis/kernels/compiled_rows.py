"""Rows in the host's memory, read by numba in fewer passes than torch makes.

    block(candidates, target, draft, uniforms, final, over=CompiledRows)

Masses are those of `vocabulary.TorchRows` bit by bit, sums of bins and of runs up to rounding. The
code runs on one thread, compiles for some seconds on the first call on a machine, and is no part
of a graph.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
import torch

from otm._machine.compiled import compile_once

from .grid import ScoreGrid
from .step import Tensor
from .vocabulary import RUN, Excess, Rows, find_in_run


@compile_once()
def _bins(q: Any, p: Any, ratio: Any, bits: Any, lowest: Any, shift: Any, last: Any) -> None:
    """Write the bins of q/p `(n,)` to `bits`, an integer view of `ratio`, float32."""
    for x in range(len(q)):
        ratio[x] = q[x] / p[x]
    for x in range(len(q)):
        bits[x] = min(max((bits[x] >> shift) - lowest, 0), last)


@compile_once()
def _sum_bins(
    target: Any, draft: Any, nodes: Any, lowest: Any, shift: Any, last: Any, sums: Any
) -> None:
    """Add p and q `(B, m, V)` at nodes `(B, k)` up to `(2, B, k, bins)`."""
    ratio = np.empty(RUN, np.float32)
    bits, both = ratio.view(np.int32), np.empty((sums.shape[3], 2), sums.dtype)
    place = ratio.view(np.uint32)  # without a sign no index is asked whether it counts from the end
    for b, k in np.ndindex(nodes.shape):
        p_row, q_row = draft[b, nodes[b, k]], target[b, nodes[b, k]]
        # p and q of a bin lie side by side, and a run of bins in the nearest cache
        both[:] = 0.0
        for start in range(0, len(q_row), RUN):
            q, p = q_row[start : start + RUN], p_row[start : start + RUN]
            _bins(q, p, ratio, bits, lowest, shift, last)
            for x in range(len(q)):
                both[place[x], 0] += p[x]
                both[place[x], 1] += q[x]
        sums[0, b, k], sums[1, b, k] = both[:, 0], both[:, 1]


@compile_once(fastmath=frozenset({"reassoc"}))
def _sum_masses(
    target: Any,
    draft: Any,
    nodes: Any,
    numbers: Any,
    levels: Any,
    lowest: Any,
    shift: Any,
    sums: Any,
    whole: Any,
) -> None:
    """Add masses w q − c min(s, w q) at nodes `(B, k)` up by runs, `(B, k, runs)`, and q itself.

    Args:
        target, draft: `(B, n, V)`, `(B, m, V)`.
        nodes: `(B, k)`.
        numbers: `(3, B, k)`, w, c and by what p is multiplied, of the rows' type.
        levels: `(2, B, k, bins)`, of the rows' type; no bins if s is that multiple of p.
        lowest, shift: of the grid.
        sums, whole: `(B, k, runs)`, written.
    """
    ratio = np.empty(RUN, np.float32)
    bits, place = ratio.view(np.int32), ratio.view(np.uint32)
    mass, last = np.empty(RUN, sums.dtype), levels.shape[3] - 1
    for b, k in np.ndindex(nodes.shape):
        q_row = target[b, nodes[b, k]]
        p_row = draft[b, min(nodes[b, k], draft.shape[1] - 1)]
        w, c, s = numbers[0, b, k], numbers[1, b, k], numbers[2, b, k]
        for run in range(sums.shape[2]):
            q = q_row[run * RUN : (run + 1) * RUN]
            p = p_row[run * RUN : (run + 1) * RUN]
            for x in range(len(q)):
                mass[x] = w * q[x]
            if c > 0.0:
                if last >= 0:
                    _bins(q, p, ratio, bits, lowest, shift, last)
                    for x in range(len(q)):
                        law = levels[0, b, k, place[x]] * p[x] + levels[1, b, k, place[x]] * q[x]
                        law = law * 0.0 if law < 0.0 else law
                        mass[x] -= c * (mass[x] if mass[x] < law else law)
                else:
                    for x in range(len(q)):
                        law = s * p[x]
                        mass[x] -= c * (mass[x] if mass[x] < law else law)
            total, of_q = mass[0] * 0, mass[0] * 0
            for x in range(len(q)):
                total += mass[x]
                of_q += q[x]
            sums[b, k, run], whole[b, k, run] = total, of_q


@final
class CompiledRows(Rows):
    """Rows read by numba on the host."""

    def _bin_sums(self, grid: ScoreGrid, nodes: Tensor | None) -> Tensor:
        size, height = self.draft.shape[:2]
        if nodes is None:
            nodes = torch.arange(height).expand(size, -1)
        last = len(grid.edges) - 2
        sums = self.draft.new_empty((2, *nodes.shape, last + 1))
        target, draft, at = (one.numpy() for one in (self.target, self.draft, nodes.contiguous()))
        lowest, shift = np.int32(grid.lowest), np.int32(grid.shift)
        _sum_bins(target, draft, at, lowest, shift, np.int32(last), sums.numpy())
        return sums

    def _totals(self, excess: Excess) -> Tensor:
        return self._sums(excess)[0]

    def _both_totals(self, excess: Excess) -> Tensor:
        return self._sums(excess)[:, :, 0]

    def _find(self, excess: Excess, chunk: Tensor, sought: Tensor) -> Tensor:
        return find_in_run(self, excess, chunk, sought)

    def _sums(self, excess: Excess) -> Tensor:
        """Return the masses of runs, and the part of q in each run, `(2, B, k, runs)`."""
        type_, runs = self.target.dtype, -(-self.target.shape[-1] // RUN)
        one = torch.ones_like(excess.weight)
        share = (0.0 if excess.alone else 1.0) * one if excess.share is None else excess.share
        numbers = torch.stack([excess.weight, share, one if excess.scale is None else excess.scale])
        levels = self.target.new_empty((2, *excess.nodes.shape, 0))
        lowest = shift = 0
        if excess.selected is not None:
            levels = excess.selected.levels.to(type_)
            lowest, shift = excess.selected.grid.lowest, excess.selected.grid.shift
        sums = self.target.new_empty((2, *excess.nodes.shape, runs))
        given = self.target, self.draft, excess.nodes, numbers.to(type_), levels
        target, draft, nodes, factors, table = (one.contiguous().numpy() for one in given)
        masses, whole = sums.numpy()
        _sum_masses(
            target, draft, nodes, factors, table, np.int32(lowest), np.int32(shift), masses, whole
        )
        return sums
