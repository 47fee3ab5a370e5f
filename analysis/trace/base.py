"""A trace: lists of log-probabilities at positions, in batches, and checks shared by all forms."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm.partial import PartialPair

from ..errors import AnalysisError
from ..files import is_file

FORMAT, SCHEMA, MANIFEST = "otm-trace", 1, "trace.json"
LARGEST_LIST = 1 << 16
PATH = ("path_temperature", "path_top_p", "path_draft_temperature")
"""The setting of a sampled context, which tells contexts of one prompt and length apart."""

SIDES = ("draft", "target")
_MOST_ENTRIES = 1 << 25


@dataclasses.dataclass(frozen=True, eq=False)
class TraceSide:
    """One model's lists at n positions.

    Tokens are int64 `(n, m)` (−1: no entry), log-probabilities `(n, m)`, log tail masses `(n,)`.

    Natural logarithms; a log tail of −∞ says that nothing is left, and padding has log-probability
    −∞.
    """

    tokens: NDArray[np.int64]
    log_probabilities: NDArray[np.floating[Any]]
    log_tail: NDArray[np.floating[Any]]


@dataclasses.dataclass(frozen=True, eq=False)
class TraceBatch:
    """Some positions of a trace: both models' lists, prompt numbers and places, int64 `(rows,)`.

    `path` holds the setting that each context was sampled at, `(rows, 3)` in the order of `PATH`;
    None where all are of one text or path.
    """

    pair: PartialPair
    prompt: NDArray[np.int64]
    position: NDArray[np.int64]
    path: NDArray[np.float64] | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Trace(abc.ABC):
    """An opened trace.

    Attributes:
        num_tokens: V, or None if the writer did not say.
        metadata: further strings of the writer. Untrusted text: escape it before showing it in a
            page.
    """

    num_tokens: int | None
    metadata: Mapping[str, str]

    @property
    @abc.abstractmethod
    def files(self) -> tuple[Path, ...]:
        """The files that the positions are read from, in order."""

    @property
    @abc.abstractmethod
    def num_positions(self) -> int | None:
        """Number of positions, None where only reading everything would tell."""

    @abc.abstractmethod
    def batches(self, *, rows: int = 512, start: int = 0) -> Iterator[TraceBatch]:
        """Yield the positions from `start` on, `rows` at a time, fewer in the last batch only.

        Raises:
            AnalysisError: at the first position that is not a valid description of two
                distributions, naming it; if `rows` of the trace's lists are too much to hold.
        """


def inside(folder: Path, name: object) -> Path:
    """Return the regular file `name` inside the folder, or raise `AnalysisError`.

    A trace never leads elsewhere.
    """
    if not isinstance(name, str) or not name or "\0" in name:
        raise AnalysisError(
            f"{MANIFEST} must name files of its folder; got {name!r:.80}. Write plain names."
        )
    root = folder.resolve()
    try:
        place = (root / name).resolve()
    except (
        OSError,
        RuntimeError,
        ValueError,
    ):  # links in a circle, a name that is too long or no text
        place = root
    if Path(name).is_absolute() or root not in (place, *place.parents):
        raise AnalysisError(
            f"A trace must not lead outside its folder; {name[:80]!r} does. Copy the file there."
        )
    if not is_file(place):
        raise AnalysisError(
            f"{name[:80]!r} must be a regular file of the trace's folder; there is none. Check the "
            "name."
        )
    return place


def check_rounding(value: object, where: str) -> float:
    """Return a rounding bound in [0, 0.1], or raise `AnalysisError`."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool) or not 0.0 <= number <= 0.1:
        raise AnalysisError(
            f"rounding must be a number of nats from 0 to 0.1 ({where}); got {value!r:.40}. State "
            "the true bound."
        )
    return number


def check_reading(rows: int, start: int) -> None:
    """Raise `AnalysisError` unless rows ≥ 1 and start ≥ 0."""
    if rows < 1 or start < 0:
        raise AnalysisError(f"Batches need rows ≥ 1 and start ≥ 0; got {rows} and {start}.")


def check_entries(count: int) -> None:
    """Raise `AnalysisError` if a batch would hold too many list entries."""
    if count > _MOST_ENTRIES:
        raise AnalysisError(
            f"A batch may hold {_MOST_ENTRIES} list entries; this one would hold {count}. Ask for "
            "fewer rows."
        )
