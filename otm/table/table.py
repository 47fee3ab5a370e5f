"""Acceptance of every scheme with a batched closed form, for every number of drafts, from one sort:
the table of a measurement on real logits.

Calling `otm.acceptance` scheme by scheme sorts the same ratios q/p again and again. Here one sort
by q/p serves the optimum, K-SEQ, the races and their certificates for every k, one recursion gives
recursive rejection for every k, powers (1 − p)^k are carried from one k to the next, and one walk
over the draft model's most likely tokens gives the greedy laws. The same formulas are there twice:
as array operations of any namespace (`otm.table.arrays`) and as compiled loops for the host
(`otm.table.compiled`), because array calls bound the first on a CPU and a device runs nothing else.

Left out are values that need more than a few passes per k: the laws without replacement (an
integral per prefix), races with several arrivals, list races by membership, `Mentored` and whatever
enumerates.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from otm._display import drawing
from otm._display.tabular import OneTable, Table
from otm._machine.arrays import (
    Array,
    clip,
    host_views,
    is_on_host,
    namespace,
    num_threads,
    reserve,
    share,
    to_numpy,
    unit_rows,
)
from otm._machine.compiled import compiled
from otm.drafts import IID, Greedy, Law, ThresholdRace, TopK, WithoutReplacement
from otm.drafts.base import check_enough_tokens
from otm.errors import InvalidDistribution, InvalidParameter, ShapeMismatch
from otm.pmf import (
    SUM_TOLERANCE_FLOAT32,
    SUM_TOLERANCE_FLOAT64,
    align_pair,
    as_pmfs,
    as_rows,
    check_count,
    check_counts,
    plain_array,
)
from otm.problem import keyword_only
from otm.table import arrays
from otm.verifiers import (
    Fuzzy,
    GreedyOptimal,
    KSeq,
    Lenience,
    ListRace,
    Maximal,
    MinHash,
    Naive,
    NaiveTree,
    Race,
    RecursiveRejection,
    SpecHub,
    TypicalAcceptance,
    Verifier,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ColumnDefinition = Literal["membership", "rule", "bound"]


@dataclasses.dataclass(frozen=True)
class TableColumn:
    """One column: a scheme, a draft law and a number of drafts.

    Attributes:
        name: a short key, `{scheme}_{law}_k{k}`.
        scheme: what identifies the scheme, its class and every parameter (`repr` of the verifier);
            "optimum", or a bound's name.
        label: its display name (`str` of the verifier).
        law, k: the class of the draft law, the number of drafts (c of a threshold race).
        lossless: whether the output keeps the target's law.
        optimum: the name of the column that holds the optimum of this law and k, None for bounds
            and lossy schemes.
        definition: "membership", "rule", or "bound" for a certified lower bound on a race.
    """

    name: str
    scheme: str
    label: str
    law: str
    k: int
    lossless: bool
    optimum: str | None
    definition: ColumnDefinition

    @property
    def stem(self) -> str:
        """The name without the number of drafts: one scheme under one law."""
        return self.name.removesuffix(f"_k{self.k}")


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class AcceptanceTable(OneTable):
    """Acceptances and descriptions of a batch; the `repr` gives the means over the batch.

    Attributes:
        columns: what the rows of `values` are.
        values: `(len(columns), ...)` in float64, of the input's array kind.
        description: by name `(...)`, those asked for: draft_entropy, target_entropy,
            kl_target_draft = D(q‖p), kl_draft_target = D(p‖q), all in nats, and tv.
    """

    columns: tuple[TableColumn, ...]
    values: Array
    description: dict[str, Array]

    def __repr__(self) -> str:
        return (
            f"AcceptanceTable({len(self.columns)} columns, batch of shape "
            f"{tuple(self.values.shape[1:])})"
        )

    def data(self) -> Table:
        """Return a row for each column, with the mean over the batch."""
        means = to_numpy(self.values).reshape(len(self.columns), -1).mean(axis=1)
        rows = [
            (c.name, c.label, c.law, c.k, c.definition, float(mean))
            for c, mean in zip(self.columns, means, strict=True)
        ]
        return Table(
            columns=("column", "scheme", "law", "k", "definition", "mean"), rows=tuple(rows)
        )

    def _draw(self, ax: Axes) -> None:
        """Draw mean acceptances of i.i.d. drafts against k: the optimum, and the best five lossless
        schemes by the last k.
        """
        curves: dict[str, dict[int, float]] = {}
        for column, (*_, mean) in zip(self.columns, self.data().rows, strict=True):
            if column.law == IID.__name__ and column.lossless and column.definition == "membership":
                curves.setdefault(column.label, {})[column.k] = mean
        lines = [
            drawing.Line(name, list(c), list(c.values()), best=name == "optimum")
            for name, c in curves.items()
        ]
        lines.sort(key=lambda line: (not line.best, -len(line.x), -line.y[-1]))
        ks = sorted({column.k for column in self.columns})
        drawing.draw_lines(
            ax,
            lines[: drawing.MOST_LINES],
            xlabel="number of drafts k",
            ylabel="mean acceptance",
            ticks=ks,
        )

    def __getitem__(self, name: str) -> Array:
        """Return one column `(...)` by name."""
        for i, column in enumerate(self.columns):
            if column.name == name:
                return self.values[i, ...]
        raise InvalidParameter(
            f"A column's name is needed; got {name!r}. Choose one of "
            f"{', '.join(c.name for c in self.columns[:4])}, …"
        )


# Elements per chunk: on the host a dozen arrays of this size stay in a processor's last cache; a
# device needs enough work per call (a dozen temporaries of 128 MB).
_ON_HOST, _ON_DEVICE = 1 << 18, 1 << 24

VALUE_SECONDS = 1.5e-8
"""Seconds in which array calls give a token's part of one column, roughly."""

_DRIVER = "otm.table.compiled.driver"


@dataclasses.dataclass(frozen=True)
class _Stem:
    """The common part of all columns of one scheme under one law; `only` is the one number of
    drafts for which the scheme is defined.

    `scheme` is a verifier, or the name of an optimum or a bound.
    """

    name: str
    scheme: Verifier | str
    law: type[Law]
    only: int | None = None
    optimum: str | None = None
    definition: ColumnDefinition = "membership"


_STEMS = (
    _Stem("optimum_iid", "optimum", IID, optimum="optimum_iid"),
    _Stem("kseq_iid", KSeq(), IID, optimum="optimum_iid"),
    _Stem("recursive_rejection_iid", RecursiveRejection(), IID, optimum="optimum_iid"),
    _Stem("naive_tree_iid", NaiveTree(), IID, optimum="optimum_iid"),
    _Stem("naive_iid", Naive(), IID, optimum="optimum_iid"),
    _Stem("list_race_rule_iid", ListRace(), IID, optimum="optimum_iid", definition="rule"),
    _Stem("maximal_iid", Maximal(), IID, only=1, optimum="optimum_iid"),
    _Stem("race_iid", Race(), IID, only=1, optimum="optimum_iid"),
    _Stem("minhash_iid", MinHash(), IID, only=1, optimum="optimum_iid"),
    _Stem("minhash_rule_iid", MinHash(), IID, only=1, optimum="optimum_iid", definition="rule"),
    _Stem("greedy_optimal_greedy", GreedyOptimal(), Greedy, optimum="greedy_optimal_greedy"),
    _Stem("naive_greedy", Naive(), Greedy, optimum="greedy_optimal_greedy"),
    _Stem("spechub_greedy", SpecHub(), Greedy, only=2, optimum="greedy_optimal_greedy"),
    _Stem("naive_top_k", Naive(), TopK, optimum="naive_top_k"),
    _Stem(
        "poisson_representation_lower_without_replacement",
        "Poisson representation bound",
        WithoutReplacement,
        definition="bound",
    ),
    _Stem("optimum_threshold_race", "optimum", ThresholdRace, optimum="optimum_threshold_race"),
    _Stem("race_threshold_race", Race(), ThresholdRace, optimum="optimum_threshold_race"),
    _Stem("lenience_iid", Lenience(), IID, only=1),
    _Stem("typical_acceptance_iid", TypicalAcceptance(), IID, only=1),
    _Stem("fuzzy_iid", Fuzzy(), IID, only=1),
)

DESCRIPTIONS = ("draft_entropy", "target_entropy", "tv", "kl_target_draft", "kl_draft_target")
"""Names of the descriptions of a pair besides acceptances."""


NAMES = (*(stem.name for stem in _STEMS), *DESCRIPTIONS)
"""Possible entries of `columns`: schemes under a law (`TableColumn.stem`) and descriptions."""


def table_columns(
    k: int | Iterable[int], *, columns: Iterable[str] | None = None
) -> tuple[TableColumn, ...]:
    """Return the columns that `acceptance_table` fills for the given numbers of drafts.

    Args:
        k: numbers of drafts, each an integer ≥ 1; repetitions are dropped.
        columns: as of `acceptance_table`; None for all.

    Returns:
        The columns, scheme by scheme, k ascending.

    Raises:
        InvalidParameter: on an empty list or a k below 1; on a name that is none.

    Cost: O(1) per column.

    >>> [column.name for column in table_columns([2])][:3]
    ['optimum_iid_k2', 'kseq_iid_k2', 'recursive_rejection_iid_k2']
    """
    return RequestedColumns.of(k, columns).columns


@dataclasses.dataclass(frozen=True)
class RequestedColumns:
    """The requested columns, descriptions and numbers of drafts (ascending) of a table."""

    columns: tuple[TableColumn, ...]
    descriptions: tuple[str, ...]
    ks: tuple[int, ...]

    @classmethod
    def of(cls, k: int | Iterable[int], columns: Iterable[str] | None) -> RequestedColumns:
        """Parse names and numbers of drafts, or raise on unknown names; all names by default."""
        ks = tuple(sorted(set(check_counts(k, name="k"))))
        if columns is not None and (
            not isinstance(columns, Iterable) or getattr(columns, "ndim", 1) != 1
        ):
            raise InvalidParameter(
                f"columns must be names of the table's columns; got {columns!r}. Pass a list of "
                "them."
            )
        asked = NAMES if columns is None else tuple(columns)
        if unknown := [name for name in asked if name not in NAMES]:
            raise InvalidParameter(
                "columns must be names of the table's columns without their k; got "
                f"{unknown[0]!r}. "
                f"Choose from {', '.join(NAMES)}."
            )
        if not asked:
            raise InvalidParameter(
                "columns must name at least one of the table's columns; got none. Leave it out for "
                "all."
            )
        found = _wanted(ks, asked)
        absent = [name for name in asked if name not in found.names]
        if absent and columns is not None:
            raise InvalidParameter(
                f"columns must exist for some of the given k; {absent[0]} has none for k = "
                f"{', '.join(map(str, ks))}. "
                "Leave it out, or add the k that it is for: 1, or 2 for spechub_greedy."
            )
        return found

    @functools.cached_property
    def keys(self) -> tuple[tuple[str, int], ...]:
        """The columns by stem and number of drafts."""
        return tuple((column.stem, column.k) for column in self.columns)

    @functools.cached_property
    def names(self) -> frozenset[str]:
        """Stems of the columns, and descriptions."""
        return frozenset((*(stem for stem, _ in self.keys), *self.descriptions))


@functools.lru_cache(maxsize=64)
def _wanted(ks: tuple[int, ...], asked: tuple[str, ...]) -> RequestedColumns:
    return RequestedColumns(
        columns=tuple(column for column in _columns(ks) if column.stem in asked),
        descriptions=tuple(name for name in DESCRIPTIONS if name in asked),
        ks=ks,
    )


@functools.lru_cache(maxsize=64)
def _columns(ks: tuple[int, ...]) -> tuple[TableColumn, ...]:
    return tuple(
        TableColumn(
            name=f"{stem.name}_k{count}",
            scheme=repr(stem.scheme) if isinstance(stem.scheme, Verifier) else stem.scheme,
            label=str(stem.scheme),
            law=stem.law.__name__,
            k=count,
            lossless=stem.scheme.lossless if isinstance(stem.scheme, Verifier) else True,
            optimum=stem.optimum and f"{stem.optimum}_k{count}",
            definition=stem.definition,
        )
        for stem in _STEMS
        for count in ks
        if stem.only in (None, count)
    )


@keyword_only("otm.acceptance_table(draft=p, target=q, k=[1, 2])")
def acceptance_table(
    *,
    draft: object,
    target: object,
    k: int | Iterable[int],
    columns: Iterable[str] | None = None,
    log_draft: Array | None = None,
    log_target: Array | None = None,
    threads: int | None = None,
) -> AcceptanceTable:
    """Return the exact acceptance of every scheme with a batched closed form, for every k, at once.

    Column by column these are the values of `otm.acceptance`, `otm.optimal_acceptance` and the
    bounds; `otm.table.table_columns` lists the columns without computing.

    Args:
        draft, target: probabilities `(..., V)`, NumPy or torch, float32 or float64.
        k: numbers of drafts, each an integer in [1, V]; c of the threshold races' columns.
        columns: what is wanted, and what is paid for: schemes under a law without their k, such as
            "kseq_iid" (`TableColumn.stem`), and names of descriptions. None for all.
        log_draft, log_target: natural logarithms of the two, each of its distribution's shape,
            where a softmax has left them; anything but NaN where the mass is 0. Computed if absent.
            Only the descriptions and the gate of `Fuzzy` read them, and compiled rows not even
            those.
        threads: how many threads share the rows on the host, an integer ≥ 1; None for one per core,
            or as many as torch is set to if the rows are torch's. The values are the same to the
            last bit, whatever their number.

    Returns:
        AcceptanceTable(columns, values `(columns, ...)`, description).

    Raises:
        InvalidDistribution, ShapeMismatch: see `otm.Problem`; if logarithms are NaN or of another
            shape.
        InvalidParameter: on an empty list, a k below 1, or k > V; on a column that there is not; on
            threads below 1.

    Cost: O(V log V + V·max(k)) per row: one sort and some 25 passes per k. Rows are worked on in
        chunks, so extra memory is bounded. On the host, where numba is installed (the extra
        `fast`), rows are worked on by compiled loops over the tokens with mass, outside the
        interpreter's lock: a sort and four reads for all k together, but for the tokens with k p
        above 1/16, for each c of race_threshold_race a merge more, and a dozen arrays of V at most;
        logarithms are taken there, whatever is given. Only the races need the sort: columns without
        them (race_iid, list_race_rule_iid, race_threshold_race and the Poisson bound) take O(V + V
        max(k) of the likely tokens), a quarter of the whole table's time; race_threshold_race alone
        takes half of it. Without entropies, divergences and the gates that look at them (typical
        acceptance, Fuzzy) it is less by the logarithms.
        The loops are loaded once array calls have worked for some seconds, and compiled on a
        machine that has none yet, which takes some ten. A device is waited for once, at
        the gate, and once for each logarithm that is given.
    Accuracy: absolute, about 1e-13 at V = 128,256; a row's values do not depend on the rows beside
        it.
    Reference: the verifiers' own; one sort for all k: docs/theory.md, "The cut formula", "K-SEQ"
        and "Races".

    >>> table = acceptance_table(draft=[0.75, 0.25], target=[0.5, 0.5], k=[1, 2])
    >>> names = "optimum_iid_k2", "kseq_iid_k2", "recursive_rejection_iid_k2"
    >>> tuple(round(float(table[name]), 6) for name in names)
    (0.9375, 0.847597, 0.8125)
    >>> table = acceptance_table(draft=[0.75, 0.25], target=[0.5, 0.5], k=[2], columns=["tv"])
    >>> sorted(table.description)
    ['tv']
    """
    wanted = RequestedColumns.of(k, columns)
    if threads is not None:
        threads = check_count(threads, name="threads")
    given = {"draft": draft, "target": target}
    found = None
    if log_draft is None and log_target is None:
        found = _as_given(given, wanted, threads)
    if found is not None:
        return found
    masses = as_pmfs(given)
    p, q = align_pair(*masses)
    logs = [
        log
        if log is None
        else namespace(p).broadcast_to(_checked_log(log, mass, name), tuple(p.shape))
        for log, mass, name in zip(
            (log_draft, log_target), masses, ("draft", "target"), strict=True
        )
    ]
    for name, log in zip(("draft", "target"), logs, strict=True):
        if log is not None and bool(namespace(p).any(namespace(p).isnan(log))):
            raise InvalidDistribution(
                f"log_{name} must not be NaN; some entries are. Leave it out: it is computed where "
                "it is absent."
            )
    return _table(p, q, logs[0], logs[1], wanted, threads)[0]


def _as_given(
    given: dict[str, object], wanted: RequestedColumns, threads: int | None
) -> AcceptanceTable | None:
    """Return the table of compiled rows, divided by the sums as the rows are read; None where a row
    may be no distribution.

    `as_pmfs` finds out what is wrong with such rows, or whether they lie elsewhere.
    """
    p, q = as_rows(given)
    # `_table` counts the work, of rows that are left to array calls too
    loaded = compiled(_DRIVER, seconds=0.0) is not None
    if not loaded or p.dtype != q.dtype or not (is_on_host(p) and is_on_host(q)):
        return None
    p, q = align_pair(p, q)
    table, sums = _table(p, q, None, None, wanted, threads)
    tolerance = SUM_TOLERANCE_FLOAT32 if p.dtype == namespace(p).float32 else SUM_TOLERANCE_FLOAT64
    return table if sums is not None and np.abs(sums - 1.0).max() <= tolerance else None


def _checked_log(given: object, mass: Array, name: str) -> Array:
    """Return logarithms of the distribution's array kind and shape, or raise `ShapeMismatch`."""
    log = plain_array(given, f"log_{name}")
    if namespace(log) is not namespace(mass):
        raise ShapeMismatch(
            f"log_{name} must be the same kind of array as {name}; they are {type(log).__name__} "
            f"and {type(mass).__name__}. "
            "Convert one of them."
        )
    if tuple(log.shape) != tuple(mass.shape):
        raise ShapeMismatch(
            f"log_{name} must have the shape of {name}, {tuple(mass.shape)}; it has "
            f"{tuple(log.shape)}. "
            f"Leave it out or pass the logarithm of {name}."
        )
    return log


def unchecked_table(
    p: Array,
    q: Array,
    log_draft: Array | None,
    log_target: Array | None,
    wanted: RequestedColumns,
) -> AcceptanceTable:
    """Return the table of distributions that need no check, for example from a softmax.

    Compiled rows need not be divided by their sums. Logarithms are finite, and read by compiled
    rows of float64 too.
    """
    threads = num_threads(p)  # callers that share their work out do so themselves
    return _table(p, q, log_draft, log_target, wanted, threads, read_logs=True)[0]


def _table(
    p: Array,
    q: Array,
    log_draft: Array | None,
    log_target: Array | None,
    wanted: RequestedColumns,
    threads: int | None,
    *,
    read_logs: bool = False,
) -> tuple[AcceptanceTable, NDArray[np.float64] | None]:
    """Return the table and, for compiled rows, the sums `(2, rows)` by which the rows were divided,
    NaN where an entry is negative.
    """
    check_enough_tokens(max(wanted.ks), int(p.shape[-1]))
    xp = namespace(p, q)
    shape, width = tuple(int(n) for n in p.shape[:-1]), int(p.shape[-1])
    given = {
        i: xp.reshape(a, (-1, width))
        for i, a in enumerate((p, q, log_draft, log_target))
        if a is not None
    }
    count = math.prod(shape)
    step = max(1, (_ON_HOST if is_on_host(p) else _ON_DEVICE) // width)
    views = host_views(list(given.values()))
    flat = given if views is None else dict(zip(given, views, strict=True))
    num_values = len(wanted.columns) + len(wanted.descriptions)
    seconds = VALUE_SECONDS * count * width * num_values
    # loaded once, before threads ask for it
    fast = None if views is None else compiled(_DRIVER, seconds=seconds)
    rows = min(step, count)
    reserve((8 * rows if fast is None else 3 * rows + 16) * width)
    if threads is None:
        threads = _num_cores() if isinstance(p, np.ndarray) else num_threads(p)
    pieces = share(
        lambda start: _chunk(
            fast,
            [flat[i][start : start + step, :] if i in flat else None for i in range(4)],
            wanted,
            read_logs,
        ),
        range(0, count, step),
        1 if views is None else threads,
    )
    joined = xp.asarray(namespace(pieces[0]).concat(pieces, axis=-1))
    sums = None if fast is None else to_numpy(joined[-2:, ...])
    columns = wanted.columns
    values = xp.reshape(joined[: len(columns), ...], (len(columns), *shape))
    described = {
        name: xp.reshape(joined[len(columns) + i, ...], shape)
        for i, name in enumerate(wanted.descriptions)
    }
    return AcceptanceTable(columns=columns, values=values, description=described), sums


def _num_cores() -> int:
    """Return the number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS and Windows tell only how many there are
        return os.cpu_count() or 1


def _chunk(
    fast: ModuleType | None,
    parts: Sequence[Array | None],
    wanted: RequestedColumns,
    read_logs: bool,
) -> Array:
    """Return the values of the columns and then the descriptions, `(columns + descriptions, rows)`,
    for compiled rows with the sums of the rows appended.
    """
    xp = namespace(parts[0])
    if fast is not None:
        logs = (
            (parts[2], parts[3])
            if read_logs and parts[2] is not None and parts[3] is not None
            else None
        )
        values, described, sums = fast.chunk_values(
            parts[0], parts[1], wanted.ks, wanted.names, logs
        )
    else:
        p, q = unit_rows(parts[0]), unit_rows(parts[1])
        log_p, log_q = (a if a is None else xp.astype(a, xp.float64, copy=False) for a in parts[2:])
        values, described = arrays.chunk_values(p, q, log_p, log_q, wanted.ks, wanted.names)
        sums = ()
    rows = (
        [clip(xp.stack([values[key] for key in wanted.keys], axis=0), 0.0, 1.0)]
        if wanted.columns
        else []
    )
    rest = [*(described[name] for name in wanted.descriptions), *sums]
    return xp.concat([*rows, xp.stack(rest, axis=0)] if rest else rows, axis=0)
