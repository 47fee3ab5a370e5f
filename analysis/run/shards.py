"""Shards on disk: Parquet files that appear whole or not at all and never change afterwards.

A process killed at any point leaves either the finished shard or none, and at most a temporary file, which the next run removes.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ..errors import AnalysisError
from ..files import TEMPORARY, explain
from ..layout import LOCK, LOGITS, SHARDS

_METADATA = b"otm"


def shard_name(index: int) -> str:
    """Return the file name of a shard.

    >>> shard_name(7)
    'shard-00007.parquet'
    """
    return f"shard-{index:05d}.parquet"


def shard_path(run: Path, index: int) -> Path:
    """Return where a shard of a run lies."""
    return run / SHARDS / shard_name(index)


def finished_shards(run: Path) -> set[int]:
    """Return the numbers of the shards that are there."""
    return {int(path.stem.split("-")[1]) for path in (run / SHARDS).glob("shard-*.parquet")}


def column_of_today(name: str) -> str:
    """Return what a column of a shard is called today; earlier versions called one of them otherwise.

    >>> column_of_today("naive_deterministic_k4"), column_of_today("kseq_iid_k4")
    ('naive_top_k_k4', 'kseq_iid_k4')
    """
    return name.replace("naive_deterministic", "naive_top_k")


def encode_shard(columns: dict[str, NDArray[Any]], metadata: dict[str, Any]) -> bytes:
    """Return a Parquet file's bytes: equal columns and metadata give equal bytes."""
    table = pa.table(columns).replace_schema_metadata({_METADATA: json.dumps(metadata, sort_keys=True).encode()})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def read_shard(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return a shard's columns and metadata, or raise `AnalysisError` if the file is damaged."""
    try:
        table = pq.read_table(path)
        metadata = json.loads(table.schema.metadata[_METADATA])
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise AnalysisError(
            f"{path} must be a shard that `measure` wrote; it cannot be read: {error}. Restore or delete it."
        ) from error
    return {column_of_today(name): table[name].to_numpy() for name in table.column_names}, metadata


@contextlib.contextmanager
def exclusive(run: Path) -> Iterator[None]:
    """Hold a run for this process, so that two commands do not measure the same shards; a killed process lets go.

    Temporary files that a killed process left are removed.
    """
    try:
        with (run / LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise AnalysisError(f"One process at a time writes to {run}; another one does now. Wait for it.") from error
            for folder in (run, run / SHARDS, run / LOGITS):
                for left in folder.glob(f"*{TEMPORARY}"):
                    left.unlink(missing_ok=True)
            yield
    except OSError as error:
        raise AnalysisError(explain(error, run)) from error
