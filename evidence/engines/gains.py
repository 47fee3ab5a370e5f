"""What the committed records of trained pairs say: tokens a call, as counted and as computed.

Needs neither an engine nor torch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from evidence.engines.page import DEVIATIONS
from evidence.engines.rules import RULES
from figures.engines import NAMES, counted, exact, numbers, results
from otm._display.tabular import markdown

WORDS = {
    **{name: rule.words for name, rule in RULES.items()},
    "match-noise": "match with the target's sample, drafts on its noise",
    "block": "block verification",
    "refined-scores": "refined scores",
}

HEAD = ("engine", "configuration", "T", "rule", "counted", "exact", "best")
SECONDS = ("s", "s, no drafts")
"""Columns where texts without drafts were timed as well."""


def deviations(found: dict[str, Any]) -> float:
    """Return by how many standard deviations the steps are off those of the rule.

    0 for a rule whose steps are not known.
    """
    steps, due = numbers(found, "steps"), numbers(found, "predicted")
    if not len(due):
        return 0.0
    # equal up to the digits that are kept
    spread = max(float((steps - due).std(ddof=1)) * len(due) ** 0.5, 1e-2)
    return float((steps - due).sum()) / spread


def table(pair: str) -> str:
    """Lay out a pair's records, below a line on the texts of argmax drafts, which leave no luck."""
    drafting = [
        (engine, one)
        for stem, engine in NAMES.items()
        for one in results(stem, pair)
        if one["rule"] != "none"
    ]
    same = [
        numbers(one, "steps") == numbers(one, "predicted")
        for _, one in drafting
        if one["rule"] == "match-argmax"
    ]
    plain = {
        (engine, one["temperature"]): one["seconds"]
        for stem, engine in NAMES.items()
        for one in results(stem, pair)
        if one["rule"] == "none"
    }
    timed = HEAD + SECONDS if plain else HEAD
    rows = (_cells(engine, one, plain) for engine, one in drafting)
    return (
        "Given a text, the steps of argmax drafts are certain: as many as computed in "
        f"{np.sum(same):,} of {np.size(same):,} texts.\n\n"
        f"{markdown(timed, rows)}"
    )


def _cells(
    engine: str, found: dict[str, Any], plain: dict[tuple[str, float], float]
) -> tuple[str, ...]:
    value, due = counted(found), exact(found, "predicted")
    told = f"{float(value.value):.2f} ({float(value.low):.2f}–{float(value.high):.2f})"
    seconds = (found["seconds"], plain[engine, found["temperature"]]) if plain else ()
    return (
        engine,
        f"{found['name']}: {found['options']}",
        f"{found['temperature']:g}",
        WORDS[found["rule"]],
        told if abs(deviations(found)) <= DEVIATIONS else f"**{told}**",
        "–" if due is None else f"{due:.2f}",
        f"{exact(found, 'best'):.2f}",
        *(f"{some:.0f}" for some in seconds),
    )
