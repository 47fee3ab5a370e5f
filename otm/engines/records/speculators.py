"""speculators' `acceptance.csv`: a row for each subset, with counts.

`subset, num_drafts, num_draft_tokens, num_accepted_tokens, acceptance_length, acceptance_at_pos_0,
…`; the length counts the bonus token, and a position's acceptance is accepted there over drafts.
Subsets are data sets, not requests.

Source of the form: github.com/vllm-project/speculators, scripts/evaluate/perf_utils.py at c05b95b3
(`acceptance_csv_columns`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from otm.engines.records.document import Document, contiguous, number
from otm.engines.records.fields import Fields, form_of_objects

MARKS = frozenset(("num_drafts", "acceptance_at_pos_0"))
"""Columns that this form has, and no other CSV."""

_COLUMN = re.compile(r"acceptance_at_pos_(\d{1,6})")


def _find(document: Document) -> Iterator[dict[str, Any]]:
    """Yield the rows, each with a list of rates."""
    if not set(document.columns) >= MARKS:
        return
    matches = [_COLUMN.fullmatch(name) for name in document.columns]
    positions = contiguous([int(match.group(1)) for match in matches if match])
    for row in document.rows:
        names = [f"acceptance_at_pos_{i}" for i in positions]
        yield row | {"rates": [number(row[name], name) for name in names]}


FORM = form_of_objects(
    name="speculators acceptance.csv",
    marks='CSV with columns "num_drafts" and "acceptance_at_pos_0"',
    unit="subset",
    convention="acceptance_length counts the bonus token",
    fields=Fields(
        steps=("num_drafts",),
        accepted=("num_accepted_tokens",),
        drafted=("num_draft_tokens",),
        rates=("rates",),
        part=("subset",),
    ),
    find=_find,
)
