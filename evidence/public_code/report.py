"""The results of the audits as a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from otm._display.tabular import markdown, with_section

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "evidence" / "public_code.json"
PAGE = ROOT / "docs" / "public_code.md"
HEAD = (
    "code",
    "revision",
    "meant",
    "verdict",
    "largest TV",
    "smallest counterexample",
    "real executions",
    "audits",
    "s",
)

UNSEEN = "no difference found"
"""The verdict of samples; the total variation of such a row is what they would have found."""

_DIGITS, _SHORT = 40, 7
"""Of a commit, and as many of them as the table shows; a release's tag is shown as it is."""


def read(results: Path = RESULTS) -> dict[str, Any]:
    """Return the committed results; none if there are none."""
    return (
        json.loads(results.read_text(encoding="utf-8"))
        if results.exists()
        else {"machine": {}, "rows": []}
    )


def write(record: dict[str, Any]) -> None:
    """Write the results, and the page's table from them."""
    keep(record, RESULTS, PAGE, table(record))


def keep(record: dict[str, Any], results: Path, page: Path, shown: str) -> None:
    """Write a record to its file, and its table to the page."""
    results.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    text = page.read_text(encoding="utf-8")
    page.write_text(with_section(text, "results", shown), encoding="utf-8")


def table(record: dict[str, Any]) -> str:
    """Return the rows as a table in Markdown."""
    return markdown(HEAD, map(_cells, record["rows"]))


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    path = row["code"].split(":")[0]
    repository = row["repository"].partition("@")[0]
    link = f"[{row['subject']}](https://github.com/{repository}/blob/{row['revision']}/{path})"
    by = (
        f"{row['instances']}, {row['sampled']} sampled" if row["sampled"] else str(row["instances"])
    )
    return (
        link,
        row["revision"][:_SHORT] if len(row["revision"]) == _DIGITS else row["revision"],
        row["meant"],
        f"**{row['verdict']}**",
        distance(row),
        example(row),
        row["confirmed"],
        by,
        f"{row['seconds']:.1f}",
    )


def distance(row: dict[str, Any]) -> str:
    """Write the largest total variation of a row."""
    found = row["total_variation"]
    if found is None:
        return "–"
    if row["verdict"] == UNSEEN:
        return f"none of {found:.2g} or more"
    small = 0 < found < 1e-6 and row["verdict"] == "lossless"
    return f"rounding, {found:.0e}" if small else f"{found:.4g}"


def example(row: dict[str, Any]) -> str:
    """Write the counterexample of a row, or what it raises."""
    raised = f"raises: {row['raised']}" if row["raised"] else ""
    return str(row["counterexample"]) or raised
