"""CSV of benchmark scripts: survival by position, as rates without counts for pooling.

Either a row for each position, with columns "position" (from 0 or 1) and "acceptance_rate"
("survival", "rate"), or "accepted" and "drafts", which are divided: one chain. Or a row for each
run, with columns "…pos_0", "…pos_1", …: a chain a row, empty cells at the end making it shorter.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from otm.engines.positions import PositionAcceptance
from otm.engines.records.document import Document, Form, contiguous, count, number
from otm.engines.records.record import AcceptanceRecord
from otm.engines.records.speculators import MARKS
from otm.engines.records.tally import Tally
from otm.errors import InvalidParameter

_COLUMN = re.compile(r"(?:\w*_)?pos(?:ition)?_?(\d{1,6})")
_RATE_COLUMNS = ("acceptance_rate", "survival", "rate")

Rows = Sequence[dict[str, str]]


def _read(document: Document) -> AcceptanceRecord:
    names = [name for name in (document.rows[0] if document.rows else ()) if name]
    of_rows = _one_chain if "position" in names else _chain_of_each_row
    parts = tuple(
        Tally.of_rates(PositionAcceptance(rates).survival, name=f"run {i}")
        for i, rates in enumerate(of_rows(document.rows, names), start=1)
    )
    return AcceptanceRecord(
        form="CSV by position",
        unit="run",
        parts=parts,
        convention="rates of drafts",
        notes=("Rates without counts: no interval.",),
    )


def _one_chain(rows: Rows, names: Sequence[str]) -> list[list[float]]:
    """Return survival from rows with a position, and a rate or two counts."""
    rate = next((name for name in _RATE_COLUMNS if name in names), None)
    if rate is None and not {"accepted", "drafts"} <= set(names):
        raise InvalidParameter(
            "Beside position there must be acceptance_rate, or accepted and drafts; got "
            f"{names[:8]}. Add them."
        )
    positions = [count(row["position"], "position") for row in rows]
    rates = [_divided(row) if rate is None else number(row[rate], rate) for row in rows]
    by_position = dict(zip(positions, rates, strict=True))
    return [[by_position[position] for position in _from_0_or_1(positions)]]


def _divided(row: dict[str, str]) -> float:
    """Return accepted drafts over drafts."""
    drafts = number(row["drafts"], "drafts")
    if not drafts:
        raise InvalidParameter("drafts must be above 0 to divide by; got 0. Leave such rows out.")
    return number(row["accepted"], "accepted") / drafts


def _chain_of_each_row(rows: Rows, names: Sequence[str]) -> list[list[float]]:
    """Return survival from rows with a column for each position."""
    matches = ((_COLUMN.fullmatch(name), name) for name in names)
    by_position = {int(match.group(1)): name for match, name in matches if match}
    columns = [by_position[position] for position in _from_0_or_1(by_position)]
    chains = []
    for row in rows:
        cells = [row[name].strip() for name in columns]
        while cells and not cells[-1]:
            cells.pop()
        chains.append([number(cell, name) for cell, name in zip(cells, columns, strict=False)])
    return chains


def _from_0_or_1(positions: Collection[int]) -> list[int]:
    return contiguous(positions, first=0 if 0 in positions else 1)


def _recognises(document: Document) -> bool:
    named = any(name == "position" or _COLUMN.fullmatch(name) for name in document.columns)
    return named and not set(document.columns) >= MARKS


FORM = Form(
    name="CSV by position",
    marks="CSV with a column position, or columns ending in pos_0, pos_1, …",
    recognises=_recognises,
    read=_read,
)
