"""speculators' `acceptance.csv`: a row for each subset, with counts.

`subset, num_drafts, num_draft_tokens, num_accepted_tokens, acceptance_length, acceptance_at_pos_0,
…`; the length counts the bonus token, and a position's acceptance is accepted there over drafts.
Subsets are data sets, not requests.

Source of the form: github.com/vllm-project/speculators, scripts/evaluate/perf_utils.py at c05b95b3
(`acceptance_csv_columns`).
"""

from __future__ import annotations

import re

from otm.engines.records.document import Document, Form, count, number
from otm.engines.records.record import AcceptanceRecord
from otm.engines.records.tally import Tally, near_count
from otm.errors import InvalidParameter

MARKS = frozenset(("num_drafts", "acceptance_at_pos_0"))
"""Columns that this form has, and no other CSV."""

_COLUMN = re.compile(r"acceptance_at_pos_(\d{1,6})")


def _read(document: Document) -> AcceptanceRecord:
    columns = sorted(
        int(match.group(1)) for name in document.columns if (match := _COLUMN.fullmatch(name))
    )
    if columns != list(range(len(columns))):
        raise InvalidParameter(
            f"Positions must run from 0 without a gap; got {columns[:8]}. Fill in the missing ones."
        )
    return AcceptanceRecord(
        form="speculators acceptance.csv",
        unit="subset",
        parts=tuple(
            _tally(row, len(columns), f"row {i}") for i, row in enumerate(document.rows, start=1)
        ),
        convention="acceptance_length counts the bonus token",
    )


def _tally(row: dict[str, str], length: int, name: str) -> Tally:
    drafts = count(row["num_drafts"], "num_drafts")
    name = (row.get("subset") or name)[:40]
    if not drafts:
        return Tally(name=name, steps=0.0, accepted=0.0)
    rates = [number(row[f"acceptance_at_pos_{i}"], f"acceptance_at_pos_{i}") for i in range(length)]
    return Tally.of_survivors(
        [near_count(rate * drafts) for rate in rates],
        steps=drafts,
        name=name,
        accepted=count(row.get("num_accepted_tokens"), "num_accepted_tokens"),
        drafted=count(row.get("num_draft_tokens"), "num_draft_tokens"),
    )


FORM = Form(
    name="speculators acceptance.csv",
    marks='CSV with columns "num_drafts" and "acceptance_at_pos_0"',
    recognises=lambda document: set(document.columns) >= MARKS,
    read=_read,
)
