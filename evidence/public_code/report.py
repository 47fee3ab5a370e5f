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


def read() -> dict[str, Any]:
    """Return the committed results; none if there are none."""
    return (
        json.loads(RESULTS.read_text(encoding="utf-8"))
        if RESULTS.exists()
        else {"machine": {}, "rows": []}
    )


def write(record: dict[str, Any]) -> None:
    """Write the results, and the page's table from them."""
    RESULTS.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if PAGE.exists():
        PAGE.write_text(
            with_section(PAGE.read_text(encoding="utf-8"), "results", table(record)),
            encoding="utf-8",
        )


def table(record: dict[str, Any]) -> str:
    """Return the rows as a table in Markdown."""
    return markdown(HEAD, map(_cells, record["rows"]))


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    path = row["code"].split(":")[0]
    repository = row["repository"].partition("@")[0]
    link = f"[{row['subject']}](https://github.com/{repository}/blob/{row['revision']}/{path})"
    distance = "–" if row["total_variation"] is None else f"{row['total_variation']:.4g}"
    if (
        row["total_variation"] is not None
        and row["total_variation"] < 1e-6
        and row["verdict"] == "lossless"
    ):
        distance = f"rounding, {row['total_variation']:.0e}"
    if row["verdict"] == UNSEEN:
        distance = f"none of {row['total_variation']:.2g} or more"
    example = row["counterexample"] or (f"raises: {row['raised']}" if row["raised"] else "")
    by = (
        f"{row['instances']}, {row['sampled']} sampled" if row["sampled"] else str(row["instances"])
    )
    return (
        link,
        row["revision"][:_SHORT] if len(row["revision"]) == _DIGITS else row["revision"],
        row["meant"],
        f"**{row['verdict']}**",
        distance,
        example,
        row["confirmed"],
        by,
        f"{row['seconds']:.1f}",
    )
