"""Rows from beginning to end: read, put in order as far as what is asked needs it, and every column
filled.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

import numpy as np
from numba import types
from numpy.typing import NDArray

from otm._arrays import quiet
from otm._numba import compile_once
from otm.errors import ShapeMismatch
from otm.table.arrays import CURVE, LIKELY, LOGARITHMIC, RACES
from otm.table.compiled.columns import (
    DESCRIBED,
    DRAFT_ENTROPY,
    FUZZY,
    KSEQ,
    LENIENCE,
    OPTIMUM,
    PER_K,
    RACE,
    RECURSIVE,
    SINGLE,
    TARGET_ENTROPY,
    TV,
)
from otm.table.compiled.curve import excess_above, kseq, optima, recursive_rejection
from otm.table.compiled.distributions import SUMS_TO_ONE, live_tokens, unit_chunk
from otm.table.compiled.gate import is_closer, is_closer_by_logarithms
from otm.table.compiled.groups import MOST_GROUPS, PER_GROUP, gather
from otm.table.compiled.likeliest import by_likely_tokens
from otm.table.compiled.parts import (
    ASKED,
    BLOCK,
    BY_READING,
    FAST,
    FIRST,
    FOUND,
    IN_GROUPS,
    IN_ORDER,
    LAYOUT,
    NUM_PARTS,
    NUM_SUMS,
    READ,
    ROWS,
    SCRATCH,
    SHIFT,
    SIGNED,
    TERMS,
    WHOLE_P,
    WHOLE_Q,
    Asked,
    Flags,
    Floats,
    Found,
    Integers,
    Layout,
    Order,
    Read,
    Scratch,
)
from otm.table.compiled.races import races
from otm.table.compiled.reading import read
from otm.verifiers.fuzzy import Fuzzy
from otm.verifiers.lenience import Lenience
from otm.verifiers.typical_acceptance import TypicalAcceptance

_PLACED = {"fuzzy_iid", *CURVE, *LIKELY} - RACES
_RAISED = {"naive_iid", "naive_tree_iid"}
_LOSSY = np.asarray(
    [Lenience().lenience, TypicalAcceptance().delta, TypicalAcceptance().eps, Fuzzy().threshold]
)
_SHORTEST_GROUPED = 1024  # below, a sort is as fast
_ROOM = 8  # one in so many tokens, put in order here; NumPy does more of them faster
_SAMPLE = 32  # tokens of which none is without mass, before a row is read as a distribution


def try_out() -> None:
    """Compute one row of one token: what is compiled is loaded or made now."""
    half = np.full((1, 1), 0.5)  # neither a distribution as it stands
    chunk_values(half, half, [1], DESCRIBED)


def chunk_values(
    p: NDArray[np.floating],
    q: NDArray[np.floating],
    ks: Sequence[int],
    wanted: Collection[str],
    logs: tuple[Floats, Floats] | None = None,
    orders: list[Integers] | None = None,
) -> tuple[dict[tuple[str, int], Floats], dict[str, Floats], Floats]:
    """Return the values of a chunk `(rows, V)`, its descriptions, and what tells distributions from
    other rows; `ks` ascending.

    Args:
        p, q: float32 or float64, both the same; divided by their sums here, which need not be 1.
        ks: numbers of drafts, ascending.
        wanted: stems of columns and names of descriptions; what else is returned may be wrong.
        logs: logarithms of p and q in float64 where a softmax has left them, finite everywhere;
            read where p and q are distributions as they stand.
        orders: the order of q/p that other distributions of these tokens have left, who have the
            same, or room for this one.

    Returns:
        Values by (stem of the column, k); descriptions by name; and `(2, rows)`, Σ p and Σ q, NaN
        where an entry is negative. Where these are not what they should be the rest is meaningless.

    Cost: per row one read of a distribution, two of anything else; for values along the curve one
    more of the tokens with mass, in groups; for the races, whose every term depends on a rank, a
    sort and two. Memory: the order, and what is divided. Accuracy: as `otm.table.arrays`.
    """
    if p.shape != q.shape or p.dtype != q.dtype:  # compiled loops would read what lies beyond
        raise ShapeMismatch(
            f"A chunk's rows must be alike; got {p.shape} of {p.dtype}, {q.shape} of {q.dtype}. "
            "Broadcast them."
        )
    names = set(wanted)
    asked = Asked(
        ks=np.asarray(ks, dtype=np.int64),
        packed=bool(names & RACES),
        way=IN_ORDER if names & RACES else IN_GROUPS if names & _PLACED else BY_READING,
        logarithms=bool(names & LOGARITHMIC),
        powers=bool(names & _RAISED),
        lossy=_LOSSY,
    )
    with quiet():  # compiled code never warns, but numba may be told not to compile
        found, sums = _found(p, q, asked, logs, orders)
    values = {
        (stem, k): found.per_k[i, j] for i, stem in enumerate(PER_K) for j, k in enumerate(ks)
    }
    values |= {(stem, 1): found.single[i] for i, stem in enumerate(SINGLE)}
    if 2 in ks:
        values["spechub_greedy", 2] = values["greedy_optimal_greedy", 2]
    return values, dict(zip(DESCRIBED, found.described, strict=True)), sums


def _found(
    p: NDArray[np.floating],
    q: NDArray[np.floating],
    asked: Asked,
    logs: tuple[Floats, Floats] | None,
    orders: list[Integers] | None,
) -> tuple[Found, Floats]:
    """Return the values of rows, and their sums.

    Rows that seem to be distributions are read as such, and their sums come with the rest.
    """
    sample = slice(None, None, max(p.shape[1] // _SAMPLE, 1))
    if p.dtype == np.float64 and (p[:, sample] > 0).all() and (q[:, sample] > 0).all():
        wide_p, wide_q, *known = (
            np.require(a, np.float64, ["C", "A"]) for a in (p, q, *(logs or ()))
        )
        table = _Table.of(wide_p, wide_q, asked, logs=known, order=orders[0] if orders else None)
        if table.are_distributions():
            if orders is not None and not orders and asked.way == IN_ORDER and not table.has_dead():
                orders.append(table.layout.order)
            return table.filled(), table.said.sums[:, [WHOLE_P, WHOLE_Q]].T
        del table
    (p, sum_p, dead_p), (q, sum_q, dead_q) = (unit_chunk(a) for a in (p, q))
    sparse = dead_p + dead_q > p.shape[1]  # half of the tokens have no mass, at least
    if sparse.any():
        rows = [
            (live_tokens(p[r], q[r], asked.ks[-1]) if sparse[r] else (p[r : r + 1], q[r : r + 1]))
            for r in range(len(p))
        ]
        parts = [_Table.of(*row, asked).filled() for row in rows]
        found = Found(*(np.concatenate(joined, axis=-1) for joined in zip(*parts, strict=True)))
    else:
        found = _Table.of(p, q, asked).filled()
    return found, np.stack([sum_p, sum_q])


@dataclasses.dataclass(frozen=True, eq=False)
class _Table:
    """Rows that have been read once."""

    p: Floats
    q: Floats
    asked: Asked
    layout: Layout
    mask: int
    said: Read
    found: Found
    scratch: Scratch

    @classmethod
    def of(
        cls,
        p: Floats,
        q: Floats,
        asked: Asked,
        *,
        logs: Sequence[Floats] = (),
        order: Integers | None = None,
    ) -> _Table:
        """Read rows, and their logarithms if they are known; the order may be known, too."""
        count, width = p.shape
        if asked.way == IN_GROUPS and width < _SHORTEST_GROUPED:
            asked = asked._replace(way=IN_ORDER, packed=True)
        if asked.way == IN_ORDER and order is not None:
            asked = asked._replace(packed=False)
        else:
            order = None
        most, blocks = int(asked.ks[-1]), (width + BLOCK - 1) // BLOCK
        grouped, listed = asked.way == IN_GROUPS, asked.way != BY_READING
        groups = min(1 << (width // PER_GROUP).bit_length(), MOST_GROUPS) if grouped else 0
        ends = max(blocks, groups) + 1 if listed else 0
        table = cls(
            p=p,
            q=q,
            asked=asked,
            layout=Layout(
                order=np.empty((count, width if listed else 0), dtype=np.int64)
                if order is None
                else order,
                place=np.empty((count, width if grouped else 0), dtype=np.int16),
                bins=np.zeros((count, groups, 3)),
            ),
            mask=(1 << (width - 1).bit_length()) - 1,
            said=Read(
                sums=np.empty((count, NUM_SUMS)),
                live=np.empty(count, dtype=np.int64),
                top=np.empty((count, most), dtype=np.int64),
                rest=np.empty((count, 2, most + 1)),
            ),
            found=Found(
                described=np.zeros((len(DESCRIBED), count)),
                per_k=np.zeros((len(PER_K), len(asked.ks), count)),
                single=np.empty((len(SINGLE), count)),
            ),
            scratch=Scratch(
                work=np.empty((7, BLOCK)),
                moments=np.empty((2, TERMS)),
                parts=np.empty((NUM_PARTS, blocks)),
                in_top=np.empty(BLOCK, dtype=np.bool_),
                ends=np.empty((6, ends)),
                opened=np.empty((4, max(BLOCK, width // _ROOM if grouped else 0))),
                starts=np.empty((2, ends), dtype=np.int64),
                is_sorted=np.empty(ends, dtype=np.bool_),
            ),
        )
        log_p, log_q = logs or (np.empty((0, 0)),) * 2
        read(
            p,
            q,
            log_p,
            log_q,
            asked,
            table.layout,
            table.mask,
            table.said,
            table.found,
            table.scratch,
        )
        return table

    def are_distributions(self) -> bool:
        """Return whether every row sums to 1, has no sign, and has mass on half of its tokens or
        more.

        A little more is asked of sums than where they are taken first, in another order: what
        passes here is not divided there.
        """
        sums, near = self.said.sums, 0.75 * SUMS_TO_ONE
        whole = (np.abs(sums[:, [WHOLE_P, WHOLE_Q]] - 1.0) <= near).all()
        alive = (
            not self.has_dead()
            if self.ordered_before
            else (2 * self.said.live >= self.p.shape[1]).all()
        )
        return bool(whole and not sums[:, SIGNED].any() and alive)

    @property
    def ordered_before(self) -> bool:
        """Whether other rows have left the order, in which every token has a place."""
        return self.asked.way == IN_ORDER and not self.asked.packed

    def has_dead(self) -> bool:
        """Return whether a token of any row has no mass at all, and so no place in the order."""
        return bool((self.said.live < self.p.shape[1]).any())

    def filled(self) -> Found:
        """Fill what needs an order, and return everything."""
        if self.asked.way == BY_READING:
            return self.found
        if self.asked.packed:
            sort_packed(self.layout.order)
        wrong = np.empty(len(self.p), dtype=np.bool_)
        fill(
            self.p,
            self.q,
            self.asked,
            self.layout,
            self.mask,
            self.said,
            self.found,
            wrong,
            self.scratch,
        )
        for r in np.flatnonzero(wrong):
            self._fill_again(int(r))
        return self.found

    def _fill_again(self, r: int) -> None:
        """Fill a row after its tokens have been put in order by the ratios themselves."""
        one, said = slice(r, r + 1), self.said
        order, p, q = self.layout.order[one], self.p[one], self.q[one]
        put_in_order(p[0], q[0], order[0, : said.live[r]])
        layout = Layout(order, self.layout.place[one], self.layout.bins[one])
        said = Read(said.sums[one], said.live[one], said.top[one], said.rest[one])
        found = Found(*(np.ascontiguousarray(a[..., one]) for a in self.found))
        in_order = self.asked._replace(way=IN_ORDER, packed=False)
        fill(
            p,
            q,
            in_order,
            layout,
            self.mask,
            said,
            found,
            np.empty(1, dtype=np.bool_),
            self.scratch,
        )
        for mine, new in zip(self.found, found, strict=True):
            mine[..., one] = new


def sort_packed(order: Integers) -> None:
    """Sort each row's entries, p/q with the token's index in its last bits; those without mass come
    last.

    Non-negative finite floats sort as their bits do, and NumPy's sort of floats is the faster one.
    """
    order.view(np.float64).sort(axis=-1)


def put_in_order(p: Floats, q: Floats, order: Integers) -> None:
    """List a row's tokens with mass by the ratios themselves."""
    with quiet():
        order[:] = np.argsort(p / q)[: len(order)]  # 0/0, without mass, comes last


@compile_once(
    types.void(ROWS, ROWS, ASKED, LAYOUT, types.int64, READ, FOUND, types.boolean[::1], SCRATCH),
    fastmath=FAST,
)
def fill(
    p: Floats,
    q: Floats,
    asked: Asked,
    layout: Layout,
    mask: int,
    said: Read,
    found: Found,
    wrong: Flags,
    scratch: Scratch,
) -> None:
    """Fill the columns that take the tokens in descending order of q/p, or in groups that are;
    without ranks the races are left.

    A row is wrong, and to be put in order again, if the index took bits that were needed to tell
    two ratios apart, or if the order inside a group matters that is too long.
    """
    ks, lossy, starts, is_sorted, ends = (
        asked.ks,
        asked.lossy,
        scratch.starts[0],
        scratch.is_sorted,
        scratch.ends,
    )
    for r in range(len(p)):
        is_wrong = False
        described, per_k, single = found.described[:, r], found.per_k[:, :, r], found.single[:, r]
        if asked.way == IN_GROUPS:
            order = Order(p[r], q[r], layout.order[r], starts, is_sorted, ends, scratch.opened)
            first, shift = int(said.sums[r, FIRST]), int(said.sums[r, SHIFT])
            groups = gather(order, layout.place[r], layout.bins[r], first, shift, scratch.starts[1])
        else:
            order = Order(
                p[r], q[r], layout.order[r, : said.live[r]], starts, is_sorted, ends, scratch.opened
            )
            tokens = order.tokens
            if asked.packed:
                for j in range(len(tokens)):
                    tokens[j] &= mask
            groups = (len(tokens) + BLOCK - 1) // BLOCK
            for b in range(groups):
                starts[b], is_sorted[b] = b * BLOCK, True
            starts[groups] = len(tokens)
            single[RACE], is_wrong = races(
                order, said.sums[r, WHOLE_P], ks, scratch.work, scratch.moments, per_k
            )
        has_room = optima(order, groups, ends[4:], ks, per_k[OPTIMUM])
        for i, k in enumerate(ks):
            value = kseq(order, groups, k)
            per_k[KSEQ, i], has_room = value, has_room and value == value
        wrong[r] = is_wrong or not has_room
        recursive_rejection(order, groups, ks, per_k[RECURSIVE])
        excess = excess_above(order, groups, lossy[0])
        single[LENIENCE] = (said.sums[r, WHOLE_Q] - excess) / lossy[0]  # Σ min(p, q/l)
        by_likely_tokens(order, groups, said.top[r], said.rest[r], ks, per_k)
        closer = is_closer(ends, groups, lossy[3], described[TV])
        if closer < 0 and asked.logarithms:
            entropies = described[DRAFT_ENTROPY] + described[TARGET_ENTROPY]
            closer = is_closer_by_logarithms(p[r], q[r], lossy[3], entropies)
        if closer > 0:
            single[FUZZY] = 1.0
