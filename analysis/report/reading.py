"""Read a measured run from disk: the manifest names the columns, the shards are streamed.

A run may come from a stranger. The manifest is JSON and the rest Parquet, files outside the run's
folder are not followed, and sizes are checked before memory is taken.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from otm import Processing
from otm._display.tabular import shortened

from ..errors import AnalysisError
from ..files import PROMPTS, SHARDS
from ..run.identity import check_shards
from ..run.manifest import damaged_manifest, read_manifest, section
from ..run.shards import SAMPLING, shard_batches, shard_files
from ..trace.base import PATH

PROCESSING = dataclasses.asdict(Processing()) | {"top_p": 1.0}
"""Processing of a model's logits by name, with the values that change nothing."""

SETTING_COLUMNS = (*SAMPLING, *PATH)

_MOST_ROW_GROUP_BYTES = 1 << 30
_MOST_COLUMNS = 4_096


@dataclasses.dataclass(frozen=True)
class Column:
    """A measured quantity: one column of the shards, or two with the lower and upper ends.

    Attributes:
        name: the column's name, or the stem of an interval's two columns.
        lower, upper: the columns to read; equal unless the run holds intervals.
        label: what a reader sees.
    """

    name: str
    lower: str
    upper: str
    label: str

    @property
    def is_interval(self) -> bool:
        """True if the run certifies bounds instead of a value."""
        return self.lower != self.upper


@dataclasses.dataclass(frozen=True)
class SchemeColumn(Column):
    """The acceptance of one scheme at one number of drafts.

    Attributes:
        scheme: its identity, class and every parameter; "optimum", or a bound's name.
        law, k: how the drafts are drawn, and how many.
        lossless: whether the output keeps the target's law.
        optimum: name of the column with the optimum of the same law and k, None where there is
            none.
        definition: "membership", "rule" or "bound".
    """

    scheme: str
    law: str
    k: int
    lossless: bool
    optimum: str | None
    definition: str


@dataclasses.dataclass(frozen=True)
class StatisticColumn(Column):
    """A description of the two distributions at a position, in `unit`."""

    unit: str


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """The manifest and the finished shards of a run.

    Attributes:
        folder: where it lies.
        manifest: the whole manifest, as read.
        schemes, statistics: the measured columns.
        setting_columns: which columns tell the sampling settings apart.
        shards: finished shard files in order.
        num_rows: rows in all of them.
    """

    folder: Path
    manifest: dict[str, Any]
    schemes: tuple[SchemeColumn, ...]
    statistics: tuple[StatisticColumn, ...]
    setting_columns: tuple[str, ...]
    shards: tuple[Path, ...]
    num_rows: int

    def section(self, name: str) -> dict[str, Any]:
        """Return an object of the manifest, empty if missing or of another type."""
        return section(self.manifest, name)

    @property
    def is_interval(self) -> bool:
        """True if the run certifies bounds of acceptance instead of values."""
        return any(column.is_interval for column in self.schemes)

    @property
    def trace(self) -> dict[str, Any] | None:
        """The metadata of a recorded trace, None where models were measured."""
        found = self.section("provenance").get("trace")
        return found if isinstance(found, dict) else None

    @property
    def num_shards_planned(self) -> int:
        """Number of shards of the complete run, else of the finished shards."""
        planned = self.section("plan").get("num_shards")
        return planned if isinstance(planned, int) else len(self.shards)

    @property
    def processing(self) -> dict[str, Any]:
        """Processing of the logits besides the setting columns, by name."""
        names = (*PROCESSING, *(f"draft_{name}" for name in PROCESSING))
        return {name: value for name, value in self.section("settings").items() if name in names}

    def setting_of(
        self, said: Mapping[str, Any], settings: Sequence[tuple[float, ...]]
    ) -> int | None:
        """Return the index of the setting that equals a record's processing, or None.

        Args:
            said: values by name, `draft_…` where the draft has its own; a missing value is the
                default.
            settings: the run's, each in the order of `setting_columns`.
        """
        wanted = _whole(said)
        measured = [
            _whole(self.processing | dict(zip(self.setting_columns, values, strict=True)))
            for values in settings
        ]
        return measured.index(wanted) if wanted in measured else None

    def statistic(self, name: str) -> StatisticColumn | None:
        """Return the statistic with this column name, None without one."""
        return next((column for column in self.statistics if column.name == name), None)

    def batches(self, columns: list[str]) -> Iterator[dict[str, NDArray[Any]]]:
        """Stream some columns as NumPy arrays, at most `ROWS_AT_ONCE` rows at a time.

        `prompt` and `position` are int64, others float64.
        """
        for path in self.shards:
            with _open(path) as shard:
                for batch in shard_batches(shard, columns):
                    yield {
                        name: _array(values, name, path)
                        for name, values in zip(columns, batch, strict=True)
                    }


def open_run(folder: Path) -> Run:
    """Read a run's manifest and the shards' footers, and check that all belong together.

    Raises:
        AnalysisError: if the folder is no run, its manifest is damaged or of another version, no
            shard is finished, a shard lacks a column that the manifest names or is of another run,
            or a size is beyond what a report needs.
    """
    manifest = read_manifest(folder)
    schemes = tuple(_scheme(entry) for entry in manifest["schemes"])
    statistics = tuple(_statistic(entry) for entry in manifest["statistics"])
    shards = tuple(shard_files(folder).values())
    if not shards:
        raise AnalysisError(
            f"A report needs at least one finished shard; {str(folder / SHARDS)!r} has none. Let "
            "`measure` run until its first shard is written."
        )
    names = [name for column in (*schemes, *statistics) for name in {column.lower, column.upper}]
    if len(set(names)) != len(names) or not 1 <= len(names) <= _MOST_COLUMNS or not schemes:
        raise damaged_manifest(
            f"it names {len(names)} columns, {len(set(names))} of them different, and "
            f"{len(schemes)} schemes"
        )
    num_rows, fields = _check_footers(shards, {"prompt", "position", "temperature", *names})
    check_shards(folder, manifest)
    settings = tuple(name for name in SETTING_COLUMNS if name in fields)
    return Run(folder, manifest, schemes, statistics, settings, shards, num_rows)


def read_prompts(run: Run, wanted: list[int]) -> dict[int, tuple[str, str]]:
    """Return the names and excerpts of a few prompts; empty where the run carries none."""
    path = run.folder / PROMPTS
    if not path.is_file() or not path.resolve().is_relative_to(run.folder.resolve()):
        return {}
    found: dict[int, tuple[str, str]] = {}
    with _open(path) as table:
        if not {"prompt", "name", "text"} <= set(table.schema_arrow.names):
            return {}
        for batch in table.iter_batches(batch_size=1_024, columns=["prompt", "name", "text"]):
            for row in batch.to_pylist():
                if row["prompt"] in wanted:
                    found[row["prompt"]] = (str(row["name"] or ""), str(row["text"] or "")[:200])
    return found


def _scheme(entry: dict[str, Any]) -> SchemeColumn:
    k, optimum = entry.get("k"), entry.get("optimum_column")
    if (
        isinstance(k, bool)
        or not isinstance(k, int)
        or k < 1
        or not isinstance(optimum, str | None)
    ):
        raise damaged_manifest(
            f"the scheme {shortened(repr(entry), 120)} has no number of drafts k ≥ 1, or an "
            "optimum_column that is no name"
        )
    name, lower, upper = _column_names(entry)
    return SchemeColumn(
        name,
        lower,
        upper,
        scheme=_text(entry, "scheme"),
        label=_text(entry, "label"),
        law=_text(entry, "law"),
        k=k,
        lossless=entry.get("lossless") is True,
        optimum=optimum,
        definition=_text(entry, "definition"),
    )


def _statistic(entry: dict[str, Any]) -> StatisticColumn:
    unit = entry.get("unit")
    name, lower, upper = _column_names(entry)
    return StatisticColumn(
        name, lower, upper, label=_text(entry, "name"), unit=unit if isinstance(unit, str) else ""
    )


def _column_names(entry: dict[str, Any]) -> tuple[str, str, str]:
    name = _text(entry, "column")
    if "lower_column" in entry or "upper_column" in entry:
        return name, _text(entry, "lower_column"), _text(entry, "upper_column")
    return name, name, name


def _text(entry: dict[str, Any], key: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value:
        raise damaged_manifest(f"the entry {shortened(repr(entry), 120)} has no {key!r}")
    return value


def _check_footers(shards: tuple[Path, ...], needed: set[str]) -> tuple[int, set[str]]:
    """Return the number of rows and the columns common to all shards, from the footers alone."""
    rows, common = 0, None
    # Footers alone: a damaged or foreign shard is found before anything is averaged.
    for path in shards:
        with _open(path) as shard:
            names = set(shard.schema_arrow.names)
            footer = shard.metadata
            sizes = [footer.row_group(i).total_byte_size for i in range(footer.num_row_groups)]
        if missing := sorted(needed - names):
            raise AnalysisError(
                f"Every shard must have the columns that the manifest names; {path.name} lacks "
                f"{missing[0]!r}. Do not mix shards "
                "of different runs."
            )
        if max(sizes, default=0) > _MOST_ROW_GROUP_BYTES:
            raise AnalysisError(
                f"A row group of a shard must stay below {_MOST_ROW_GROUP_BYTES >> 20} MiB; "
                f"{path.name} has one of "
                f"{max(sizes) >> 20} MiB. Write smaller row groups."
            )
        rows += footer.num_rows
        common = names if common is None else common & names
    if rows == 0:
        raise AnalysisError(
            "A report needs measured positions; the shards have no rows. Measure some text."
        )
    return rows, common or set()


@contextlib.contextmanager
def _open(path: Path) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file; errors of opening and of reading become an `AnalysisError`."""
    try:
        with pq.ParquetFile(path, pre_buffer=False) as file:
            yield file
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise AnalysisError(
            f"{path.name} must be an intact Parquet file; it could not be read: {error}. Measure "
            "it again."
        ) from error


def _array(column: Any, name: str, path: Path) -> NDArray[Any]:
    kind = pa.int64() if name in ("prompt", "position") else pa.float64()
    try:
        array = np.asarray(column.cast(kind).to_numpy(zero_copy_only=False))
    except (pa.ArrowException, ValueError) as error:
        raise AnalysisError(
            f"Column {name!r} of {path.name} must hold numbers; it holds {column.type}. Measure it "
            "again."
        ) from error
    if kind == pa.int64() and (array.dtype.kind != "i" or (array.size and array.min() < 0)):
        raise AnalysisError(
            f"Column {name!r} of {path.name} must be integers ≥ 0 without gaps. Measure it again."
        )
    return array


def _whole(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return both models' processing in full; missing values of the draft are the target's."""
    target = {
        name: said.get(name) if said.get(name) is not None else value
        for name, value in PROCESSING.items()
    }
    own = {name: said.get(f"draft_{name}", value) for name, value in target.items()}
    draft = {name: value if value is not None else PROCESSING[name] for name, value in own.items()}
    return target | {f"draft_{name}": value for name, value in draft.items()}
