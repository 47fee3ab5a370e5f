"""The sentence that ends a comparison: the best scheme beside what engines run."""

from __future__ import annotations

from collections.abc import Sequence

from otm._display.tabular import format_cell
from otm.comparison.result import SAME, ComparisonRow
from otm.drafts import IID
from otm.verifiers import RecursiveRejection

_WORTH = ((0.05, "worth a trial"), (0.01, "a small gain"), (-1.0, "not worth a change"))
"""Least gains, as parts of what an engine accepts, and what they are worth."""


def advice(rows: Sequence[ComparisonRow]) -> str:
    """Return the best lossless scheme at the most drafts, and its gain over what engines run.

    Engines run recursive rejection of i.i.d. drafts. Linear programs are left out: they are too
    slow for a step.
    """
    kept = [row for row in rows if row.verifier.lossless and not row.verifier.is_plan]
    most = max(row.law.size for row in kept)
    here = [row for row in kept if row.law.size == most and row.value is not None]
    # an engine's own stands first, and wins where it is as good
    here.sort(key=lambda row: (type(row.verifier), type(row.law)) != (RecursiveRejection, IID))
    best, runs = max(here, key=_sureness), here[0]
    said = (
        f"BEST at {most:g} draft{'s'[: most > 1]}: {best.verifier}, drafts {best.law.title}: "
        f"{format_cell(best.value)} accepted"
    )
    if not isinstance(runs.verifier, RecursiveRejection):
        return f"{said}."
    gain = float(best.value or 0.0) - float(runs.value or 0.0)
    part = gain / max(float(runs.value or 0.0), SAME)
    worth = next(words for least, words in _WORTH if part >= least)
    return (
        f"{said}, {gain:+.4f} ({100 * part:+.1f} %) over recursive rejection of i.i.d. drafts, "
        f"which engines run ({format_cell(runs.value)}): {worth}. Acceptance is not yet speed: "
        "otm advise times a pair of models."
    )


def _sureness(row: ComparisonRow) -> tuple[int, bool]:
    """Order rows by acceptance, of equal ones an exact one above a sampled one."""
    return round(float(row.value or 0.0) / SAME), row.exact is not None
