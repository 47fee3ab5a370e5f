"""The text of a record, parsed once for all forms, and the interface of a form.

Text is read as if somebody hostile had written it: size, nesting and duplicate keys are refused
before a form sees them, and numbers that JSON does not know (engines write NaN where nothing was
drafted) count as missing. Nothing is executed or unpickled.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from otm._machine.strict_json import plain_json
from otm.engines.records.record import AcceptanceRecord
from otm.errors import InvalidParameter, TooLarge

MAX_TEXT = 256 * 2**20
"""Largest record read, in characters: detailed records of a long benchmark are large."""

MAX_CELLS = 10_000_000
"""Largest CSV table read, rows times columns."""

_MOST_STREAMED = 64 * 2**20  # bytes of a pipe or a device, which may have no end

MAX_DEPTH = 64
"""Deepest nesting that is searched."""


def read_document(path: str | os.PathLike[str]) -> Document:
    """Return the document in a file of UTF-8 text, in a pipe, or in standard input if path is "-".

    Raises:
        InvalidParameter: if it cannot be read, or is no UTF-8.
        TooLarge: if it is larger than a record may be.
    """
    try:
        return Document(_text_of(Path(path)))
    except (OSError, TypeError, ValueError) as error:
        if isinstance(error, TooLarge | InvalidParameter):
            raise
        raise InvalidParameter(
            f"path must name a file of UTF-8 text; {path!r:.80} cannot be read ({error})."
        ) from error


def _text_of(path: Path) -> str:
    piped = str(path) == "-"
    regular = path.is_file() and not piped
    most = 4 * MAX_TEXT if regular else _MOST_STREAMED
    with os.fdopen(os.dup(0), "rb") if piped else path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size if regular else 0
        content = b"" if size > most else file.read(most + 1)
    if max(size, len(content)) > most:
        raise TooLarge(
            f"A record may have {MAX_TEXT:,} characters; {path.name} has more than {most:,} bytes. "
            "Split it."
        )
    # Lines end alike, whoever wrote them.
    return io.StringIO(content.decode("utf-8-sig"), newline=None).read()


@dataclasses.dataclass(frozen=True, eq=False)
class Document:
    """The text of a record, and the JSON values in the text."""

    text: str

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise InvalidParameter(
                f"Pass the text itself; got {type(self.text).__name__}. Decode it as UTF-8."
            )
        if len(self.text) > MAX_TEXT:
            raise TooLarge(
                f"A record may have {MAX_TEXT:,} characters; this one has {len(self.text):,}. "
                "Split it."
            )

    @functools.cached_property
    def values(self) -> tuple[Any, ...]:
        """The JSON values of the text, or else of each line.

        Objects and lists only; lines may begin with "data: ", and lines of other text are left out.
        """
        stripped = self.text.strip()
        # JSON lines begin as JSON does, and a log may quote braces.
        whole = _json_values([stripped])
        return whole or _json_values(
            [line.strip().removeprefix("data:").strip() for line in stripped.splitlines()]
        )

    @functools.cached_property
    def columns(self) -> tuple[str, ...]:
        """The names in the first line (of up to 64 Ki characters) as a CSV header, in lower
        case.
        """
        first = self.text.lstrip()[: 2**16].partition("\n")[0]
        return tuple(name.strip().strip('"').strip().lower() for name in first.split(","))

    @functools.cached_property
    def rows(self) -> tuple[dict[str, str], ...]:
        """The rows of a CSV table by the header's names in lower case; "" where a row is short.

        Raises:
            InvalidParameter: if the text is no CSV.
            TooLarge: beyond ten million cells.
        """
        try:
            text = self.text.lstrip()
            table = csv.DictReader(io.StringIO(text, newline=""), restval="", strict=True)
            table.fieldnames = [name.strip().lower() for name in table.fieldnames or ()]
            # Every row becomes a cell for each column, however short it is.
            num_cells = len(table.fieldnames) * (text.count("\n") + text.count("\r"))
            if num_cells > MAX_CELLS:
                raise TooLarge(
                    f"A table may have {MAX_CELLS:,} cells; this one has up to {num_cells:,}. Keep "
                    "the columns that matter."
                )
            return tuple(table)
        except csv.Error as error:
            raise InvalidParameter(
                f"The text must be CSV; it does not parse ({error}). Check quotes and separators."
            ) from error

    @functools.cached_property
    def _index(self) -> tuple[tuple[dict[str, Any], int], ...]:
        """Every JSON object, outer before inner, each with the index of the first object
        outside.
        """
        found: list[dict[str, Any]] = []
        ends: list[int] = []

        def visit(value: Any, depth: int) -> None:
            if isinstance(value, dict):
                place = len(found)
                found.append(value)
                ends.append(0)
                inner = list(value.values())
            elif isinstance(value, list) and value and not isinstance(value[0], int | float | str):
                place, inner = -1, value  # a list of numbers holds no object, and may be long
            else:
                return
            if depth < MAX_DEPTH:
                for one in inner:
                    if isinstance(one, dict | list):
                        visit(one, depth + 1)
            if place >= 0:
                ends[place] = len(found)

        for value in self.values:
            visit(value, 0)
        return tuple(zip(found, ends, strict=True))

    def objects(self, *keys: str) -> Iterator[dict[str, Any]]:
        """Yield every JSON object, at any depth, that has all the keys.

        Objects come in order; the inside of an object that was found is not searched again.
        """
        i = 0
        while i < len(self._index):
            value, end = self._index[i]
            if all(key in value for key in keys):
                yield value
                i = end
            else:
                i += 1


@dataclasses.dataclass(frozen=True)
class Form:
    """One form in which an engine writes acceptance.

    Attributes:
        name: what it is called.
        marks: what is looked for, as an error says it.
        recognises: whether a document is of this form.
        read: the record in it.
    """

    name: str
    marks: str
    recognises: Callable[[Document], bool]
    read: Callable[[Document], AcceptanceRecord]


def count(value: object, name: str) -> int:
    """Return a whole number ≥ 0, also if written as 10.0.

    >>> count(10.0, "num_drafts")
    10
    """
    number_ = number(value, name)
    if number_ != int(number_) or number_ > 2**53:
        raise InvalidParameter(
            f"{name} must be a whole number; got {value!r:.40}. Check the export."
        )
    return int(number_)


def number(value: object, name: str) -> float:
    """Return a finite number ≥ 0.

    >>> number("0.5", "rate")
    0.5
    """
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError("no number")
        found = float(value)
    except (ValueError, OverflowError) as error:
        raise InvalidParameter(
            f"{name} must be a number; got {value!r:.40}. Check the export."
        ) from error
    if not math.isfinite(found) or found < 0:
        raise InvalidParameter(
            f"{name} must be finite and at least 0; got {found}. Check the export."
        )
    return found


def integers(value: object, name: str) -> list[int]:
    """Return a JSON list of integers.

    >>> integers([1, 2], "per_step_accepted")
    [1, 2]
    """
    if not isinstance(value, list) or not all(
        type(one) is int and 0 <= one <= 2**53 for one in value
    ):
        raise InvalidParameter(
            f"{name} must be a list of integers ≥ 0; got {value!r:.60}. Check the export."
        )
    return value


def contiguous(positions: Iterable[int], *, first: int = 0) -> list[int]:
    """Return the order of positions, which must run from the first one without a gap.

    >>> contiguous([1, 0, 2])
    [0, 1, 2]
    """
    ordered = sorted(positions)
    if not ordered or ordered != list(range(first, first + len(ordered))):
        raise InvalidParameter(
            f"Positions must run from {first} without a gap; got {ordered[:8]}. Fill in the "
            "missing ones."
        )
    return ordered


def _json_values(texts: Iterable[str]) -> tuple[Any, ...]:
    """Return the values of the texts that are JSON objects or lists."""
    found = []
    for text in texts:
        if text[:1] in ("{", "["):
            try:
                found.append(plain_json(text, constant=_missing))
            except json.JSONDecodeError:
                continue
            except RecursionError as error:
                raise InvalidParameter(
                    "A record must be nested less deeply than Python reads JSON. Flatten it."
                ) from error
    return tuple(found)


def _missing(name: str) -> float:
    """Return NaN for a number that JSON does not know."""
    # Benchmarks write NaN into fields that do not matter here; a field that does is checked.
    return math.nan
