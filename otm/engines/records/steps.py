"""Verification steps, one a line, as `otm.engines.StepRecord` and others write.

JSON lines, CSV, or a Parquet table with the columns "offered" and "accepted", and "request" and
"seconds" if known.

"offered" is how many tokens the target checked, null where that is unknown, and 0 where the drafter
had nothing to say; "accepted" counts drafts only; "seconds" is the whole step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from otm.engines.records.document import Document, Form, count, number
from otm.engines.records.record import AcceptanceRecord
from otm.engines.records.tally import Tally
from otm.errors import InvalidParameter

_KEYS = ("offered", "accepted")
Row = dict[str, Any]


def _rows(document: Document) -> list[Row]:
    """Return the lines with both keys, empty cells of a table as None."""
    if set(_KEYS) <= set(document.columns):
        return [{key: cell or None for key, cell in row.items()} for row in document.rows]
    return list(document.objects(*_KEYS))


def seconds_of_tokens(document: Document) -> Iterator[tuple[int, float]]:
    """Yield 0, for unknown many requests, and the mean seconds of a token of steps with a time."""
    rows = document.once(_rows) if FORM.is_form_of(document) else []
    timed = [row for row in rows if row.get("seconds") is not None]
    if timed:
        tokens = sum(1 + count(row["accepted"], "accepted") for row in timed)
        yield 0, sum(number(row["seconds"], "seconds") for row in timed) / tokens


def _read(document: Document) -> AcceptanceRecord:
    requests: dict[str, list[Row]] = {}
    for row in document.once(_rows):
        requests.setdefault(str(row.get("request") or "all"), []).append(row)
    return AcceptanceRecord(
        form="steps, one a line",
        unit="request",
        parts=tuple(_tally(name, rows) for name, rows in requests.items()),
        convention="drafts only",
    )


def _tally(name: str, rows: list[Row]) -> Tally:
    """Return the counts of one request."""
    accepted = [count(row["accepted"], "accepted") for row in rows]
    offered = [row["offered"] for row in rows]
    if None in offered:
        if any(one is not None for one in offered):
            raise InvalidParameter(
                f"offered must be known in every step of a request, or in none; {name} has both. "
                "Fill it in."
            )
        return Tally.of_histogram(np.bincount(accepted).tolist(), name=name)
    pairs = [(a, count(d, "offered")) for a, d in zip(accepted, offered, strict=True)]
    drafted = [pair for pair in pairs if pair != (0, 0)]
    steps = Tally.of_steps([a for a, _ in drafted], [d for _, d in drafted], name=name)
    return dataclasses.replace(steps, undrafted=float(len(pairs) - len(drafted)))


FORM = Form(
    name="steps, one a line",
    marks='JSON lines or CSV with "offered" and accepted of every step',
    recognises=lambda document: bool(document.once(_rows)),
    read=_read,
)
