"""What a draft step and a target call cost, by batch size, context length and tokens checked:
measured, and read from a file.

A *cost surface* is measured points and the plane pieces between them; beyond the points it is asked
for explicitly, and says so. Two files are read:

* `{"format": "otm.cost-surface", "version": 1, "unit": "ms", "source": "…", "draft": [[batch,
  context, time], …], "target": [[batch, context, tokens, time], …]}`: `tokens` are those that a
  call computes for each sequence, so 1 without drafts and K + 1 for K drafts; the points fill a
  grid of batch × context (× tokens); unit "ms" or "s";
* the record of the command `latency`: forward passes over batch × length at its one context.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm.engines.records.document import Document, number, read_text
from otm.errors import InvalidParameter, TooLarge
from otm.pmf import check_real

FORMAT = "otm.cost-surface"
VERSION = 1
ADVICE = "otm.advice"
_UNITS = {"ms": 1e-3, "s": 1.0}
Floats = NDArray[np.float64]
Axis = tuple[tuple[int, ...], float]
"""Measured points, and where between them to interpolate."""


@dataclasses.dataclass(frozen=True, eq=False)
class CostSurface:
    """Seconds of a draft step and of a target call, measured on a grid.

    Attributes:
        batches, contexts, tokens: the grid, ascending; tokens per sequence of a target call, 1
            among them.
        draft: `(batches, contexts)`, seconds of one draft step for the whole batch.
        target: `(batches, contexts, tokens)`, seconds of one target call.
        source: where the numbers come from.
        assumptions: what is not measured and taken to be so.
    """

    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    tokens: tuple[int, ...]
    draft: Floats
    target: Floats
    source: str
    assumptions: tuple[str, ...] = ()

    @classmethod
    def of_points(
        cls,
        draft: Mapping[tuple[int, int], float],
        target: Mapping[tuple[int, int, int], float],
        *,
        source: str,
    ) -> CostSurface:
        """Build a surface from measured points.

        Args:
            draft: seconds by (batch, context).
            target: seconds by (batch, context, tokens), tokens = 1 among them.
            source: where the numbers come from.

        Returns:
            CostSurface.

        Raises:
            InvalidParameter: if the points fill no grid, lack calls of one token, or a time is not
                positive and finite (a draft step may take none).

        Cost: O(points).

        >>> costs = CostSurface.of_points(
        ...     {(1, 0): 0.002}, {(1, 0, 1): 0.020, (1, 0, 5): 0.024}, source="by hand"
        ... )
        >>> costs.at(batch=1, context=0, length=2)
        Cost(length=2, draft=0.002, plain=0.02, target=0.022, extrapolated=False)
        """
        if not isinstance(draft, Mapping) or not isinstance(target, Mapping):
            raise InvalidParameter(
                f"Points are mappings to seconds; got {draft!r:.40} and {target!r:.40}. Pass {{(1, "
                f"0): 0.002}}."
            )
        if not target or not draft:
            raise InvalidParameter(
                "A surface needs a draft step and a target call; one of them has no point. Measure "
                "both."
            )
        axes = []
        for points, width in ((draft, 2), (target, 3)):
            keys = list(points)
            if not all(
                isinstance(key, tuple)
                and len(key) == width
                and all(type(one) is int for one in key)
                for key in keys
            ):
                raise InvalidParameter(
                    f"Points are named by {width} integers; got {keys[0]!r:.60}. Pass tuples of "
                    "them."
                )
            axes.append([tuple(sorted({key[i] for key in keys})) for i in range(width)])
        batches, contexts, tokens = axes[1]
        if batches[0] < 1 or contexts[0] < 0 or tokens[0] != 1:
            raise InvalidParameter(
                "Batches start at 1, contexts at 0 and tokens at 1, a call without drafts; the "
                f"points start at {batches[0]}, "
                f"{contexts[0]} and {tokens[0]}. Measure a call of one token."
            )
        grid = list(itertools.product(batches, contexts))
        missing: list[tuple[int, ...]] = [key for key in grid if key not in draft]
        missing += [(*key, n) for key in grid for n in tokens if (*key, n) not in target]
        if missing:
            raise InvalidParameter(
                f"Points must fill a grid of batches × contexts (× tokens); {missing[0]} is "
                "missing. Measure it, or leave its row "
                "out."
            )
        return cls(
            batches,
            contexts,
            tokens,
            np.array(
                [
                    [_seconds(draft[b, c], "a draft step", zero=True) for c in contexts]
                    for b in batches
                ]
            ),
            np.array(
                [
                    [[_seconds(target[b, c, n], "a target call") for n in tokens] for c in contexts]
                    for b in batches
                ]
            ),
            str(source),
        )

    @classmethod
    def flat(
        cls, *, draft: float, target: float | Mapping[int, float], source: str = "given"
    ) -> CostSurface:
        """Build a surface from one draft step and one target call, the same for every batch and
        context.

        Args:
            draft: seconds of a draft step.
            target: seconds of a target call; by number of drafts checked, 0 among them, if that was
                measured.
            source: where the numbers come from.

        Returns:
            CostSurface, whose assumptions say what is taken to be the same.

        Raises:
            InvalidParameter: if a time is not positive and finite (a draft step may take none), or
                0 drafts are missing.

        Cost: O(measurements).

        >>> CostSurface.flat(draft=0.002, target=0.020).assumptions[0]
        'a target call takes the same whatever it checks'
        """
        by_drafts = target if isinstance(target, Mapping) else {0: target}
        if not all(type(n) is int and n >= 0 for n in by_drafts):
            raise InvalidParameter(
                f"A target call is timed by its number of drafts ≥ 0; got {list(by_drafts)[:4]}. "
                f"Pass {{0: 0.02}}."
            )
        surface = cls.of_points(
            {(1, 0): draft},
            {(1, 0, n + 1): seconds for n, seconds in by_drafts.items()},
            source=source,
        )
        same = ("a target call takes the same whatever it checks",) if len(by_drafts) == 1 else ()
        return dataclasses.replace(
            surface, assumptions=(*same, "one batch size and context stand for all")
        )

    def at(self, *, batch: int, context: int, length: float, extrapolate: bool = False) -> Cost:
        """Return what a round of `length` drafts costs.

        Args:
            batch, context: the cell; between measured ones linearly.
            length: drafts checked, so length + 1 tokens for each sequence; a mean number, too.
            extrapolate: whether to continue the last two measurements beyond the grid.

        Returns:
            Cost, which says whether it was extrapolated.

        Raises:
            InvalidParameter: beyond the grid, unless `extrapolate`.

        Cost: O(grid).

        >>> CostSurface.flat(draft=0.002, target={0: 0.020, 4: 0.024}).at(
        ...     batch=1, context=0, length=1
        ... ).target.__round__(6)
        0.021
        """
        axes: list[Axis] = [(self.batches, batch), (self.contexts, context)]
        if "one batch size and context stand for all" in self.assumptions:
            axes = [(self.batches, 1), (self.contexts, 0)]
        widths = (self.tokens, length + 1 if len(self.tokens) > 1 or not self.assumptions else 1)
        outside = [
            f"{name} {value} (measured {axis[0]} to {axis[-1]})"
            for name, (axis, value) in zip(
                ("batch", "context", "tokens per sequence"), (*axes, widths), strict=True
            )
            if not axis[0] <= value <= axis[-1]
        ]
        if outside and not extrapolate:
            raise InvalidParameter(
                f"Costs are measured on a grid; {', '.join(outside)} is outside. Measure it, or "
                "pass extrapolate."
            )
        return Cost(
            length=length,
            draft=max(_interpolated(self.draft, axes), 0.0),
            plain=_interpolated(self.target, [*axes, (self.tokens, 1)]),
            target=_interpolated(self.target, [*axes, widths]),
            extrapolated=bool(outside),
        )

    @property
    def longest(self) -> int | None:
        """Most drafts that a measured call checks; None if calls are taken to cost the same
        whatever they check.
        """
        return None if len(self.tokens) == 1 and self.assumptions else self.tokens[-1] - 1

    def to_json(self) -> str:
        """Write the surface as `read_costs` reads it.

        Returns:
            JSON text, times in seconds.

        Cost: O(grid).

        >>> CostSurface.of_points({(1, 0): 0.002}, {(1, 0, 1): 0.020}, source="by hand").to_json()[
        ...     :60
        ... ]
        '{"format": "otm.cost-surface", "version": 1, "unit": "s", "s'
        """
        cells = list(itertools.product(enumerate(self.batches), enumerate(self.contexts)))
        draft = [[b, c, float(self.draft[i, j])] for (i, b), (j, c) in cells]
        target = [
            [b, c, n, float(self.target[i, j, m])]
            for (i, b), (j, c) in cells
            for m, n in enumerate(self.tokens)
        ]
        document = {
            "format": FORMAT,
            "version": VERSION,
            "unit": "s",
            "source": self.source,
            "draft": draft,
            "target": target,
        }
        return json.dumps(document, allow_nan=False)

    def __repr__(self) -> str:
        return (
            f"CostSurface(batches={self.batches}, contexts={self.contexts}, tokens={self.tokens}, "
            f"source={self.source!r})"
        )


@dataclasses.dataclass(frozen=True)
class Cost:
    """Seconds of one round of drafts.

    Attributes:
        length: drafts.
        draft: seconds of one draft step.
        plain: seconds of a target call without drafts.
        target: seconds of a target call that checks the drafts.
        extrapolated: whether any of these lies beyond what was measured.
    """

    length: float
    draft: float
    plain: float
    target: float
    extrapolated: bool

    @property
    def seconds(self) -> float:
        """Seconds of the round."""
        return self.length * self.draft + self.target


def read_costs(*paths: str | os.PathLike[str]) -> CostSurface:
    """Read a cost surface: files of the format above, records of `latency`, one for each context,
    or records of `advise`.

    Args:
        paths: the files; their points are put together.

    Returns:
        CostSurface.

    Raises:
        InvalidParameter: if a file is neither, or the points fill no grid.
        TooLarge: beyond the size of a record.

    Cost: O(length of the files).

    >>> import tempfile
    >>> costs = CostSurface.of_points(
    ...     {(1, 0): 0.002}, {(1, 0, 1): 0.02, (1, 0, 3): 0.021}, source="by hand"
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "costs.json"
    ...     _ = file.write_text(costs.to_json())
    ...     read_costs(file)
    CostSurface(batches=(1,), contexts=(0,), tokens=(1, 3), source='costs.json: by hand')
    """
    if not paths:
        raise InvalidParameter("A cost surface is read from files; none was given. Pass a path.")
    draft: dict[tuple[int, int], float] = {}
    target: dict[tuple[int, int, int], float] = {}
    sources = []
    for path in paths:
        try:
            document = Document(read_text(Path(path)))
        except (OSError, TypeError, ValueError) as error:
            if isinstance(error, TooLarge | InvalidParameter):
                raise
            raise InvalidParameter(
                f"path must name a file of UTF-8 text; {path!r:.80} cannot be read ({error})."
            ) from error
        (value,) = document.values if len(document.values) == 1 else (None,)
        if not isinstance(value, dict):
            raise InvalidParameter(
                f"Costs are one JSON object; {Path(path).name} is none. Write CostSurface.to_json, "
                "or run latency."
            )
        steps, calls, told = _latency(value) if "passes" in value else _surface(_advised(value))
        draft |= steps
        target |= calls
        sources.append(f"{Path(path).name}: {told}")
    return CostSurface.of_points(draft, target, source="; ".join(sources))


Points = tuple[dict[tuple[int, int], float], dict[tuple[int, int, int], float], str]


def _advised(value: dict[str, Any]) -> dict[str, Any]:
    """Return the surface that a record of `advise` holds as text; anything else as it is."""
    if value.get("format") != ADVICE:
        return value
    costs = value.get("costs")
    text = costs.get("passes") if isinstance(costs, dict) else None
    inner = Document(text).values if isinstance(text, str) else ()
    if len(inner) != 1 or not isinstance(inner[0], dict):
        raise InvalidParameter(
            "A record of advise holds its costs under costs.passes; this one has none. Run advise "
            "again."
        )
    return inner[0]


def _surface(value: dict[str, Any]) -> Points:
    """Return the points of the documented format."""
    if (
        value.get("format") != FORMAT
        or value.get("version") != VERSION
        or value.get("unit") not in _UNITS
    ):
        raise InvalidParameter(
            f'Costs must have "format": "{FORMAT}", "version": {VERSION} and "unit" "ms" or "s"; '
            f"got {value.get('format')!r:.40}, "
            f"{value.get('version')!r:.20} and {value.get('unit')!r:.20}. Or pass a record of the "
            "command latency."
        )
    unit = _UNITS[value["unit"]]
    draft = {(row[0], row[1]): row[2] * unit for row in _rows(value, "draft", 3)}
    target = {(row[0], row[1], row[2]): row[3] * unit for row in _rows(value, "target", 4)}
    return draft, target, str(value.get("source", "unknown source"))[:80]


def _rows(value: dict[str, Any], name: str, width: int) -> list[Any]:
    rows = value.get(name)
    if not isinstance(rows, list) or not all(
        isinstance(row, list)
        and len(row) == width
        and all(type(one) is int for one in row[:-1])
        and type(row[-1]) in (int, float)
        for row in rows
    ):
        raise InvalidParameter(
            f'"{name}" must be a list of rows of {width - 1} integers and a time; got '
            f"{rows!r:.60}. Write it so."
        )
    return rows


def _latency(value: dict[str, Any]) -> Points:
    """Return the points of a latency record: medians of forward passes over length × batch."""
    try:
        lengths, batches, context = (
            list(map(int, value["lengths"])),
            list(map(int, value["batches"])),
            int(value["context"]),
        )
        tables = {
            side: [
                [number(cell["median"], "a median") for cell in row]
                for row in value["passes"][side]
            ]
            for side in ("draft", "target")
        }
        one = lengths.index(1)
        draft = {(b, context): tables["draft"][one][j] for j, b in enumerate(batches)}
        target = {
            (b, context, n): tables["target"][i][j]
            for i, n in enumerate(lengths)
            for j, b in enumerate(batches)
        }
    except (KeyError, TypeError, ValueError, IndexError) as error:
        if isinstance(error, InvalidParameter):
            raise
        raise InvalidParameter(
            "A latency record must hold context, lengths with 1 among them, batches and passes of "
            "both models; this one does not "
            f"({type(error).__name__}: {str(error)[:60]}). Run the command latency again."
        ) from error
    manifest = value.get("manifest")
    device = manifest.get("device", "") if isinstance(manifest, dict) else ""
    return draft, target, f"latency, forward passes{f' on {device}' if device else ''}"[:80]


def _interpolated(values: Floats, axes: Sequence[Axis]) -> float:
    """Return the multilinear interpolation, continued beyond the ends."""
    for axis, value in axes:
        points = np.asarray(axis, dtype=np.float64)
        if points.size == 1:
            values = values[0]
            continue
        i = int(np.clip(np.searchsorted(points, value, side="right") - 1, 0, points.size - 2))
        share = (value - points[i]) / (points[i + 1] - points[i])
        values = (
            values[i]
            if share == 0
            else values[i + 1]
            if share == 1
            else (1 - share) * values[i] + share * values[i + 1]
        )
    return float(values)


def _seconds(value: Any, name: str, *, zero: bool = False) -> float:
    seconds = check_real(value, name=name, low=0.0, open_low=not zero)
    if math.isinf(seconds):
        raise InvalidParameter(f"{name} must take finite time; got inf. Pass measured seconds.")
    return seconds
