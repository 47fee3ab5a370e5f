"""The table of the audits of packages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evidence.packages import subjects  # noqa: F401  # they enter themselves
from evidence.packages.registry import SUBJECTS, PackageSubject
from evidence.public_code import report
from otm._display.tabular import markdown

RESULTS = Path(__file__).with_name("results.json")
PAGE = report.ROOT / "docs" / "packages.md"
HEAD = (
    "package",
    "callable",
    "rule",
    "meant",
    "verdict",
    "largest TV",
    "smallest counterexample",
    "shim",
    "s",
    "not covered",
)


def write(record: dict[str, Any]) -> None:
    """Write the results, and the page's table from them."""
    report.keep(record, RESULTS, PAGE, table(record))


def table(record: dict[str, Any]) -> str:
    """Lay out the rows in Markdown."""
    return markdown(HEAD, (cells(row, SUBJECTS[row["subject"]]) for row in record["rows"]))


def cells(row: dict[str, Any], subject: PackageSubject) -> tuple[str, ...]:
    """Lay out a row."""
    verdict = f"**{row['verdict']}**"
    case = [word for word in row["subject"].split(", ")[1:] if word not in row["code"]]
    if row["sampled"]:
        verdict += f", {row['sampled']} of {row['instances']} audits sampled"
    return (
        f"{row['repository']} {row['revision']}",
        ", ".join([f"`{row['code']}`", *case]),
        subject.rule,
        row["meant"],
        verdict,
        report.distance(row),
        report.example(row),
        str(subject.statements),
        f"{row['seconds']:.1f}",
        subject.uncovered,
    )
