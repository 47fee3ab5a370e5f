"""The text of a record, parsed once for all forms, and the interface of a form.

Text is read as if somebody hostile had written it: size, nesting and duplicate keys are refused
before a form sees them, and numbers that JSON does not know (engines write NaN where nothing was
drafted) count as missing. Nothing is executed or unpickled.

What a record comes wrapped in is taken off here, below all forms: compression, Parquet, UTF-16,
line ends, colours of a terminal, and JSON around the lines of a log (Docker, journald, Loki). Of a
long log only the lines with a word that some form reads are kept.
"""

from __future__ import annotations

import bz2
import contextlib
import csv
import dataclasses
import functools
import gzip
import importlib
import io
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

from otm._machine.strict_json import json_decoder
from otm.engines.records.record import AcceptanceRecord
from otm.errors import InvalidParameter, TooLarge

MAX_TEXT = 256 * 2**20
"""Largest record read, in characters: detailed records of a long benchmark are large."""

MAX_CELLS = 10_000_000
"""Largest CSV table read, rows times columns."""

_WHOLE = 4 * 2**20  # characters up to which a log is kept whole
_OWN = 2**25  # characters from which a string is mapped by itself (malloc's largest threshold)
_LONGEST_LINE = 2**20  # characters; a longer line of a log holds no record of an engine

MAX_DEPTH = 64
"""Deepest nesting that is searched."""

_WORDS: tuple[str, ...] = ("ccept", "raft", "pec_", "Spec", "pecul", "MTP", "mtp", "eagle", "EAGLE")
_WORDS += ("medusa", "gram", "eval time", "throughput", "n_pred", "cycles", "osition", "_tokens")
_WORDS += ("acc ", "pred=", "latency", "vllm:", "llamacpp:", "sglang:")
"""Every line that a form reads holds one of these words."""

_ESCAPES = re.compile(r"\x1b(?:\][^\x07\x1b]*(?:\x07|\x1b\\)|\[[0-?]*[ -/]*[@-~])")
"""A terminal's escapes."""

_LOST = re.compile(r"\[[0-9]{1,3}(?:;[0-9]{1,3})*m")
"""Colours of which the first character was lost in copying."""

LINE = re.compile(r"^.*$", re.MULTILINE)
_JSON = re.compile(r'\s*(?:[{"]|\[\s*[\[{"])')
"""The beginning of JSON with objects; a line of a log may begin with a time in brackets."""

Read = TypeVar("Read")

_TABLE = re.compile(r"[ \t]*[\w\"-]+(?:,[ \t]*[\w\"-]+)+[ \t]*\r?\n")
"""The head of a CSV table, whose rows are no lines of a log."""

_PACKED: dict[bytes, Callable[[Any], Any]] = {b"\x1f\x8b": gzip.open, b"BZ": bz2.open}


def read_document(path: str | os.PathLike[str], model: str | None = None) -> Document:
    """Return the document in a file of text, in a pipe, or in standard input if path is "-".

    Raises:
        InvalidParameter: if it cannot be read, or is neither UTF-8 nor UTF-16.
        TooLarge: if it is larger than a record may be.
    """
    try:
        return Document(_text_of(Path(path)), model)
    except (TooLarge, InvalidParameter):
        raise
    except (OSError, EOFError, TypeError, ValueError) as error:
        raise InvalidParameter(
            f"path must name a file of UTF-8 text; {path!r:.80} cannot be read ({error})."
        ) from error


def _text_of(path: Path) -> str:
    """Return the text of a file; of a long log, the lines that hold a word of `_WORDS`."""
    with os.fdopen(os.dup(0), "rb") if str(path) == "-" else path.open("rb") as file:
        start = file.peek(4)[:4]
        with _unpacked(file, start) as content:
            wide = content.peek(2)[:2] in (b"\xff\xfe", b"\xfe\xff")
            text = io.TextIOWrapper(content, encoding="utf-16" if wide else "utf-8-sig")
            head = text.read(_WHOLE)
            if len(head) < _WHOLE:
                return head
            if not _JSON.match(head) and not _TABLE.match(head) and "\n" in head:
                return _in_a_row(_kept_lines(text, head))
            rest = text.read(MAX_TEXT + 1 - len(head))
    if len(head) + len(rest) > MAX_TEXT:
        raise TooLarge(
            f"A record may have {MAX_TEXT:,} characters; {path.name} has more than that, and is no "
            "log. Split it."
        )
    return head + rest


def _unpacked(file: Any, start: bytes) -> Any:
    """Return the stream of a file, decompressed if its first bytes say that it is compressed."""
    if start[:2] in _PACKED:
        return _PACKED[start[:2]](file)
    if start == b"PAR1":
        return io.BufferedReader(io.BytesIO(_rows_of_parquet(file.read())))
    if start != b"\x28\xb5\x2f\xfd":
        return file
    for name in ("compression.zstd", "backports.zstd"):  # from Python 3.14, and before
        try:
            return io.BufferedReader(importlib.import_module(name).open(file))
        except ImportError:
            continue
    raise InvalidParameter(
        "Reading a .zst file needs Python 3.14 or the package backports.zstd; neither is here. "
        "Unpack it: zstd -dc FILE | otm plan -"
    )


def _rows_of_parquet(content: bytes) -> bytes:
    """Return a Parquet table as JSON lines."""
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise InvalidParameter(
            "Reading Parquet needs the package pyarrow, which is not here. Write JSON lines or CSV."
        ) from error
    rows = parquet.read_table(io.BytesIO(content)).to_pylist()
    return "\n".join(json.dumps(row, default=str) for row in rows).encode()


def _kept_lines(text: IO[str], head: str) -> Iterator[str]:
    """Yield the lines of a log that a form may read, those of a block together."""
    rest, block = "", head
    while block:
        whole, end, rest = (rest + block).rpartition("\n")
        rest = rest[:_LONGEST_LINE]
        whole = _plain(whole)
        # A substring test a word is faster than one expression for all.
        words = [word for word in _WORDS if word in whole]
        lines = (line for line in whole.split("\n") if any(word in line for word in words))
        found = "".join(line + end for line in lines)
        yield found
        block = text.read(_LONGEST_LINE)
    yield rest


def _in_a_row(pieces: Iterable[str]) -> str:
    """Return pieces put together, up to more than a record may have, without a second copy."""
    text, first = "", []
    for piece in pieces:
        # One wider character would make every one of the text take two bytes, or four.
        first.append(piece.encode("latin-1", "xmlcharrefreplace").decode("latin-1"))
        # A string so large has memory of its own, and grows there; a smaller one would be copied.
        if text or sum(map(len, first)) >= _OWN:
            text += "".join(first)
            first.clear()
        if len(text) > MAX_TEXT:
            break
    text += "".join(first)
    return text


def _plain(text: str) -> str:
    """Return a text without a terminal's escapes."""
    return _LOST.sub("", _ESCAPES.sub("", text))


@dataclasses.dataclass(frozen=True, eq=False)
class Document:
    """The text of a record, and the JSON values in the text.

    Attributes:
        text: the text, without a terminal's escapes and with one kind of line end.
        model: the model of which a page with several is read; None for the only one.
        known: what functions have read in the text, for all models of it.
    """

    text: str
    model: str | None = None
    known: dict[Callable[[Document], Any], Any] = dataclasses.field(default_factory=dict)

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
        text = self.text.replace("\r\n", "\n").replace("\r", "\n")
        object.__setattr__(self, "text", _plain(text))

    def once(self, read: Callable[[Document], Read]) -> Read:
        """Return the result of a function of the document, which is called the first time only."""
        if read not in self.known:
            self.known[read] = read(self)
        found: Read = self.known[read]
        return found

    @functools.cached_property
    def values(self) -> tuple[Any, ...]:
        """The JSON values of the text, or else those that begin in a line.

        Objects and lists only; lines may begin with "data: " or other text, and lines of other
        text are left out. Braces that a paste left out are added.
        """
        whole = self.text.strip() if _JSON.match(self.text) else ""  # a copy, of a log too large
        if whole[:1] == '"' and '":' in whole:
            whole = "{" + whole.rstrip(",") + "}"
        # JSON lines begin as JSON does, and a log may quote braces.
        return _json_values(whole) or tuple(_values_in_lines(whole or self.text))

    @functools.cached_property
    def unwrapped(self) -> str:
        """The lines of a log around which somebody has put JSON: its strings with a word of one."""
        texts = (value for value, _ in self._walk() if isinstance(value, str))
        told = (text for text in texts if any(word in text for word in _WORDS))
        return "".join(text.rstrip("\n") + "\n" for text in told)

    @functools.cached_property
    def columns(self) -> tuple[str, ...]:
        """The names in the first line (of up to 64 Ki characters) as a CSV header, in lower
        case.
        """
        first = self.text[: 2**16].lstrip().partition("\n")[0]
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

    def _walk(self) -> Iterator[tuple[Any, int]]:
        """Yield every JSON object and string with its depth, outer before inner."""
        waiting = [(value, 0) for value in reversed(self.values)]
        while waiting:
            value, depth = waiting.pop()
            if not isinstance(value, list):
                yield value, depth
            elif value and isinstance(value[0], int | float):
                continue  # numbers hold no object, and may be many
            inner = value.values() if isinstance(value, dict) else value
            if depth < MAX_DEPTH and not isinstance(value, str):
                kept = [(one, depth + 1) for one in inner if isinstance(one, dict | list | str)]
                waiting += reversed(kept)

    @functools.cached_property
    def _index(self) -> list[tuple[dict[str, Any], int]]:
        """Every JSON object with its depth, outer before inner."""
        return [(value, depth) for value, depth in self._walk() if isinstance(value, dict)]

    def objects(self, *keys: str) -> Iterator[dict[str, Any]]:
        """Yield every JSON object, at any depth, that has all the keys.

        Objects come in order; the inside of an object that was found is not searched again.
        """
        outside: float = math.inf  # depth of the object that was found last, while inside it
        for value, depth in self._index:
            if depth <= outside:
                outside = depth if all(key in value for key in keys) else math.inf
                if outside == depth:
                    yield value


@dataclasses.dataclass(frozen=True)
class Form:
    """One form in which an engine writes acceptance.

    Attributes:
        name: what it is called.
        marks: what is looked for, as an error says it; what is quoted there is in every text of
            the form, one of them at least.
        recognises: whether a document is of this form.
        read: the record in it.
    """

    name: str
    marks: str
    recognises: Callable[[Document], bool]
    read: Callable[[Document], AcceptanceRecord]

    @functools.cached_property
    def words(self) -> tuple[str, ...]:
        """The quoted words of the marks, up to an ellipsis."""
        return tuple(word.partition("…")[0] for word in re.findall(r'"([^"]+)"', self.marks))

    def is_form_of(self, document: Document) -> bool:
        """True if a document is of this form."""
        marked = not self.words or any(word in document.text for word in self.words)
        return marked and self.recognises(document)


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
    """Return the order of positions, which must run from the first one without a gap, each once.

    >>> contiguous([1, 0, 2])
    [0, 1, 2]
    """
    ordered = sorted(positions)
    if not ordered or ordered != list(range(first, first + len(ordered))):
        raise InvalidParameter(
            f"Positions must run from {first} without a gap, each once; got {ordered[:8]}. Fill in "
            "the missing ones, and keep one run."
        )
    return ordered


def _json_values(text: str) -> tuple[Any, ...]:
    """Return the value of a text that is one JSON object or list, as a tuple of one."""
    if text[:1] not in ("{", "["):
        return ()
    try:
        return (_DECODER.decode(text),)
    except json.JSONDecodeError:
        return ()
    except RecursionError as error:
        raise InvalidParameter(
            "A record must be nested less deeply than Python reads JSON. Flatten it."
        ) from error


def _values_in_lines(text: str) -> Iterator[Any]:
    """Yield the JSON objects and lists that begin in a line, and may go on over several."""
    end = 0
    for line in LINE.finditer(text):
        shown = line[0].strip().removeprefix("data:").strip()
        if line.start() < end:
            continue
        found: tuple[Any, ...] = ()
        if shown[-1:] in ("}", "]"):
            found = _json_values(shown) or _json_values(shown[max(0, shown.find('{"')) :])
        if not found and shown in ("{", "[", "[{"):
            with contextlib.suppress(json.JSONDecodeError, RecursionError):
                value, end = _DECODER.raw_decode(text, text.index(shown[0], line.start()))
                found = (value,)
        yield from found


def _missing(name: str) -> float:
    """Return NaN for a number that JSON does not know."""
    # Benchmarks write NaN into fields that do not matter here; a field that does is checked.
    return math.nan


_DECODER = json_decoder(constant=_missing)
