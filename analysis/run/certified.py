"""Measure one shard of a trace: certified intervals over every completion of the tails that were
not recorded.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import otm
from otm import partial
from otm.table import TableColumn, table_columns

from ..provenance import environment
from ..trace.base import PATH
from .columns import Arrays
from .measure import ShardResult, about_shard
from .settings import Settings
from .shards import encode_shard


@dataclasses.dataclass(frozen=True, eq=False)
class TraceTask:
    """One shard of a trace: a `PartialPair` of some rows, and where they belong."""

    index: int
    settings: Settings
    pair: Any
    prompt: NDArray[np.int64]
    position: NDArray[np.int64]
    path: NDArray[np.float64] | None = None
    run: str = ""  # the run's identity


def measure_trace(task: TraceTask) -> ShardResult:
    """Compute the certified intervals of a trace's rows: lower and upper columns over every
    completion of the tails.
    """
    began = time.monotonic()
    ks = sorted(set(task.settings.k))
    values = {
        "maximal_iid": partial.acceptance(otm.Maximal(), task.pair, k=[1]),
        "optimum_iid": partial.optimal_acceptance(task.pair, k=ks),
        "kseq_iid": partial.acceptance(otm.KSeq(), task.pair, k=ks),
        "recursive_rejection_iid": partial.acceptance(otm.RecursiveRejection(), task.pair, k=ks),
    }
    described = partial.divergences(task.pair)
    columns: Arrays = {
        "prompt": task.prompt.astype(np.int64),
        "position": task.position.astype(np.int32),
        "temperature": np.ones(len(task.prompt)),
        "top_p": np.ones(len(task.prompt)),
    }
    if task.path is not None:
        columns |= {name: task.path[:, i] for i, name in enumerate(PATH)}
    for name, interval in (
        ("tv", described.total_variation),
        ("kl_target_draft", described.kl_target_draft),
        ("kl_draft_target", described.kl_draft_target),
    ):
        columns[f"{name}_lower"], columns[f"{name}_upper"] = interval.lower, interval.upper
    for column in trace_columns(ks):
        place = 0 if column.stem == "maximal_iid" else ks.index(column.k)
        for end in ("lower", "upper"):
            columns[f"{column.name}_{end}"] = np.asarray(
                getattr(values[column.stem], end)[place], dtype=np.float64
            )
    metadata = about_shard(task.index, task.settings, task.run) | {"rows": len(task.prompt)}
    rows = len(task.prompt)
    shard = encode_shard(columns, metadata)
    return ShardResult(task.index, shard, None, rows, rows, environment(), time.monotonic() - began)


def trace_columns(ks: Sequence[int]) -> tuple[TableColumn, ...]:
    """Return the columns that have certified intervals when only the likeliest tokens are known."""
    stems = ("optimum_iid", "kseq_iid", "recursive_rejection_iid", "maximal_iid")
    return tuple(column for column in table_columns(ks) if column.stem in stems)
