"""CSV of benchmark scripts: a row for each position, or a row for each run with a column for each
position.

Columns "position" and "acceptance_rate" ("survival", "rate"), or "accepted" and "drafts"; or
"…pos_0", "…pos_1", …: survival in each case, without counts that could be pooled.
`PositionAcceptance.from_csv` reads the same.
"""

from __future__ import annotations

import re

from otm.engines.positions import PositionAcceptance
from otm.engines.records.document import Document, Form
from otm.engines.records.record import AcceptanceRecord
from otm.engines.records.speculators import MARKS
from otm.engines.records.tally import Tally

_COLUMN = re.compile(r"position|(?:\w*_)?pos(?:ition)?_?0", re.IGNORECASE)


def _read(document: Document) -> AcceptanceRecord:
    chains = PositionAcceptance.from_csv(document.text.lstrip())
    parts = tuple(
        Tally(
            name=f"run {i}",
            steps=1.0,
            accepted=float(chain.survival.sum()),
            survivors=chain.survival,
            counted=False,
        )
        for i, chain in enumerate(chains, start=1)
    )
    return AcceptanceRecord(
        form="CSV by position",
        unit="run",
        parts=parts,
        convention="rates of drafts",
        notes=("Rates without counts: no interval.",),
    )


def _recognises(document: Document) -> bool:
    return (
        any(_COLUMN.fullmatch(name) for name in document.columns)
        and not set(document.columns) >= MARKS
    )


FORM = Form(
    name="CSV by position",
    marks='CSV with a column "position", or columns ending in pos_0, pos_1, …',
    recognises=_recognises,
    read=_read,
)
