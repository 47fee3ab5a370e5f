"""The results file of a decode run, which survives being killed.

It is JSON lines: a header that says what determines a result, then one record per (decoder, prompt,
seed). A record is appended and flushed to the disk when its text is complete, so a killed run loses
the open text only; the next one cuts a torn last line off and goes on. A file can be extended by
prompts, seeds and decoders.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from otm._machine.strict_json import plain_json

from ..errors import AnalysisError
from ..files import is_file, read_lines, shortened
from ..provenance import differences

FORMAT = "otm-decode"
VERSION = 1
_MAX_LINE = 1 << 24
_PROMPT = re.compile("[0-9a-f]{16}")  # as `prompt_name` gives it
_LISTS = ("tokens", "lengths", "accepted", "vertices")
_FIELDS = {"decoder", "prompt", "seed", *_LISTS, "drafted", "ended", "seconds"}


@dataclasses.dataclass(frozen=True)
class Task:
    """The key of one record: the decoder, the prompt (by `prompt_name`) and the seed."""

    decoder: str
    prompt: str
    seed: int


@dataclasses.dataclass(frozen=True)
class TextRecord:
    """One decoded text.

    Attributes:
        task: what determined it.
        tokens: the decoded tokens.
        lengths: decoded tokens of each step, that is of each serial call of the target.
        accepted: accepted drafts of each step.
        vertices: the deepest drafted vertex that agreed with the output in each step, 0 where none
            did.
        drafted: number of drafted tokens per step.
        ended: whether the text ended with the end-of-sequence token.
        seconds: wall time, drafting and verification included.
    """

    task: Task
    tokens: tuple[int, ...]
    lengths: tuple[int, ...]
    accepted: tuple[int, ...]
    vertices: tuple[int, ...]
    drafted: int
    ended: bool
    seconds: float

    @property
    def num_calls(self) -> int:
        """Serial calls of the target."""
        return len(self.lengths)


class ResultsFile:
    """The results of one setting, open for appending.

    Args:
        path: the file; made if it does not exist.
        settings: what determines the value of a record; must equal those of an existing file.
        provenance: where the run comes from; recorded when the file is made.

    Raises:
        AnalysisError: if the file holds results of other settings, is no results file, or cannot be
            written.
    """

    def __init__(self, path: Path, *, settings: dict[str, Any], provenance: dict[str, Any]) -> None:
        self.path = path
        self.done: set[Task] = set()
        wanted = json.loads(json.dumps(settings))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not is_file(path) and (path.exists() or path.is_symlink()):
                raise AnalysisError(
                    f"Results go to a regular file; {shortened(path)} is none. Choose another name."
                )
            if path.exists() and path.stat().st_size:
                self._resume(wanted)
            else:
                header = {
                    "format": FORMAT,
                    "version": VERSION,
                    "settings": wanted,
                    "provenance": provenance,
                }
                self._write(json.dumps(header))
        except OSError as error:
            raise AnalysisError(
                f"Results must go to a file that can be written; {path}: {error}. Choose another."
            ) from error

    def append(self, record: TextRecord) -> None:
        """Append a record and flush the file to the disk.

        Raises:
            AnalysisError: if the disk is full or the file cannot be written; earlier records stay.
        """
        try:
            fields = dataclasses.asdict(record)
            self._write(json.dumps(fields.pop("task") | fields))
        except OSError as error:
            raise AnalysisError(
                f"A record could not be written to {self.path}: {error}. Earlier records are safe; "
                "make room and run again."
            ) from error
        self.done.add(record.task)

    def _resume(self, wanted: dict[str, Any]) -> None:
        header, records = open_results(self.path)
        found = header["settings"]
        if found != wanted:
            # somebody else's file may say anything at length
            places = [line[:160] for line in differences(found, wanted)[:8]]
            raise AnalysisError(
                f"A file holds results of one setting; {self.path} has, against what is asked for, "
                f"{'; '.join(places)}. "
                "Choose another file."
            )
        self.done = {record.task for record in records}
        lines = read_lines(self.path, _MAX_LINE)
        # what follows the last line break was torn by a kill
        os.truncate(self.path, sum(len(line) for _, line in lines if line.endswith(b"\n")))

    def _write(self, line: str) -> None:
        data = (line + "\n").encode()
        with self.path.open("ab") as file:
            file.write(data)  # one write of one line: a kill leaves at most one torn line, the last
            file.flush()
            os.fsync(file.fileno())


def open_results(path: Path) -> tuple[dict[str, Any], Iterator[TextRecord]]:
    """Return the header of a results file and an iterator over the records.

    A torn last line is left out.

    Raises:
        AnalysisError: if the file is missing or begins otherwise; while reading, at the first line
            that is no record, or the record of a text that was there before.
    """
    if not is_file(path):
        raise AnalysisError(f"{shortened(path)!r} is no results file of `decode`. Check its name.")
    lines = _lines(path)
    header = next(lines, (1, None))[1]
    if (
        not isinstance(header, dict)
        or header.get("format") != FORMAT
        or header.get("version") != VERSION
    ):
        raise _bad_line(path, 1, f"it is no header of format {FORMAT}, version {VERSION}")
    if not isinstance(header.get("settings"), dict):
        raise _bad_line(path, 1, "it names no settings")
    return header, _records(path, lines)


def _records(path: Path, lines: Iterator[tuple[int, Any]]) -> Iterator[TextRecord]:
    seen: set[Task] = set()
    for number, row in lines:
        record = _record(path, number, row)
        if record.task in seen:
            raise _bad_line(path, number, "the same text is there twice")
        seen.add(record.task)
        yield record


def _record(path: Path, number: int, row: Any) -> TextRecord:
    """Return the record of a line, or raise `AnalysisError` unless types and sums are right."""
    if not isinstance(row, dict) or set(row) != _FIELDS:
        raise _bad_line(path, number, f"its fields are not {', '.join(sorted(_FIELDS))}")
    counted = [
        row["seed"],
        row["drafted"],
        *(n for name in _LISTS for n in (row[name] if isinstance(row[name], list) else [-1])),
    ]
    if not all(type(n) is int and 0 <= n < 1 << 63 for n in counted):
        raise _bad_line(path, number, "a count is no integer ≥ 0")
    if (
        type(row["seconds"]) not in (int, float)
        or not row["seconds"] >= 0
        or type(row["ended"]) is not bool
    ):
        raise _bad_line(path, number, "seconds is no number ≥ 0, or ended neither true nor false")
    if (
        not isinstance(row["decoder"], str)
        or not isinstance(row["prompt"], str)
        or not _PROMPT.fullmatch(row["prompt"])
    ):
        raise _bad_line(
            path, number, "its decoder is no text, or its prompt no 16 hexadecimal digits"
        )
    lists = {name: tuple(row[name]) for name in _LISTS}
    steps = {len(lists[name]) for name in ("lengths", "accepted", "vertices")}
    # more where the last step was cut
    if len(steps) != 1 or sum(lists["lengths"]) < len(lists["tokens"]):
        raise _bad_line(path, number, "its steps do not add up to its tokens")
    task = Task(row["decoder"], row["prompt"], row["seed"])
    return TextRecord(
        task, **lists, drafted=row["drafted"], ended=row["ended"], seconds=float(row["seconds"])
    )


def _bad_line(path: Path, number: int, why: str) -> AnalysisError:
    """Return the error that names a line of a file which is not a results file."""
    return AnalysisError(
        f"{path.name} is not a results file of `decode`; line {number} does not belong there: "
        f"{why}. "
        "Decode again, or pass another file."
    )


def _lines(path: Path) -> Iterator[tuple[int, Any]]:
    for number, line in read_lines(path, _MAX_LINE):
        if not line.endswith(b"\n"):
            return  # torn by a kill
        try:
            yield number, plain_json(line)
        except (ValueError, RecursionError) as error:
            raise _bad_line(path, number, f"{error!s:.200}") from error


def prompt_name(tokens: Sequence[int]) -> str:
    """Return a prompt's name: the first 16 hexadecimal digits of the tokens' SHA-256.

    >>> prompt_name([1, 2])
    '3a316d6d3226f84c'
    """
    return hashlib.sha256(json.dumps([int(token) for token in tokens]).encode()).hexdigest()[:16]
