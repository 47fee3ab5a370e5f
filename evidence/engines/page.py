"""What the committed records of engines say, computed from them alone: verdicts and tables.

A configuration's texts are tested for the target's law by two tests of `otm.audit.evidence`, the
likelihood ratio and the distance, on their first one, two and three tokens: a target's own text is
called another law's with probability at most `FALSE_ALARM`, whatever the pair. What the rule should
yield is exact, and so is the spread of the number of steps, so a count beyond `DEVIATIONS` of these
says that the engine runs another rule.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evidence.engines.recording import DEPTH, Result
from evidence.engines.rules import RULES, calls, law
from otm._display.tabular import markdown, with_section
from otm.audit.evidence import (
    distance,
    distance_threshold,
    log_evidence,
    log_mean,
    variation_at_least,
    variation_interval,
)
from otm.audit.tiny_pair import UNIT
from otm.results.statistics import Estimate

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).with_name("results")
PAGE = ROOT / "docs" / "engines_run.md"

FALSE_ALARM = 1e-6
UNCERTAINTY = 0.01
"""Of each end of an interval of the total variation."""

DEVIATIONS = 4.0
"""Standard deviations between the number of steps and its mean: 6e-5 for a rule that runs."""

SHOWN = 2
"""The upper bound of the total variation is of so many tokens."""

HEAD = (
    "configuration",
    "T",
    "rule",
    "law of the text",
    "tokens a step, exact",
    "counted",
    "the engine's counters",
    "same text for a seed",
)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What a configuration's record says.

    Attributes:
        result: the record.
        lossless: whether the tests leave the target's law standing; None at temperature 0.
        variation: total variation of the first tokens' law from the target's, both ends.
        predicted: tokens a step of the rule, with what `DEVIATIONS` of luck allow; None if unknown.
        counted: tokens a step that were counted; None if the engine tells no steps.
        agrees: whether the number of steps is the rule's.
        notes: where the engine's counters differ from its texts.
    """

    result: Result
    lossless: bool | None
    variation: Estimate | None
    predicted: Estimate | None
    counted: float | None
    agrees: bool | None
    notes: tuple[str, ...]


def read(path: Path) -> dict[str, Any]:
    """Read a record."""
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return record | {"results": [Result(**found) for found in record["results"]]}


def records() -> dict[str, dict[str, Any]]:
    """Read the committed records by the engine's name."""
    return {path.stem: read(path) for path in sorted(RESULTS.glob("*.json"))}


def judge(record: dict[str, Any], found: Result) -> Verdict:
    """Compute what a configuration's record says."""
    logits = {role: np.array(record[role]) / UNIT for role in ("target", "draft")}
    lossless = variation = predicted = counted = agrees = None
    steps = found.counters.get("rounds")
    firsts = found.texts if found.first == "prompt" else 0
    if steps:
        counted = (found.tokens - firsts) / steps
    if found.temperature > 0:
        target = law(logits["target"], found.temperature)
        lossless, variation = _law(found, target, record["last"])
        accepted = RULES[found.rule].accepted
        if accepted is not None and steps:
            rows = accepted(target, logits["draft"], found.temperature)
            mean, deviation = _steps(found, target, rows, record)
            within = (found.tokens - firsts) / (
                mean + DEVIATIONS * deviation * np.array([0, 1, -1])
            )
            predicted = Estimate(
                *within, found.texts, math.erf(DEVIATIONS / 2**0.5), "tokens a step"
            )
            agrees = bool(abs(steps - mean) <= DEVIATIONS * deviation)
    return Verdict(
        found, lossless, variation, predicted, counted, agrees, tuple(_notes(found, firsts))
    )


def _law(found: Result, target: NDArray[np.float64], last: int) -> tuple[bool, Estimate]:
    """Test the texts, and bound the total variation of their law from the target's."""
    size = len(target)
    counts = np.array(found.sequences.split(), dtype=np.int64)
    if counts.size != size**DEPTH or counts.sum() + found.strange != found.texts:
        raise ValueError(
            f"The sequences of {found.name} must be {size**DEPTH} counts that add up, with "
            f"{found.strange} strange texts, to {found.texts}; they are {counts.size} and add up "
            f"to {counts.sum()}. Run the engine again."
        )
    logs, far, least, shown = [], False, 0.0, Estimate(0.0, 0.0, 1.0, found.texts, 0.0, "")
    for depth in range(1, DEPTH + 1):
        mass = target[last]
        for _ in range(depth - 1):
            mass = (mass.reshape(-1, size)[:, :, None] * target).ravel()
        seen = counts.reshape(size**depth, -1).sum(axis=1)
        # texts that no model here writes are a cell of their own, without mass
        seen, mass = np.append(seen, found.strange), np.append(mass, 0.0)
        logs.append(float(log_evidence(seen, mass)))
        alarm = FALSE_ALARM / (2 * DEPTH)
        far |= distance(seen, mass) > distance_threshold(mass, found.texts, false_alarm=alarm)
        least = max(least, variation_at_least(seen, mass, uncertainty=UNCERTAINTY / DEPTH))
        if depth == SHOWN:
            shown = variation_interval(seen, mass, uncertainty=2 * UNCERTAINTY)
    lossless = not far and log_mean(*logs) < math.log(2 / FALSE_ALARM)
    most = max(float(shown.high), least)
    return lossless, dataclasses.replace(shown, low=least, high=most)


def _steps(
    found: Result,
    target: NDArray[np.float64],
    accepted: NDArray[np.float64],
    record: dict[str, Any],
) -> tuple[float, float]:
    """Compute mean and standard deviation of the number of steps of all texts together."""
    if found.first == "step":
        mean, variance = calls(
            target, accepted, drafts=found.drafts, last=record["last"], length=record["length"]
        )
    else:
        each = np.array(
            [
                calls(target, accepted, drafts=found.drafts, last=y, length=record["length"] - 1)
                for y in range(len(target))
            ]
        )
        start = target[record["last"]]
        mean = float(start @ each[:, 0])
        variance = float(start @ (each[:, 1] + each[:, 0] ** 2)) - mean**2
    return found.texts * mean, math.sqrt(found.texts * max(variance, 0.0))


def _notes(found: Result, firsts: int) -> Iterable[str]:
    """Say where the engine's counters are not what its texts say."""
    told = found.counters
    steps, own = told.get("rounds"), told.get("steps")
    if "tokens" in told and told["tokens"] != found.tokens:
        yield f"tokens: {told['tokens']:,} told, {found.tokens:,} written"
    if steps and own is not None and own != steps:
        yield f"steps: {own:,} told, {steps:,} ran"
    if steps and "calls" in told and told["calls"] != steps:
        yield f"{told['calls'] / steps:.2f} calls a step"
    if steps and "accepted" in told:
        over = firsts + told["accepted"] + steps - found.tokens
        # a text that ends with a draft needs no token of the target's
        if not 0 <= over <= found.texts:
            yield f"first, accepted and steps miss the tokens by {over:,}"


def cells(verdict: Verdict) -> tuple[str, ...]:
    """Lay out a verdict as a row."""
    found = verdict.result
    if verdict.variation is None:
        text = "–"
        if found.of:
            text = "greedy, plain" if found.plain == found.of else "**not greedy's**"
    elif verdict.lossless:
        text = f"target's, TV < {verdict.variation.high:.2f}"
    else:
        text = f"**not the target's**, TV > {verdict.variation.low:.2f}"
    predicted = "–"
    if verdict.predicted is not None:
        value = verdict.predicted
        predicted = f"{float(value.value):.3f} ({float(value.low):.3f}–{float(value.high):.3f})"
    counted = "–" if verdict.counted is None else f"{verdict.counted:.3f}"
    if verdict.agrees is False:
        counted = f"**{counted}**"
    rate = "–"
    if found.counters.get("drafted"):
        rate = f"{found.counters.get('accepted', 0) / found.counters['drafted']:.3f} of drafts"
    told = "; ".join((*verdict.notes, rate) if rate != "–" else verdict.notes)
    seed = f"{found.again} of {found.of}; as without drafts {found.plain}" if found.of else "–"
    return (
        f"{found.name}: {found.options}" if found.options else found.name,
        f"{found.temperature:g}",
        RULES[found.rule].words,
        text,
        predicted,
        counted,
        told or "–",
        seed,
    )


def table(record: dict[str, Any]) -> str:
    """Lay out a record: what ran, and a row for each configuration."""
    packages = ", ".join(f"{name} {number}" for name, number in record["packages"].items())
    machine = record["machine"]
    head = (
        f"{packages}; Python {machine['python']}, {machine['processor']}, {machine['cores']} "
        f"cores; installed in {record['install_seconds']:.0f} s."
    )
    rows = (cells(judge(record, found)) for found in record["results"])
    return f"{head}\n\n{markdown(HEAD, rows)}"


def page(text: str) -> str:
    """Renew the sections of the page, one for each record."""
    for name, record in records().items():
        text = with_section(text, name, table(record))
    return text
