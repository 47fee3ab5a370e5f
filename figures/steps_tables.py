"""The tables of `docs/steps.md` from the data: K drafted sequences of L tokens on both pairs.

`python -m figures.steps_tables` writes them anew; a test fails where they are not those of the
data.
"""

from __future__ import annotations

import re
import sys
from typing import Any

from figures.captures import captures
from figures.paths import ROOT
from otm.tabular import markdown, with_section

PAGE = ROOT.parent / "docs" / "steps.md"
SIZES = ((4, 4), (8, 8))
"""K and L of the columns; rows descend in the last, below the bound."""

Record = dict[str, Any]


def of_size(record: Record, num_drafts: int, length: int) -> dict[str, Record]:
    """Return the rows of one size of a pair's record, by name."""
    (table,) = (
        one
        for one in record["tables"]
        if (one["num_drafts"], one["length"]) == (num_drafts, length)
    )
    return {row["name"]: row for row in table["rows"]}


def table(record: Record) -> str:
    """Return the table of a pair's record, in Markdown."""
    columns = [of_size(record, *size) for size in SIZES]
    head = ["tokens per call"]
    for k, length in SIZES:
        head += [f"K = {k}, L = {length}", "less than refined scores"]
    rows = [
        (name, *(cell for rows in columns for cell in _cells(rows[name]))) for name in columns[-1]
    ]
    return markdown(head, rows)


def _cells(row: Record) -> tuple[str, str]:
    less = f"{written(row['less'])} ± {written(row['less_half'])}" if row["less_half"] else ""
    return f"{written(row['mean'])} ± {written(row['half'])}", less


def written(value: float) -> str:
    """Write a number as the page does.

    >>> written(-0.154), written(2.3)
    ('−.15', '2.30')
    """
    return re.sub(r"^(−?)0", r"\1", f"{value:.2f}".replace("-", "−"))


def page(text: str) -> str:
    """Return the page with its tables as the data have them."""
    for name, record in zip(("shipped", "public"), captures("steps").values(), strict=True):
        text = with_section(text, name, table(record))
    return text


def main() -> int:
    """Write the tables into the page."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(PAGE.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
