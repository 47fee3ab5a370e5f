"""Every scheme with a batched closed form, every number of drafts, from one sort: what a measurement on real logits asks for.

Calling `otm.acceptance` scheme by scheme sorts the same ratios q/p again and again. Here one sort by q/p serves the optimum,
K-SEQ, the races and their certificates for every k, one recursion gives recursive rejection for every k, powers (1 − p)^k are
carried from one k to the next, and one walk over the draft model's most likely tokens gives the greedy laws. The same formulas
are there twice: as array operations of any namespace (`otm.table.arrays`) and as compiled loops for the host
(`otm.table.compiled`), because array calls bound the first on a CPU and a device runs nothing else.

Left out are values that need more than a few passes per k: the laws without replacement (an integral per prefix), races with
several arrivals, list races by membership, `Mentored` and whatever enumerates.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from otm._arrays import Array, clip, host_views, is_on_host, namespace, num_threads, reserve, share, to_numpy, unit_rows
from otm._numba import compiled
from otm.drafts import IID, Greedy, Law, TopK, WithoutReplacement
from otm.drafts.successive_cut import check_enough_tokens
from otm.errors import InvalidDistribution, InvalidParameter, ShapeMismatch
from otm.pmf import SUM_TOLERANCE_FLOAT32, SUM_TOLERANCE_FLOAT64, align_pair, as_pmfs, as_rows, plain_array
from otm.problem import keyword_only
from otm.table import arrays
from otm.verbs import check_ks
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

ColumnDefinition = Literal["membership", "rule", "bound"]


@dataclasses.dataclass(frozen=True)
class TableColumn:
    """One column: a scheme, a draft law and a number of drafts.

    Attributes:
        name: a short key, `{scheme}_{law}_k{k}`.
        scheme: what identifies the scheme, its class and every parameter (`repr` of the verifier); "optimum", or a bound's name.
        label: its display name (`str` of the verifier).
        law, k: the class of the draft law, the number of drafts.
        lossless: whether the output keeps the target's law.
        optimum: the name of the column that holds the optimum of this law and k, None for bounds and lossy schemes.
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


@dataclasses.dataclass(frozen=True, eq=False)
class AcceptanceTable:
    """Acceptances and descriptions of a batch.

    Attributes:
        columns: what the rows of `values` are.
        values: `(len(columns), ...)` in float64, of the input's array kind.
        description: by name `(...)`: draft_entropy, target_entropy, kl_target_draft = D(q‖p), kl_draft_target = D(p‖q), all in
            nats, and tv.
    """

    columns: tuple[TableColumn, ...]
    values: Array
    description: dict[str, Array]

    def __getitem__(self, name: str) -> Array:
        """Return one column `(...)` by name."""
        for i, column in enumerate(self.columns):
            if column.name == name:
                return self.values[i, ...]
        raise InvalidParameter(
            f"A column's name is needed; got {name!r}. Choose one of {', '.join(c.name for c in self.columns[:4])}, …"
        )


# Elements per chunk: on the host a dozen arrays of this size stay in a processor's last cache; a device needs enough work per call
# (a dozen temporaries of 128 MB).
_ON_HOST, _ON_DEVICE = 1 << 18, 1 << 24


@dataclasses.dataclass(frozen=True)
class _Stem:
    """What the columns of one scheme under one law have in common; `only` is the one number of drafts that it is defined for.

    `scheme` is a verifier, or what a column holds besides: an optimum or a bound.
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
    _Stem("lenience_iid", Lenience(), IID, only=1),
    _Stem("typical_acceptance_iid", TypicalAcceptance(), IID, only=1),
    _Stem("fuzzy_iid", Fuzzy(), IID, only=1),
)

DESCRIPTIONS = ("draft_entropy", "target_entropy", "tv", "kl_target_draft", "kl_draft_target")
"""Names of what is said about a pair besides acceptances."""


def table_columns(k: Iterable[int]) -> tuple[TableColumn, ...]:
    """Return the columns that `acceptance_table` fills for these numbers of drafts.

    Args:
        k: numbers of drafts, each an integer ≥ 1; repetitions are dropped.

    Returns:
        The columns, scheme by scheme, k ascending.

    Raises:
        InvalidParameter: on an empty list or a k below 1.

    Cost: O(1) per column.

    >>> [column.name for column in table_columns([2])][:3]
    ['optimum_iid_k2', 'kseq_iid_k2', 'recursive_rejection_iid_k2']
    """
    return _columns(tuple(sorted(set(check_ks(k)))))


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
    *, draft: object, target: object, k: Iterable[int], log_draft: Array | None = None, log_target: Array | None = None
) -> AcceptanceTable:
    """Return the exact acceptance of every scheme that has a batched closed form, for every k, from one sort.

    Column by column these are the values of `otm.acceptance`, `otm.optimal_acceptance` and the bounds;
    `otm.table.table_columns` lists the columns without computing.

    Args:
        draft, target: probabilities `(..., V)`, NumPy or torch, float32 or float64.
        k: numbers of drafts, each an integer in [1, V].
        log_draft, log_target: natural logarithms of the two, each of its distribution's shape, where a softmax has left them;
            anything but NaN where the mass is 0. Computed if absent. Only the descriptions and the gate of `Fuzzy` read them, and
            compiled rows not even those.

    Returns:
        AcceptanceTable(columns, values `(columns, ...)`, description).

    Raises:
        InvalidDistribution, ShapeMismatch: see `otm.Problem`; if logarithms are NaN or of another shape.
        InvalidParameter: on an empty list, a k below 1, or k > V.

    Cost: O(V log V + V·max(k)) per row: one sort and some 25 passes per k. Rows are worked on in chunks, so extra memory is
    bounded. On the host, where numba is installed (the extra `fast`), rows are worked on by compiled loops over the tokens with
    mass, outside the interpreter's lock: a sort and three reads for all k together, but for the tokens with k p above 1/16, and
    three arrays of V at most; logarithms are taken there faster than they would be read. A machine's first call then compiles
    them, some ten seconds. Rows of torch are shared among torch's threads. A device is waited for once, at the gate, and once for
    each logarithm that is given.
    Accuracy: absolute, about 1e-13 at V = 128,256; a row's values do not depend on the rows beside it.
    Reference: the verifiers' own; one sort for all k: docs/theory.md, "The cut formula", "K-SEQ" and "Races".

    >>> table = acceptance_table(draft=[0.75, 0.25], target=[0.5, 0.5], k=[1, 2])
    >>> float(table["optimum_iid_k2"]), round(float(table["kseq_iid_k2"]), 6), float(table["recursive_rejection_iid_k2"])
    (0.9375, 0.847597, 0.8125)
    """
    columns = table_columns(k)
    given = {"draft": draft, "target": target}
    found = None
    if log_draft is None and log_target is None:
        found = _as_given(given, columns)
    if found is not None:
        return found
    masses = as_pmfs(given)
    p, q = align_pair(*masses)
    logs = [
        log if log is None else namespace(p).broadcast_to(_checked_log(log, mass, name), tuple(p.shape))
        for log, mass, name in zip((log_draft, log_target), masses, ("draft", "target"), strict=True)
    ]
    for name, log in zip(("draft", "target"), logs, strict=True):
        if log is not None and bool(namespace(p).any(namespace(p).isnan(log))):
            raise InvalidDistribution(
                f"log_{name} must not be NaN; some entries are. Leave it out: it is computed where it is absent."
            )
    return unchecked_table(p, q, logs[0], logs[1], columns)


def _as_given(given: dict[str, object], columns: tuple[TableColumn, ...]) -> AcceptanceTable | None:
    """Return the table of compiled rows, which are divided by their sums as they are read; None where they may be no distributions.

    What is wrong with them, or whether they lie elsewhere, `as_pmfs` finds out.
    """
    p, q = as_rows(given)
    if compiled("otm.table.compiled") is None or p.dtype != q.dtype or not (is_on_host(p) and is_on_host(q)):
        return None
    p, q = align_pair(p, q)
    table, sums = _table(p, q, None, None, columns)
    tolerance = SUM_TOLERANCE_FLOAT32 if p.dtype == namespace(p).float32 else SUM_TOLERANCE_FLOAT64
    return table if sums is not None and np.abs(sums - 1.0).max() <= tolerance else None


def _checked_log(given: object, mass: Array, name: str) -> Array:
    """Return logarithms of their distribution's kind and shape, or say what is wrong with them."""
    log = plain_array(given, f"log_{name}")
    if namespace(log) is not namespace(mass):
        raise ShapeMismatch(
            f"log_{name} must be the same kind of array as {name}; they are {type(log).__name__} and {type(mass).__name__}. "
            "Convert one of them."
        )
    if tuple(log.shape) != tuple(mass.shape):
        raise ShapeMismatch(
            f"log_{name} must have the shape of {name}, {tuple(mass.shape)}; it has {tuple(log.shape)}. "
            f"Leave it out or pass the logarithm of {name}."
        )
    return log


def unchecked_table(
    p: Array, q: Array, log_draft: Array | None, log_target: Array | None, columns: tuple[TableColumn, ...]
) -> AcceptanceTable:
    """Return the table of distributions that are known to be some, such as what a softmax has just given.

    Compiled rows need not be divided by their sums.
    """
    return _table(p, q, log_draft, log_target, columns)[0]


def _table(
    p: Array, q: Array, log_draft: Array | None, log_target: Array | None, columns: tuple[TableColumn, ...]
) -> tuple[AcceptanceTable, NDArray[np.float64] | None]:
    """Return the table and, of compiled rows, the sums that they were divided by, `(2, rows)`, NaN where an entry is negative."""
    ks = sorted({column.k for column in columns})
    check_enough_tokens(max(ks), int(p.shape[-1]))
    xp = namespace(p, q)
    shape, width = tuple(int(n) for n in p.shape[:-1]), int(p.shape[-1])
    given = {i: xp.reshape(a, (-1, width)) for i, a in enumerate((p, q, log_draft, log_target)) if a is not None}
    count = math.prod(shape)
    step = max(1, (_ON_HOST if is_on_host(p) else _ON_DEVICE) // width)
    views = host_views(list(given.values()))
    flat = given if views is None else dict(zip(given, views, strict=True))
    fast = None if views is None else compiled("otm.table.compiled")  # loaded once, before threads ask for it
    reserve((8 if fast is None else 3) * min(step, count) * width)
    threads = 1 if views is None else num_threads(p)
    pieces = share(
        lambda start: _chunk(fast, [flat[i][start : start + step, :] if i in flat else None for i in range(4)], columns, ks),
        range(0, count, step),
        threads,
    )
    joined = xp.asarray(namespace(pieces[0]).concat(pieces, axis=-1))
    sums = None if fast is None else to_numpy(joined[-2:, ...])
    values = xp.reshape(joined[: len(columns), ...], (len(columns), *shape))
    described = {name: xp.reshape(joined[len(columns) + i, ...], shape) for i, name in enumerate(DESCRIPTIONS)}
    return AcceptanceTable(columns=columns, values=values, description=described), sums


def _chunk(fast: ModuleType | None, parts: Sequence[Array | None], columns: Sequence[TableColumn], ks: Sequence[int]) -> Array:
    """Return the columns' values and then the descriptions, `(columns + 5, rows)`; of compiled rows also their two sums."""
    xp = namespace(parts[0])
    if fast is not None:
        values, described, sums = fast.chunk_values(parts[0], parts[1], ks)
    else:
        p, q = unit_rows(parts[0]), unit_rows(parts[1])
        log_p, log_q = (a if a is None else xp.astype(a, xp.float64, copy=False) for a in parts[2:])
        log_p, log_q = (arrays.logarithm(a) if log is None else log for a, log in ((p, log_p), (q, log_q)))
        values, described = arrays.chunk_values(p, q, log_p, log_q, ks)
        sums = None
    rows = clip(xp.stack([values[column.stem, column.k] for column in columns], axis=0), 0.0, 1.0)
    return xp.concat(
        [rows, xp.stack([described[name] for name in DESCRIPTIONS], axis=0), *([] if sums is None else [sums])], axis=0
    )
