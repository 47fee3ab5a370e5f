"""Prompts from text, JSON lines, Parquet or a data set, read one at a time.

A source is a re-iterable description of where prompts are; nothing holds more than one line or one
batch of a Parquet file in memory. Files come from strangers: they are UTF-8 or refused, and sizes
are checked before memory is taken.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from otm._machine.strict_json import plain_json

from ..errors import AnalysisError
from ..files import is_file, read_lines, shortened

MAX_LINE = 1 << 24
"""Longest line and longest prompt, in bytes."""

MAX_ROW_GROUP = 1 << 31
"""Largest uncompressed row group of a Parquet file, in bytes."""

_PARQUET_BATCH = 256
_SAFE_BUILDERS = ("parquet", "json", "text", "csv", "arrow")


@dataclasses.dataclass(frozen=True)
class Prompt:
    """A prompt with number, origin and text."""

    index: int
    name: str
    text: str


@dataclasses.dataclass(frozen=True)
class PromptSource:
    """A source of prompts that can be read repeatedly.

    Attributes:
        name: for readers of the results.
        texts: yields (name, text) of every non-blank prompt in order, from the first one every
            time.
    """

    name: str
    texts: Callable[[], Iterator[tuple[str, str]]]


def first_of(source: PromptSource, limit: int | None) -> PromptSource:
    """Return a source of the first prompts of another, of all for None."""
    return dataclasses.replace(source, texts=lambda: itertools.islice(source.texts(), limit))


def open_prompts(path: Path, *, field: str = "text") -> PromptSource:
    """Return the source of prompts in a file, by the file's suffix.

    JSON lines for .jsonl and .ndjson, Parquet for .parquet, text for anything else.
    """
    _existing(path)
    if path.suffix in (".jsonl", ".ndjson"):
        texts = functools.partial(_of_json_lines, path, field)
    elif path.suffix == ".parquet":
        texts = functools.partial(_of_parquet, path, field)
    else:
        texts = functools.partial(_of_text, path)
    return PromptSource(path.name, texts)


def data_set(path: str, *, split: str = "train", field: str = "text") -> PromptSource:
    """Return a data set of the `datasets` library: a hub name, or a folder of data files.

    The files are text, JSON, CSV, Parquet or Arrow. The source is named after the data set (of a
    folder the last part) and the split.
    """
    name = f"{Path(path).name}[{split}]"

    def texts() -> Iterator[tuple[str, str]]:
        for row, record in enumerate(_open_data_set(path, split)):
            yield from _field(record, field, f"{name}:{row}")

    return PromptSource(name, texts)


def _of_text(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the lines of UTF-8 text."""
    for number, line in _lines(path):
        yield f"{path.name}:{number}", line


def _of_json_lines(path: Path, field: str) -> Iterator[tuple[str, str]]:
    """Yield the string in a field of the JSON object on each line."""
    for number, line in _lines(path):
        try:
            record = plain_json(line)
        except (ValueError, RecursionError) as error:
            raise AnalysisError(
                f"Each line of {path} must be a JSON object; line {number} is not: "
                f"{error!s:.200}. Correct it."
            ) from error
        yield from _field(record, field, f"{path.name}:{number}")


def _of_parquet(path: Path, field: str) -> Iterator[tuple[str, str]]:
    """Yield a column of strings, a batch of rows in memory at a time."""
    import pyarrow
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(_existing(path)) as file:
            if field not in file.schema_arrow.names:
                raise AnalysisError(
                    f"{path} needs a column {field!r}; it has "
                    f"{', '.join(file.schema_arrow.names)}. Pass --field."
                )
            sizes = (file.metadata.row_group(i).total_byte_size for i in range(file.num_row_groups))
            if (largest := max(sizes, default=0)) > MAX_ROW_GROUP:
                raise AnalysisError(
                    f"Row groups of {path} must be at most {MAX_ROW_GROUP:,} bytes "
                    f"uncompressed; one has {largest:,}. "
                    "Write it again with smaller row groups."
                )
            values = (
                v
                for b in file.iter_batches(_PARQUET_BATCH, columns=[field])
                for v in b.column(0).to_pylist()
            )
            for row, value in enumerate(values):
                yield from _field({field: value}, field, f"{path.name}:{row}")
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise AnalysisError(
            f"{path} must be a readable Parquet file; it is not: {error}. Check the file."
        ) from error


def _open_data_set(path: str, split: str) -> Any:
    """Return the records of a split, one at a time."""
    try:
        import datasets
    except ImportError as error:
        raise AnalysisError(
            "Reading a data set needs the datasets library, which is not installed. Install "
            "it: pip install datasets."
        ) from error
    datasets.disable_progress_bars()
    try:
        if any((Path(path) / name).is_file() for name in ("state.json", "dataset_dict.json")):
            stored = datasets.load_from_disk(path)
            return stored[split] if isinstance(stored, datasets.DatasetDict) else stored
        builder = datasets.load_dataset_builder(path)
        # Other builders may run code or unpickle what they read.
        if (kind := type(builder.config).__module__.rsplit(".", 1)[-1]) not in _SAFE_BUILDERS:
            raise AnalysisError(
                f"A data set must consist of {', '.join(_SAFE_BUILDERS)} files; {path!r} "
                f"is read by {kind!r}. Convert it."
            )
        return builder.as_streaming_dataset(split=split)
    except AnalysisError:
        raise
    except Exception as error:  # the library raises whatever its readers do
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise AnalysisError(
            f"The data set must be a hub name or a folder with the split {split!r}; "
            f"{path!r} could not be opened: "
            f"{reason}. Check the name, the split and the network."
        ) from error


def prompts(source: PromptSource) -> Iterator[Prompt]:
    """Number the prompts of a source."""
    for index, (name, text) in enumerate(source.texts()):
        yield Prompt(index=index, name=name, text=text)


def encoded_prompts(
    path: Path, encode: Callable[[str], list[int]], *, field: str, limit: int | None, most: int
) -> list[list[int]]:
    """Return the last tokens of each prompt of a file.

    Args:
        path, field: where prompts are.
        encode: of the models' tokenizer.
        limit: prompts that are used; all if None.
        most: tokens that are kept.

    Raises:
        AnalysisError: if the file has no prompt.
    """
    found = itertools.islice(prompts(open_prompts(path, field=field)), limit)
    if not (tokens := [encode(prompt.text)[-most:] for prompt in found]):
        raise AnalysisError("At least one prompt is needed; the file has none. Give one per line.")
    return tokens


def in_shards(source: PromptSource, size: int) -> Iterator[tuple[Prompt, ...]]:
    """Cut the prompts into shards of `size`, the last one shorter."""
    stream = prompts(source)
    while shard := tuple(itertools.islice(stream, size)):
        yield shard


class Digest:
    """SHA-256 of a sequence of texts, the same for the same texts in whatever kind of file."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.count = 0

    def update(self, prompt: Prompt) -> None:
        """Add one prompt."""
        encoded = prompt.text.encode("utf-8", "surrogatepass")
        self._hash.update(len(encoded).to_bytes(8, "big") + encoded)
        self.count += 1

    @property
    def hexadecimal(self) -> str:
        """The digest so far."""
        return self._hash.hexdigest()


def _existing(path: Path) -> Path:
    if not is_file(path):
        raise AnalysisError(
            f"The prompts must be an existing file; {shortened(path)} is none. Check the path, or "
            "pass --dataset for a folder."
        )
    return path


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line that is not blank."""
    offset = 0
    for number, line in read_lines(_existing(path), MAX_LINE):
        try:
            # A line break inside a JSON string is escaped, so lines are what the bytes say.
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise AnalysisError(
                f"Prompts must be UTF-8; line {number} of {path} is not (byte "
                f"{offset + error.start}). Convert the file, "
                "for example with iconv -t UTF-8."
            ) from error
        if text.strip():
            yield number, text.rstrip("\r\n")
        offset += len(line)


def _field(record: Any, field: str, name: str) -> Iterator[tuple[str, str]]:
    value = record.get(field) if isinstance(record, dict) else None
    if isinstance(record, dict) and field in record and not isinstance(value, str):
        raise AnalysisError(f"{field!r} of {name} is {_kind(value)}, not a string. Correct it.")
    if not isinstance(value, str):
        found = f"fields {sorted(record)}" if isinstance(record, dict) else type(record).__name__
        raise AnalysisError(
            f"A prompt must be a string in {field!r}; {name} has {found}. Pass --field, or correct "
            "it."
        )
    if len(value) > MAX_LINE:
        raise AnalysisError(
            f"Prompts must have at most {MAX_LINE:,} characters; {name} has {len(value):,}. Cut it."
        )
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise AnalysisError(
            f"A prompt must be Unicode text; {name} holds half a surrogate pair at character "
            f"{error.start}. Correct it."
        ) from error
    if value.strip():
        yield name, value


def _kind(value: object) -> str:
    """Return the JSON name of a value's type."""
    kinds = {
        type(None): "null",
        bool: "a Boolean",
        int: "a number",
        float: "a number",
        list: "a list",
        dict: "an object",
    }
    return kinds.get(type(value), f"a {type(value).__name__}")
