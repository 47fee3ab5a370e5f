"""llama.cpp's log in its three spellings, survival to three decimals in each.

* "draft acceptance = 0.7 (14 accepted / 20 generated), mean acceptance length = 2.40, acceptance
  rate per position = (0.800, 0.600)": one line for each request;
* "… mean len = 2.40" and on a line of its own, at trace level, "acc per pos = (0.800, 0.600)": the
  same in newer versions;
* "statistics draft-mtp: #calls(b,g,a) = 1 10 10, … #gen tokens = 20, #acc tokens = 14, #mean acc
  len = 2.40, #acc rate/pos = (0.800, 0.600)": running totals of each drafter, the last one counts;
  a smaller number of calls is a new start.

Without trace level there are the first halves of the first two only: each request's mean.

A rate is steps that accepted at least i drafts over steps, a mean counts the target's token. In
many versions the list has as many entries as the draft *model* drafts at most; n-gram drafters go
beyond, so that their lists are cut short and 1 + Σ rates is less than the mean. Where a line has no
number of steps, it is the whole number that mean, accepted tokens and rates agree on.

Source of the form: github.com/ggml-org/llama.cpp, tools/server/server-context.cpp and
common/speculative.cpp at 001d906a (`print_timings`, `common_speculative_print_stats`); the other
spellings are of earlier and later versions.
"""

from __future__ import annotations

import re

import numpy as np

from otm.engines.records.document import Document, Form, count, number
from otm.engines.records.record import REQUEST, AcceptanceRecord
from otm.engines.records.tally import Tally
from otm.errors import InvalidParameter

_RATES = re.compile(
    r"(?:acceptance rate per position|acc per pos|#acc rate/pos) = \(([0-9., ]*[0-9])\)"
)
_SUMS = re.compile(
    r"draft acceptance = *[0-9.]+ *\( *(\d+) accepted */ *(\d+) generated\), mean (?:acceptance "
    r"length|len) = *([0-9.]+)"
)
_TASK = re.compile(r"\bid +(\d+) \| task +(-?\d+)")
_TOTALS = re.compile(
    r"statistics +([\w-]+): #calls\(b,g,a\) = *\d+ +\d+ +(\d+),.*?#gen tokens = *(\d+), #acc "
    r"tokens = *(\d+)"
)


def _read(document: Document) -> AcceptanceRecord:
    lines = [
        line
        for line in document.text.splitlines()
        if " = (" in line or "draft acceptance = " in line
    ]
    requests = _requests(lines)
    if not requests and not any(_RATES.search(line) for line in lines):
        unit, parts = REQUEST, _means(lines)
        notes = ["Means only: per-position rates are printed at trace level, -lv 4."]
    elif requests:
        unit, parts = REQUEST, requests
        notes = ["Rates have three decimals; a request's steps follow from them and its mean."]
    else:
        unit, parts = "drafter", _drafters(lines)
        notes = ["Running totals of each drafter: requests are not told apart."]
    if any(part.unlocated > 0.02 * part.accepted for part in parts):
        notes.append(
            "Lists are cut short, as n-gram drafters' are: 1 + Σ rates is less than the mean."
        )
    return AcceptanceRecord(
        form="llama.cpp log",
        unit=unit,
        parts=tuple(parts),
        convention="the mean counts the target's token",
        notes=tuple(notes),
    )


def _requests(lines: list[str]) -> list[Tally]:
    """Return the requests whose rates are printed."""
    # Their sums are on the same line, or on an earlier one of the same task.
    found: list[Tally] = []
    sums: dict[tuple[str, str] | None, tuple[str, str, str]] = {}
    for line in lines:
        task = _TASK.search(line)
        key = None if task is None else (task.group(1), task.group(2))
        if match := _SUMS.search(line):
            sums[key] = (match.group(1), match.group(2), match.group(3))
        if "#acc rate/pos" not in line and (match := _RATES.search(line)):
            name = f"request {len(found) + 1}"
            told = sums.pop(key, None)
            rates = _numbers(match.group(1))
            found.append(
                Tally.of_rates(rates, name=name) if told is None else _request(rates, told, name)
            )
    return found


def _means(lines: list[str]) -> list[Tally]:
    """Return each request's mean, to the two decimals that are printed."""
    means = [number(match.group(3), "mean len") for line in lines if (match := _SUMS.search(line))]
    return [
        Tally(name=f"request {i}", steps=1.0, accepted=max(0.0, mean - 1.0), counted=False)
        for i, mean in enumerate(means, 1)
    ]


def _request(rates: list[float], told: tuple[str, str, str], name: str) -> Tally:
    accepted, drafted = count(told[0], "accepted"), count(told[1], "generated")
    mean = number(told[2], "mean len")
    steps = _steps(rates, accepted, drafted, mean)
    return Tally.of_survivors(
        np.round(np.multiply(rates, steps)),
        steps=steps,
        name=name,
        accepted=accepted,
        drafted=max(drafted, accepted),
    )


def _steps(rates: list[float], accepted: int, drafted: int, mean: float) -> int:
    """Return the number of steps that the mean allows and that makes rates × steps whole."""
    if not accepted:
        return max(1, round(drafted / len(rates)))
    half = 0.5e-2  # two decimals
    least = max(1, int(np.ceil(accepted / (mean - 1 + half))))
    most = int(accepted / (mean - 1 - half)) if mean - 1 > half else accepted * 200
    candidates = np.arange(least, max(least, min(most, least + 100_000)) + 1)
    counts = np.outer(candidates, rates)
    misses = np.abs(counts - np.round(counts)).max(axis=1) / candidates
    fits = np.flatnonzero(misses <= 0.5e-3)
    centre = accepted / max(mean - 1, half)
    near = fits if fits.size else np.arange(candidates.size)
    return int(candidates[near[np.argmin(np.abs(candidates[near] - centre))]])


def _drafters(lines: list[str]) -> list[Tally]:
    """Return each drafter's totals: the last line of each start, added up."""
    runs: dict[str, list[tuple[int, int, int, list[float]]]] = {}
    for line in lines:
        totals, rates = _TOTALS.search(line), _RATES.search(line)
        if totals is None or rates is None:
            continue
        name = totals.group(1)
        calls, drafted, accepted = (count(value, "a total") for value in totals.groups()[1:])
        known = runs.setdefault(name, [])
        if known and calls >= known[-1][0]:
            known.pop()
        known.append((calls, drafted, accepted, _numbers(rates.group(1))))
    parts = []
    for name, starts in runs.items():
        steps, drafted, accepted = (
            sum(one) for one in zip(*(start[:3] for start in starts), strict=True)
        )
        if not steps:
            continue
        survivors = np.zeros(max(len(start[3]) for start in starts))
        for start in starts:
            survivors[: len(start[3])] += np.round(np.multiply(start[3], start[0]))
        parts.append(
            Tally.of_survivors(
                survivors, steps=steps, name=name, accepted=accepted, drafted=max(drafted, accepted)
            )
        )
    if not parts:
        raise InvalidParameter(
            'The log must hold "#acc rate/pos = (" behind "statistics …: #calls(b,g,a) = …" with '
            "calls; none is complete. Keep whole lines."
        )
    return parts


def _numbers(text: str) -> list[float]:
    return [number(value, "a rate") for value in re.findall(r"\d+(?:\.\d+)?", text)]


FORM = Form(
    name="llama.cpp log",
    marks=(
        'lines with "draft acceptance =", "acceptance rate per position = (", "acc per pos = (" or '
        '"#acc rate/pos = ("'
    ),
    recognises=lambda document: (
        (_RATES.search(document.text) or _SUMS.search(document.text)) is not None
    ),
    read=_read,
)
