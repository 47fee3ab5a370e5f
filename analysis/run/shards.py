"""Shards on disk: Parquet files that appear whole or not at all and never change afterwards.

A process killed at any point leaves either the finished shard or none, and at most a temporary
file, which the next run removes.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ..errors import AnalysisError
from ..files import (
    LOGITS,
    SHARDS,
    TEMPORARY,
    content_digest,
    explain_write_error,
    has_content,
    held,
)

SAMPLING = ("temperature", "draft_temperature", "top_p", "draft_top_p")
"""Columns of a row's sampling setting."""

_METADATA, _DIGEST = b"otm", b"otm.sha256"
_SHARD = re.compile(r"shard-(\d{5,9})\.parquet")
ROWS_AT_ONCE = 1 << 14


def shard_name(index: int) -> str:
    """Return the file name of a shard.

    >>> shard_name(7)
    'shard-00007.parquet'
    """
    return f"shard-{index:05d}.parquet"


def shard_path(run: Path, index: int) -> Path:
    """Return the path of a shard of a run."""
    return run / SHARDS / shard_name(index)


def logits_path(run: Path, index: int) -> Path:
    """Return the path of the logits of a shard of a run."""
    return (run / LOGITS / shard_name(index)).with_suffix(".safetensors")


def shard_files(run: Path) -> dict[int, Path]:
    """Return the existing shards by number.

    Raises:
        AnalysisError: if a Parquet file beside them has no shard's name, since whoever reads the
            folder would read it too; if one is no regular file, or a link out of the run.
    """
    found = {}
    for path in sorted((run / SHARDS).glob("*.parquet")):
        matched = _SHARD.fullmatch(path.name)
        if matched is None or shard_name(int(matched[1])) != path.name:
            raise AnalysisError(
                f"A run's folder {SHARDS} holds files named like {shard_name(0)}; "
                f"{path.name[:80]!r} is another one. Remove it."
            )
        if not path.is_file():  # opening a pipe would wait for its writer
            raise _damaged(path, "it is no regular file")
        if not path.resolve().is_relative_to(run.resolve()):
            raise AnalysisError(
                f"Shards must lie in the run's folder; {path.name} is a link out of it. Copy the "
                "file instead."
            )
        found[int(matched[1])] = path
    return found


def finished_shards(run: Path) -> set[int]:
    """Return the numbers of the existing shards."""
    return set(shard_files(run))


def encode_shard(columns: dict[str, NDArray[Any]], metadata: dict[str, Any]) -> bytes:
    """Return the bytes of a Parquet file with a digest of the content, equal for equal content."""
    about = json.dumps(metadata, sort_keys=True).encode()
    table = pa.table(columns).replace_schema_metadata(
        {_METADATA: about, _DIGEST: content_digest(about, columns, [columns])}
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def read_shard(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return a shard's columns and metadata, or raise `AnalysisError` if the file is damaged."""
    _, metadata = inspect_shard(path)
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, f"it cannot be read: {error}") from error
    return {name: table[name].to_numpy() for name in table.column_names}, metadata


def shard_batches(shard: pq.ParquetFile, columns: Sequence[str]) -> Iterator[list[pa.Array]]:
    """Yield some columns of an open shard, `ROWS_AT_ONCE` rows at a time."""
    for batch in shard.iter_batches(batch_size=ROWS_AT_ONCE, columns=list(columns)):
        yield [batch.column(name) for name in columns]


def inspect_shard(path: Path) -> tuple[set[str], dict[str, Any]]:
    """Return the column names and the metadata of a shard, metadata empty if missing.

    Raises:
        AnalysisError: if the file cannot be read, or its content does not have its digest.

    Cost: one pass over the file, some rows in memory at a time.
    """
    if not has_content(path):  # opening a pipe would wait for its writer
        raise _damaged(path, "it cannot be read: it is no regular file, or empty")
    try:
        with pq.ParquetFile(path, pre_buffer=False) as shard:
            names, stored = list(shard.schema_arrow.names), shard.schema_arrow.metadata or {}
            about = stored.get(_METADATA, b"{}")
            metadata = json.loads(about)
            if not isinstance(metadata, dict):
                raise _damaged(path, "its metadata are no object")
            batches = (
                {name: batch.column(name).to_numpy(zero_copy_only=False) for name in names}
                for batch in shard.iter_batches(batch_size=ROWS_AT_ONCE)
            )
            if content_digest(about, names, batches).encode() != stored.get(_DIGEST):
                raise _damaged(path, "its content is not what was written")
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise _damaged(path, f"it cannot be read: {error}") from error
    return set(names), metadata


def _damaged(path: Path, why: str) -> AnalysisError:
    return AnalysisError(
        f"{path} must be a shard that `measure` wrote; {why}. Restore or delete it."
    )


@contextlib.contextmanager
def exclusive(run: Path) -> Iterator[None]:
    """Hold a run for this process, so that no two processes measure the same shards.

    A killed process lets go.

    Temporary files that a killed process left are removed.
    """
    try:
        with held(run, inside=True):
            for folder in (run, run / SHARDS, run / LOGITS):
                for left in folder.glob(f"*{TEMPORARY}"):
                    left.unlink(missing_ok=True)
            yield
    except OSError as error:
        raise AnalysisError(explain_write_error(error, run)) from error
