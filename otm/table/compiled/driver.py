"""The driver of the compiled passes: read rows, order tokens where needed, fill every column."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import BLOCK, Floats, quiet
from otm.errors import ShapeMismatch
from otm.overlap.walk import LINES, Integers
from otm.table.arrays import CURVE, LIKELY, LOGARITHMIC, RACES
from otm.table.compiled.common import (
    BY_READING,
    DESCRIBED,
    IN_GROUPS,
    IN_ORDER,
    NUM_PARTS,
    NUM_SUMS,
    PER_K,
    SIGNED,
    SINGLE,
    TERMS,
    WHOLE_P,
    WHOLE_Q,
    Buffers,
    FirstPass,
    Request,
    RowResults,
)
from otm.table.compiled.first_pass import read_rows
from otm.table.compiled.second_pass import walk_rows
from otm.verifiers.fuzzy import Fuzzy
from otm.verifiers.lenience import Lenience
from otm.verifiers.typical_acceptance import TypicalAcceptance

_PLACED = {"fuzzy_iid", *CURVE, *LIKELY} - RACES
_RAISED = {"naive_iid", "naive_tree_iid"}
_LOSSY = np.asarray(
    [Lenience().lenience, TypicalAcceptance().delta, TypicalAcceptance().eps, Fuzzy().threshold]
)
_SHORTEST_BINNED = 1024  # below, a sort is as fast
_MOST_BINS, _PER_BIN = 1024, 64  # bins at most, and how many tokens they hold on average
_ROOM = 8  # one in so many tokens of a group; a row with a longer one is put in order
_SAMPLE = 32  # tokens of which none is without mass, before a row is read as a distribution


SUMS_TO_ONE = 2.0**-49  # but for so much


def try_out() -> None:
    """Compute one row of one token, so that the compiled code is loaded or made now."""
    half = np.full((1, 1), 0.5)  # neither a distribution as it stands
    chunk_values(half, half, [1], DESCRIBED)


def chunk_values(
    p: NDArray[np.floating],
    q: NDArray[np.floating],
    ks: Sequence[int],
    wanted: Collection[str],
    logs: tuple[Floats, Floats] | None = None,
) -> tuple[dict[tuple[str, int], Floats], dict[str, Floats], Floats]:
    """Return the values of a chunk `(rows, V)`, the descriptions, and the sums that separate
    distributions from other rows; `ks` ascending.

    Args:
        p, q: float32 or float64, both the same; divided by their sums here, which need not be 1.
        ks: numbers of drafts, ascending.
        wanted: stems of columns and names of descriptions; what else is returned may be wrong.
        logs: logarithms of p and q in float64 where a softmax has left them, finite everywhere;
            read where p and q are distributions as they stand.

    Returns:
        Values by (stem of the column, k); descriptions by name; and `(2, rows)`, Σ p and Σ q, NaN
        where an entry is negative. Where these are not what they should be the rest is meaningless.

    Cost: per row one read of a distribution, two of anything else; for values along the curve one
        more of the tokens with mass, in groups; for the races, whose every term depends on a rank,
        a sort and two, and a merge for each c of threshold races. Memory: a dozen arrays of a row's
        length, and what is divided. Accuracy: as `otm.table.arrays`.
    """
    if p.shape != q.shape or p.dtype != q.dtype:  # compiled loops would read what lies beyond
        raise ShapeMismatch(
            f"A chunk's rows must be alike; got {p.shape} of {p.dtype}, {q.shape} of {q.dtype}. "
            "Broadcast them."
        )
    names = set(wanted)
    request = Request(
        ks=np.asarray(ks, dtype=np.int64),
        way=IN_ORDER if names & RACES else IN_GROUPS if names & _PLACED else BY_READING,
        logarithms=bool(names & LOGARITHMIC),
        powers=bool(names & _RAISED),
        late="race_threshold_race" in names,
        lossy=_LOSSY,
    )
    with quiet():  # compiled code never warns, but numba may be told not to compile
        results, sums = _results(p, q, request, logs)
    values = {
        (stem, k): results.per_k[i, j] for i, stem in enumerate(PER_K) for j, k in enumerate(ks)
    }
    values |= {(stem, 1): results.single[i] for i, stem in enumerate(SINGLE)}
    if 2 in ks:
        values["spechub_greedy", 2] = values["greedy_optimal_greedy", 2]
    return values, dict(zip(DESCRIBED, results.described, strict=True)), sums


def _results(
    p: NDArray[np.floating],
    q: NDArray[np.floating],
    request: Request,
    logs: tuple[Floats, Floats] | None,
) -> tuple[RowResults, Floats]:
    """Return the values of rows, and the sums of the rows.

    Rows that seem to be distributions are read without division, and summed in the same pass.
    """
    sample = slice(None, None, max(p.shape[1] // _SAMPLE, 1))
    if p.dtype == np.float64 and (p[:, sample] > 0).all() and (q[:, sample] > 0).all():
        wide_p, wide_q, *known = (
            np.require(a, np.float64, ["C", "A"]) for a in (p, q, *(logs or ()))
        )
        batch = _Batch.of(wide_p, wide_q, request, logs=known)
        if batch.are_distributions():
            return batch.filled(), batch.first_pass.sums[:, [WHOLE_P, WHOLE_Q]].T
        del batch
    (p, sum_p, dead_p), (q, sum_q, dead_q) = (unit_chunk(a) for a in (p, q))
    sparse = dead_p + dead_q > p.shape[1]  # half of the tokens have no mass, at least
    if sparse.any():
        rows = [
            (live_tokens(p[r], q[r], request.ks[-1]) if sparse[r] else (p[r : r + 1], q[r : r + 1]))
            for r in range(len(p))
        ]
        parts = [_Batch.of(*row, request).filled() for row in rows]
        results = RowResults(
            *(np.concatenate(joined, axis=-1) for joined in zip(*parts, strict=True))
        )
    else:
        results = _Batch.of(p, q, request).filled()
    return results, np.stack([sum_p, sum_q])


@dataclasses.dataclass(frozen=True, eq=False)
class _Batch:
    """A batch of rows after the first pass."""

    p: Floats
    q: Floats
    request: Request
    first_pass: FirstPass
    results: RowResults
    buffers: Buffers

    @classmethod
    def of(cls, p: Floats, q: Floats, request: Request, *, logs: Sequence[Floats] = ()) -> _Batch:
        """Read rows, with logarithms where these are known."""
        count, width = p.shape
        if request.way == IN_GROUPS and width < _SHORTEST_BINNED:
            request = request._replace(way=IN_ORDER)
        most, blocks = int(request.ks[-1]), (width + BLOCK - 1) // BLOCK
        grouped, listed = request.way == IN_GROUPS, request.way != BY_READING
        bins = min(1 << (width // _PER_BIN).bit_length(), _MOST_BINS) if grouped else 0
        ends = max(blocks, bins) + 1 if listed else 0
        batch = cls(
            p=p,
            q=q,
            request=request,
            first_pass=FirstPass(
                sums=np.empty((count, NUM_SUMS)),
                live=np.empty(count, dtype=np.int64),
                top=np.empty((count, most), dtype=np.int64),
                rest=np.empty((count, 2, most + 1)),
                place=np.empty((count, width if grouped else 0), dtype=np.int16),
                bin_sums=np.zeros((count, 4, bins, 4)),
                bin_sizes=np.zeros((count, bins), dtype=np.int64),
            ),
            results=RowResults(
                described=np.zeros((len(DESCRIBED), count)),
                per_k=np.zeros((len(PER_K), len(request.ks), count)),
                single=np.empty((len(SINGLE), count)),
            ),
            buffers=Buffers(
                work=np.empty((7, BLOCK)),
                moments=np.empty((2, TERMS)),
                parts=np.empty((NUM_PARTS, blocks)),
                bins=np.empty(bins, dtype=np.int64),
                tokens=np.empty(width if listed else 0, dtype=np.int64),
                starts=np.empty(ends, dtype=np.int64),
                is_sorted=np.empty(ends, dtype=np.bool_),
                ends=np.empty((LINES, ends)),
                opened=np.empty((4, max(BLOCK, width // _ROOM) if grouped else blocks * BLOCK)),
                wanted=np.empty((2 * len(request.ks), ends), dtype=np.bool_),
                ratios=np.empty(width + 1 if listed else 0, dtype=np.int64),
            ),
        )
        log_p, log_q = logs or (np.empty((0, 0)),) * 2
        read_rows(
            p,
            q,
            log_p,
            log_q,
            request,
            batch.first_pass,
            batch.results,
            batch.buffers,
        )
        return batch

    def are_distributions(self) -> bool:
        """True if every row sums to 1, is non-negative, and has mass on half of the tokens or more.

        The tolerance on sums is tighter than where sums are taken first, in another order: rows
        that pass here are not divided there.
        """
        sums, near = self.first_pass.sums, 0.75 * SUMS_TO_ONE
        whole = (np.abs(sums[:, [WHOLE_P, WHOLE_Q]] - 1.0) <= near).all()
        alive = (2 * self.first_pass.live >= self.p.shape[1]).all()
        return bool(whole and not sums[:, SIGNED].any() and alive)

    def filled(self) -> RowResults:
        """Fill the columns that need an order, and return all results."""
        if self.request.way == BY_READING:
            return self.results
        wrong = np.empty(len(self.p), dtype=np.bool_)
        walk_rows(
            self.p,
            self.q,
            self.request,
            self.first_pass,
            self.results,
            wrong,
            self.buffers,
        )
        # In order a row has room, and what is wrong with it is that it is no distribution.
        for r in np.flatnonzero(wrong).tolist() if self.request.way == IN_GROUPS else ():
            self._fill_again(r)
        return self.results

    def _fill_again(self, r: int) -> None:
        """Fill a row again, with all its tokens in order."""
        one = slice(r, r + 1)
        request = self.request._replace(way=IN_ORDER)
        again = _Batch.of(self.p[one], self.q[one], request).filled()
        for mine, new in zip(self.results, again, strict=True):
            mine[..., one] = new


def unit_chunk(rows: NDArray[Any]) -> tuple[Floats, Floats, Integers]:
    """Return rows in float64 divided by the sums, the sums (NaN where an entry is negative), and
    the number of zeros in each row.

    Rows that sum to 1 but for 16 units of roundoff are returned unchanged: their masses are as
    close as that to p/Σp.
    """
    wide = np.require(rows, np.float64, ["C", "A"])
    least, sums = wide.min(axis=1), wide.sum(axis=1)
    sums[~(least >= 0)] = np.nan
    none = np.zeros(len(wide), dtype=np.int64)
    zeros = none if (least > 0).all() else (wide == 0).sum(axis=1)
    is_whole = np.abs(sums - 1.0) <= SUMS_TO_ONE
    if is_whole.all() and (least > 0).all():
        return wide, sums, zeros
    unit = np.abs(wide)  # −0 becomes 0, or q/p would be −∞
    unit *= np.where(is_whole, 1.0, 1.0 / sums)[:, None]
    return unit, sums, zeros


def live_tokens(p: Floats, q: Floats, least: int) -> tuple[Floats, Floats]:
    """Return the tokens of a row that have any mass, `(1, n)` both, and a few without mass where
    there are fewer than `least`.
    """
    alive = np.flatnonzero((p > 0) | (q > 0))
    kept = np.zeros((2, 1, max(len(alive), least)))
    kept[0, 0, : len(alive)], kept[1, 0, : len(alive)] = p[alive], q[alive]
    return kept[0], kept[1]
