"""Files that appear whole or not at all, names of files in messages, and digests of contents.

A file is written under a temporary name in the same folder, flushed to the disk, and renamed; the
folder is flushed after it. A process killed at any point leaves either the finished file or none,
and at most a temporary one, whose name ends in `TEMPORARY`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import itertools
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from otm._machine.strict_json import plain_json
from otm.results.statistics import Estimate

from .errors import AnalysisError

TEMPORARY = ".partial"
_LONGEST = 200
"""Most characters of a path in a message."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_file(path: Path) -> bool:
    """Return True if a path leads to a regular file; a path too long for a file does not."""
    return os.path.isfile(path)  # noqa: PTH113 (pathlib raises at a name that is too long)


def is_folder(path: Path) -> bool:
    """Return True if a path leads to a folder; a path too long for a folder does not."""
    return os.path.isdir(path)  # noqa: PTH112 (as `is_file`)


def same_place(one: Path, other: Path) -> bool:
    """Return True if two paths lead to one place; a path that no file can have leads nowhere."""
    try:
        return os.path.realpath(one) == os.path.realpath(other)
    except ValueError:
        return False


def read_small(path: Path, most: int) -> bytes:
    """Return the bytes of a regular file with a size of at most `most` bytes.

    Files of the kernel have no size, or no end.

    Raises:
        ValueError: if the file is larger.
        OSError: if it is no regular file, or cannot be read.
    """
    if not is_file(path):
        raise OSError(errno.EINVAL, "it is no regular file", shortened(path))
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise ValueError(f"it has {size:,} bytes and is larger than {most:,}")
        return file.read(size)


def read_json(path: Path, most: int) -> Any:
    """Read a small file of strict JSON; raises as `read_small`, and on other JSON."""
    try:
        return plain_json(read_small(path, most))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def read_lines(path: Path, longest: int) -> Iterator[tuple[int, bytes]]:
    """Yield number and bytes of each line of a regular file, one in memory at a time.

    Raises:
        AnalysisError: if the file cannot be read, or a line has more than `longest` bytes.
    """
    if not has_content(path):  # opening a pipe would wait for its writer
        return
    try:
        with path.open("rb") as file:
            for number in itertools.count(1):
                line = file.readline(longest + 1)
                if len(line) > longest:
                    raise AnalysisError(
                        f"Line {number} of {path.name} is longer than {longest} bytes. Split it."
                    )
                if not line:
                    return
                yield number, line
    except OSError as error:
        raise AnalysisError(
            f"{path.name} must be readable; it is not ({error.strerror}). Check its permissions."
        ) from error


def has_content(path: Path) -> bool:
    """Return True if a path leads to a regular file whose size is not 0.

    Files of the kernel have size 0, and may have no end.
    """
    return is_file(path) and path.stat().st_size > 0


def shortened(path: Path) -> str:
    """Return a path for a message, the middle of a long one left out."""
    text = str(path)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]}…{text[-_LONGEST // 2 :]}"


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file that is there in full or not at all, even if the machine loses power."""
    with open_atomically(path) as file:
        file.write(content)


@contextlib.contextmanager
def open_atomically(path: Path) -> Iterator[BinaryIO]:
    """Open a file that appears at the path when the block ends, and not if the block raises.

    Raises:
        AnalysisError: if the disk is full, the folder is read-only, or the file may not be that
            large; nothing is left behind.
    """
    temporary = path.with_name(path.name + TEMPORARY)
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
            raise AnalysisError(explain_write_error(error, path)) from error
        raise


def write_json(path: Path, record: Mapping[str, Any], *, indent: int | None = 1) -> Path:
    """Write a JSON file atomically, make the folder if missing, and return the path."""
    make_folder(path.parent)
    write_atomically(path, (json.dumps(record, indent=indent, allow_nan=False) + "\n").encode())
    return path


def json_values(value: Any) -> Any:
    """Convert values for JSON, with None for a number that is infinite or NaN.

    An estimate becomes its value and both ends, another dataclass its fields.

    >>> json_values({"speed": Estimate(2.0, 1.5, float("inf")), "ends": (0.5, float("nan"))})
    {'speed': {'value': 2.0, 'low': 1.5, 'high': None}, 'ends': [0.5, None]}
    """
    if isinstance(value, Estimate):
        return {name: json_values(getattr(value, name)) for name in ("value", "low", "high")}
    if dataclasses.is_dataclass(value):
        return {
            one.name: json_values(getattr(value, one.name)) for one in dataclasses.fields(value)
        }
    if isinstance(value, Mapping):
        return {name: json_values(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [json_values(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def make_folder(path: Path) -> Path:
    """Create a folder with all parents, or raise `AnalysisError`."""
    if is_file(path):
        raise AnalysisError(f"--out must be a folder; {path} is a file. Choose another --out.")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except ValueError as error:
        raise AnalysisError(
            f"--out must be a folder's name; got {shortened(path)!r} ({error}). Choose another."
        ) from error
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise AnalysisError(explain_write_error(error, path)) from error
        raise AnalysisError(
            f"--out must be a folder that can be written; {shortened(path)} does not exist "
            f"({error.strerror}). "
            "The folder cannot be made; choose another --out."
        ) from error
    return path


@contextlib.contextmanager
def held(*places: Path, inside: bool = False) -> Iterator[None]:
    """Lock files or folders for this process; the end of the process releases the locks.

    Args:
        places: held by a file whose name ends in `LOCK`, which stays.
        inside: whether that file lies in the place, an existing folder, and not beside it.

    Raises:
        AnalysisError: if another process holds one, or it cannot be held.
    """
    with contextlib.ExitStack() as stack:
        for place in sorted({place.resolve() for place in places}):
            lock = place / LOCK if inside else place.parent / (place.name + LOCK)
            try:
                lock.parent.mkdir(parents=True, exist_ok=True)
                fcntl.flock(stack.enter_context(lock.open("w")), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise AnalysisError(
                    f"One process at a time writes to {place}; another one does now. Wait for it."
                ) from error
            except OSError as error:
                raise AnalysisError(explain_write_error(error, place)) from error
        yield


def _flush_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def explain_write_error(error: OSError, path: Path) -> str:
    """Return the reason why a file could not be written, with a remedy."""
    kept = "What is finished is kept; run the same command again to go on."
    if error.errno in _NO_ROOM:
        return (
            f"Writing {path.name} needs free disk space; {path.parent} has no room "
            f"({error.strerror}). Free some. {kept}"
        )
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return (
            f"The output must be a writable folder; {path} cannot be written ({error.strerror}). "
            "Choose another --out."
        )
    return f"{path} could not be written: {error}. Check the disk. {kept}"


def content_digest(
    about: bytes, names: Iterable[str], batches: Iterable[Mapping[str, NDArray[Any]]]
) -> str:
    """Return the SHA-256 of a file's metadata and columns, read batch by batch.

    >>> import numpy as np
    >>> whole = {"a": np.arange(4), "b": np.ones(4)}
    >>> cuts = (slice(0, 3), slice(3, 4))
    >>> parts = [{name: column[cut] for name, column in whole.items()} for cut in cuts]
    >>> content_digest(b"{}", whole, [whole]) == content_digest(b"{}", whole, parts)
    True
    """
    columns = {name: hashlib.sha256(name.encode()) for name in names}
    for batch in batches:
        for name, column in columns.items():
            column.update(np.ascontiguousarray(batch[name]).tobytes())
    whole = hashlib.sha256(about)
    for column in columns.values():
        whole.update(column.digest())
    return whole.hexdigest()


SHIPPED_PAIR = Path(__file__).resolve().parent / "pair"

MANIFEST = "manifest.json"
SHARDS = "shards"
LOGITS = "logits"
PROMPTS = "prompts.parquet"
TREES = "trees.json"
LOCK = ".lock"
