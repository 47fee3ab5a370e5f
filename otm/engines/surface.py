"""Costs of a draft step and of a target call, by batch size, context length and tokens checked.

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
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from otm._machine.arrays import Floats
from otm.engines.chain import MAX_SECONDS
from otm.engines.records.document import Document, number, read_document
from otm.errors import InvalidParameter
from otm.pmf import check_real

FORMAT = "otm.cost-surface"
VERSION = 1
ADVICE = "otm.advice"
ONE_CALL = "a target call takes the same whatever it checks"
ONE_CELL = "one batch size and context stand for all"
_UNITS = {"ms": 1e-3, "s": 1.0}
Axis = tuple[tuple[int, ...], float]
"""Measured points, and the place of the interpolation between them."""


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

        >>> target = {(1, 0, 1): 0.020, (1, 0, 5): 0.024}
        >>> costs = CostSurface.of_points({(1, 0): 0.002}, target, source="by hand")
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
        batches, contexts, tokens = _axes(target, 3)
        _axes(draft, 2)
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
                "missing. Measure it, or leave its row out."
            )
        steps = [
            check_real(draft[key], name="a draft step", low=0.0, high=MAX_SECONDS) for key in grid
        ]
        calls = [
            check_real(
                target[*key, n], name="a target call", low=0.0, high=MAX_SECONDS, open_low=True
            )
            for key in grid
            for n in tokens
        ]
        cells = (len(batches), len(contexts))
        return cls(
            batches=batches,
            contexts=contexts,
            tokens=tokens,
            draft=np.array(steps).reshape(cells),
            target=np.array(calls).reshape(*cells, len(tokens)),
            source=str(source),
        )

    @classmethod
    def flat(
        cls, *, draft: float, target: float | Mapping[int, float], source: str = "given"
    ) -> CostSurface:
        """Build a surface from one draft step and target call for every batch and context.

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
        same = (ONE_CALL,) if len(by_drafts) == 1 else ()
        return dataclasses.replace(surface, assumptions=(*same, ONE_CELL))

    def at(self, *, batch: int, context: int, length: float, extrapolate: bool = False) -> Cost:
        """Interpolate the cost of a round of drafts.

        Args:
            batch, context: the cell; between measured ones linearly.
            length: drafts checked, so length + 1 tokens for each sequence; a mean number, too.
            extrapolate: whether to continue the last two measurements beyond the grid.

        Returns:
            Cost, which says whether it was extrapolated.

        Raises:
            InvalidParameter: beyond the grid, unless `extrapolate`.

        >>> costs = CostSurface.flat(draft=0.002, target={0: 0.020, 4: 0.024})
        >>> round(costs.at(batch=1, context=0, length=1).target, 6)
        0.021
        """
        cell = [
            check_real(value, name=name, low=0.0)
            for name, value in (("batch", batch), ("context", context))
        ]
        axes: list[Axis] = [(self.batches, cell[0]), (self.contexts, cell[1])]
        if ONE_CELL in self.assumptions:
            axes = [(self.batches, 1), (self.contexts, 0)]
        widths = (self.tokens, length + 1 if len(self.tokens) > 1 or not self.assumptions else 1)
        outside = [
            f"{name} {value:g} (measured {axis[0]} to {axis[-1]})"
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
        """Most drafts that a measured call checks; None if calls are taken to cost the same."""
        return None if len(self.tokens) == 1 and self.assumptions else self.tokens[-1] - 1

    def to_json(self) -> str:
        """Write the surface in the format of `read_costs`.

        Returns:
            JSON text, times in seconds.

        >>> costs = CostSurface.of_points({(1, 0): 0.002}, {(1, 0, 1): 0.020}, source="by hand")
        >>> costs.to_json()[-54:]
        '"draft": [[1, 0, 0.002]], "target": [[1, 0, 1, 0.02]]}'
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
    """Read a cost surface from one file, or the joint points of several files.

    Args:
        paths: files of the format above, records of `latency`, one for each context, or records of
            `advise`.

    Returns:
        CostSurface.

    Raises:
        InvalidParameter: if a file is none of these, or the points fill no grid.
        TooLarge: beyond the size of a record.

    Cost: O(length of the files).

    >>> import tempfile
    >>> target = {(1, 0, 1): 0.02, (1, 0, 3): 0.021}
    >>> costs = CostSurface.of_points({(1, 0): 0.002}, target, source="by hand")
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
        value = _only_object(read_document(path))
        if value is None:
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
"""Seconds of draft steps and of target calls by cell, and the source of the numbers."""


def _only_object(document: Document) -> dict[str, Any] | None:
    """Return the one JSON object of a document, None if the document is anything else."""
    found = document.values
    return found[0] if len(found) == 1 and isinstance(found[0], dict) else None


def _advised(value: dict[str, Any]) -> dict[str, Any]:
    """Return the surface that a record of `advise` holds as text; any other object unchanged."""
    if value.get("format") != ADVICE:
        return value
    costs = value.get("costs")
    text = costs.get("passes") if isinstance(costs, dict) else None
    inner = _only_object(Document(text)) if isinstance(text, str) else None
    if inner is None:
        raise InvalidParameter(
            "A record of advise holds its costs under costs.passes; this one has none. Run advise "
            "again."
        )
    return inner


def _surface(value: dict[str, Any]) -> Points:
    """Return the points of the documented format."""
    told = [value.get(key) for key in ("format", "version", "unit")]
    if told[:2] != [FORMAT, VERSION] or told[2] not in _UNITS:
        raise InvalidParameter(
            f'Costs must have "format": "{FORMAT}", "version": {VERSION} and "unit" "ms" or "s"; '
            f"got {', '.join(f'{one!r:.40}' for one in told)}. Or pass a record of the command "
            "latency."
        )
    draft, target = (_points(value, name, _UNITS[told[2]]) for name in ("draft", "target"))
    return draft, target, str(value.get("source", "unknown source"))[:80]


def _points(value: dict[str, Any], name: str, unit: float) -> dict[Any, float]:
    """Return the points of rows that end with a time; names are checked later."""
    try:
        return {tuple(row[:-1]): row[-1] * unit for row in value[name]}
    except (ArithmeticError, LookupError, TypeError) as error:
        raise InvalidParameter(
            f'"{name}" must be a list of rows of integers and a time; got '
            f"{value.get(name)!r:.60}. Write it so."
        ) from error


def _latency(value: dict[str, Any]) -> Points:
    """Return the points of a latency record: medians of forward passes over length × batch."""
    draft: dict[tuple[int, int], float] = {}
    target: dict[tuple[int, int, int], float] = {}
    try:
        context, passes = int(value["context"]), value["passes"]
        lengths, batches = (list(map(int, value[name])) for name in ("lengths", "batches"))
        for j, batch in enumerate(batches):
            one = passes["draft"][lengths.index(1)][j]
            draft[batch, context] = number(one["median"], "a median")
            for i, length in enumerate(lengths):
                cell = passes["target"][i][j]
                target[batch, context, length] = number(cell["median"], "a median")
    except InvalidParameter:
        raise
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise InvalidParameter(
            "A latency record must hold context, lengths with 1 among them, batches and passes of "
            f"both models; this one does not ({type(error).__name__}: {str(error)[:60]}). Run the "
            "command latency again."
        ) from error
    manifest = value.get("manifest")
    device = manifest.get("device", "") if isinstance(manifest, dict) else ""
    return draft, target, f"latency, forward passes{f' on {device}' if device else ''}"[:80]


def _interpolated(values: Floats, axes: Sequence[Axis]) -> float:
    """Return the multilinear interpolation, continued beyond the ends."""
    for axis, value in axes:
        if len(axis) == 1:
            values = values[0]
            continue
        i = int(np.clip(np.searchsorted(axis, value, side="right") - 1, 0, len(axis) - 2))
        share = (value - axis[i]) / (axis[i + 1] - axis[i])
        values = (1 - share) * values[i] + share * values[i + 1]
    return float(values)


def _axes(points: Mapping[Any, float], width: int) -> list[tuple[int, ...]]:
    """Return the different numbers in each place of the points' names."""
    for key in points:
        named = isinstance(key, tuple) and len(key) == width
        if not named or any(type(one) is not int for one in key):
            raise InvalidParameter(
                f"Points are named by {width} integers; got {key!r:.60}. Pass tuples of them."
            )
    return [tuple(sorted({key[i] for key in points})) for i in range(width)]
