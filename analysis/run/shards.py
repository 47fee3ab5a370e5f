"""Shards on disk: Parquet files that appear whole or not at all and never change afterwards.

A file is written under a temporary name in the same folder, flushed to the disk, and renamed; the folder is flushed after it. A
process killed at any point leaves either the finished shard or none, and at most a temporary file, which the next run removes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ..errors import AnalysisError

SHARDS = "shards"
LOGITS = "logits"
PROMPTS = "prompts.parquet"
LOCK = ".lock"
_TEMPORARY = ".partial"
_METADATA = b"otm"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


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
    return {name: table[name].to_numpy() for name in table.column_names}, metadata


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file that is there in full or not at all, even if the machine loses power; errors as `appearing`."""
    with appearing(path) as file:
        file.write(content)


@contextlib.contextmanager
def appearing(path: Path) -> Iterator[BinaryIO]:
    """Open a file that appears under its name, whole, when the block ends, and not at all if the block raises.

    Raises:
        AnalysisError: if the disk is full, the folder is read-only, or the file may not be that large; nothing is left behind.
    """
    temporary = path.with_name(path.name + _TEMPORARY)
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _flush_folder(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise AnalysisError(_explain(error, path)) from error
        raise


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Write a JSON file atomically."""
    write_atomically(path, (json.dumps(record, indent=1, sort_keys=True, allow_nan=False) + "\n").encode())


def make_folder(path: Path) -> Path:
    """Create a folder and its parents, or raise `AnalysisError`."""
    if path.is_file():
        raise AnalysisError(f"--out must be a folder; {path} is a file. Choose another --out.")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise AnalysisError(_explain(error, path)) from error
        raise AnalysisError(
            f"--out must be a folder that can be written; {path} does not exist ({error.strerror}). "
            "The folder cannot be made; choose another --out."
        ) from error
    return path


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
                for left in folder.glob(f"*{_TEMPORARY}"):
                    left.unlink(missing_ok=True)
            yield
    except OSError as error:
        raise AnalysisError(_explain(error, run)) from error


def _flush_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _explain(error: OSError, path: Path) -> str:
    kept = "Shards that are finished are kept; run the same command again to go on."
    if error.errno in _NO_ROOM:
        return f"Writing {path.name} needs free disk space; {path.parent} has no room ({error.strerror}). Free some. {kept}"
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return f"The output must be a writable folder; {path} cannot be written ({error.strerror}). Choose another --out."
    return f"{path} could not be written: {error}. Check the disk. {kept}"
