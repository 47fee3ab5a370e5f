"""Two files of probabilities or logits as problems, and what `otm compare` prints and writes.

The command stands with those on models: it compares models by the same name and options.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from otm._display import drawing
from otm._display.tabular import shortened, wrapped
from otm._machine.strict_json import plain_json
from otm.commands.printing import deliver
from otm.comparison import Comparison
from otm.comparison.advice import advice
from otm.drafts import IID
from otm.errors import InvalidDistribution, InvalidParameter
from otm.logits import Processing
from otm.problem import Problem
from otm.verifiers import Naive

PICTURES = (".png", ".pdf", ".svg")
ENDINGS = (".csv", ".tex", ".json", *PICTURES)
"""Endings of the files that a comparison is written to."""


def read_rows(
    files: Sequence[str],
    *,
    logits: bool,
    processing: Sequence[Processing],
    row: int | None = None,
    limit: int | None = None,
) -> dict[str, Problem]:
    """Return the pairs of distributions in a draft's and a target's file, by name of the row.

    Raises:
        InvalidParameter: if the files do not hold two arrays of numbers, or there is no such row.
        InvalidDistribution, ShapeMismatch: if the numbers are no pair of distributions.
    """
    arrays = [part for name in files for part in _numbers(Path(name))]
    if len(arrays) != 2:
        raise InvalidParameter(
            "A comparison takes two files, first the draft's, or one .npz or JSON file with the "
            f"keys draft and target; got {len(arrays)} arrays in {', '.join(files)}. Pass two."
        )
    if not logits:
        try:
            Problem(draft=arrays[0], target=arrays[1], law=IID(1))
        except InvalidDistribution as error:
            raise InvalidDistribution(f"{error} Here that is --logits.") from error
    if logits or any(one != Processing() for one in processing):
        with np.errstate(divide="ignore"):
            arrays = [one if logits else np.log(one) for one in arrays]
        arrays = [one(array) for one, array in zip(processing, arrays, strict=True)]
    problem = Problem(draft=arrays[0], target=arrays[1], law=IID(1))
    rows = range(problem.batch_shape[0])
    if row is not None and row not in rows:
        raise InvalidParameter(
            f"The rows here are 0 to {rows[-1]}; got --row {row}. Choose one of them."
        )
    return {f"row {i}": problem[i] for i in (rows[:limit] if row is None else [row])}


def _numbers(path: Path) -> list[Any]:
    """Return the array `(rows, V)` of a file, or both if it has the keys draft and target."""
    try:
        if path.suffix in (".npy", ".npz"):
            found: Any = np.load(io.BytesIO(path.read_bytes()), allow_pickle=False)
        elif path.suffix == ".json":
            found = plain_json(path.read_bytes(), constant=float)
        else:  # commas, semicolons or blanks between
            text = re.sub("[,;]", " ", path.read_text(encoding="utf-8-sig"))
            found = np.loadtxt(text.splitlines(), ndmin=2)
        both = isinstance(found, Mapping)
        return [_matrix(one) for one in ((found["draft"], found["target"]) if both else (found,))]
    except Exception as error:  # readers raise whatever a damaged file makes of their code
        raise InvalidParameter(
            f"{path} must be .npy, .npz, JSON or CSV with numbers alone: a row, a column, or rows "
            f"of a batch; it cannot be read ({error!s:.200}). Write it so."
        ) from error


def _matrix(values: object) -> Any:
    """Return an array `(rows, V)`, a column as one row; half precision is widened."""
    array = np.atleast_2d(np.asarray(values))
    array = array.T if array.shape[1:] == (1,) else array.reshape(-1, array.shape[-1])
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


def table_and_advice(table: Comparison) -> str:
    """Return a table in words with the sentence of advice below."""
    return "\n".join([f"{table}\n", *wrapped(advice(table.rows))])


def as_json(tables: Mapping[str, Comparison], **further: object) -> str:
    """Return the tables as JSON, with None for an infinite number."""
    found = [
        {
            "of": name,
            "advice": advice(table.rows),
            "schemes": [
                {
                    key: None if isinstance(value, float) and not math.isfinite(value) else value
                    for key, value in record.items()
                }
                for record in table.records()
            ],
        }
        for name, table in tables.items()
    ]
    return json.dumps({"comparisons": found, **further}, allow_nan=False)


def write_tables(path: Path, tables: Mapping[str, Comparison]) -> bool:
    """Write tables, or the picture of one, by a file's ending, and return True on arrival."""
    if path.suffix in PICTURES:
        _draw(path, *tables.items())
        return True
    text = as_json(tables)
    if path.suffix == ".tex":
        text = "\n".join(f"% {name}\n{table.to_latex()}" for name, table in tables.items())
    if path.suffix == ".csv":
        records = [{"of": name} | one for name, table in tables.items() for one in table.records()]
        lines = io.StringIO()
        csv.writer(lines, lineterminator="\n").writerows(
            [records[0], *(one.values() for one in records)]
        )
        text = lines.getvalue()
    return deliver(str(path), text.rstrip("\n"), command="compare")


def _draw(path: Path, one: tuple[str, Comparison]) -> None:
    """Draw acceptance against k, a panel for each draft law with the optimum and the best schemes.

    `Naive`, which ignores the drafts, and lossy schemes, which answer another question, are in the
    table only.
    """
    title, table = one
    shown = [row for row in table.rows if row.verifier.lossless and row.verifier != Naive()]
    laws = list(dict.fromkeys(type(row.law) for row in shown))
    with drawing.style():
        canvas = drawing.matplotlib_module("matplotlib.figure").Figure(
            figsize=(6.8, 2.8 * len(laws)), layout="constrained"
        )
        panels = canvas.subplots(len(laws), sharey=True, squeeze=False)[:, 0]
        for axes, law in zip(panels, laws, strict=True):
            rows = tuple(row for row in shown if type(row.law) is law)
            dataclasses.replace(table, rows=rows, folded=True).plot(axes)
        canvas.suptitle(drawing.plain(shortened(" ".join(title.split()), 70)), fontsize=9)
        drawing.note(canvas, "filled markers: exact; open: Monte Carlo, with its interval")
        drawing.save_single(canvas, path)
