"""llama.cpp's log in three spellings, each with survival to three decimals.

* "draft acceptance = 0.7 (14 accepted / 20 generated), mean acceptance length = 2.40, acceptance
  rate per position = (0.800, 0.600)": one line for each request;
* "… mean len = 2.40" and on a line of its own, at trace level, "acc per pos = (0.800, 0.600)": the
  same in newer versions;
* "statistics draft-mtp: #calls(b,g,a) = 1 10 10, … #gen tokens = 20, #acc tokens = 14, #mean acc
  len = 2.40, #acc rate/pos = (0.800, 0.600)": running totals of each drafter, the last one counts;
  a smaller number of calls is a new start.

Without trace level there are the first halves of the first two only: each request's mean. Builds of
2025 print no mean: "draft acceptance rate = 0.63415 (78 accepted / 123 generated)"; their steps are
the tokens of the line "eval time = 2187.50 ms / 125 tokens (…)" before it, less the accepted ones
and the first, which the prompt's pass samples. `llama-speculative` prints "n_draft = 16",
"n_predict = 125", "n_drafted = 123" and "n_accept = 78" of one run, where every step predicts what
it accepts and one token more.

A rate is steps that accepted at least i drafts over steps, a mean counts the target's token. In
many versions the list has as many entries as the draft *model* drafts at most; n-gram drafters go
beyond, so that their lists are cut short and 1 + Σ rates is less than the mean. Where a line has no
number of steps, it is the whole number that mean, accepted tokens and rates agree on.

Source of the form: github.com/ggml-org/llama.cpp, tools/server/server-context.cpp and
common/speculative.cpp at 001d906a (`print_timings`, `common_speculative_print_stats`); the other
spellings are of earlier and later versions. examples/speculative/speculative.cpp prints the run.
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
    r"draft acceptance(?: rate)? = *[0-9.]+ *\( *(\d+) accepted */ *(\d+) generated\)"
    r"(?:, mean (?:acceptance length|len) = *(\d+\.\d\d))?"
)
EVAL = re.compile(r"(?<!prompt )\beval time = *([0-9.]+) ms */ *(\d+) tokens")
_RUN = re.compile(r"^.*?\bn_(draft|predict|drafted|accept) += +(\d+) *$", re.MULTILINE)
_TASK = re.compile(r"\bid +(\d+) \| task +(-?\d+)")
_TOTALS = re.compile(
    r"statistics +([\w-]+): #calls\(b,g,a\) = *\d+ +\d+ +(\d+),.*?#gen tokens = *(\d+), #acc "
    r"tokens = *(\d+)"
)


def _read(document: Document) -> AcceptanceRecord:
    marks = (" = (", "draft acceptance", "eval time = ")
    lines = [line for line in document.text.splitlines() if any(mark in line for mark in marks)]
    run = {name: count(value, name) for name, value in _RUN.findall(document.text)}
    length = None
    if not any(_RATES.search(line) for line in lines):
        unit, parts = REQUEST, _means(lines) or _runs(run)
        length = run.get("draft")
        notes = ["Means only: per-position rates are printed at trace level, -lv 4."]
    elif requests := _requests(lines):
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
        length=length,
        notes=tuple(notes),
    )


def _requests(lines: list[str]) -> list[Tally]:
    """Return the requests with printed rates."""
    # Their sums are on the same line, or on an earlier one of the same task.
    found: list[Tally] = []
    sums: dict[tuple[str, str] | None, tuple[str, str, str]] = {}
    for line in lines:
        task = _TASK.search(line)
        key = None if task is None else (task.group(1), task.group(2))
        if (match := _SUMS.search(line)) and match.group(3):
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
    """Return the sums of each request, with steps from the mean or from the number of tokens."""
    told: list[tuple[int, int, float | None]] = []
    tokens: int | None = None
    for line in lines:
        if match := EVAL.search(line):
            tokens = count(match.group(2), "tokens")
        elif match := _SUMS.search(line):
            accepted, drafted = (count(match.group(i), "drafts") for i in (1, 2))
            over = number(match.group(3) or 1, "mean len") - 1.0
            steps = None if tokens is None else max(1.0, tokens - 1.0 - accepted)
            told.append((accepted, drafted, accepted / over if accepted and over > 0 else steps))
            tokens = None
    # Where nothing was accepted, no mean tells the steps: they drafted as many as others.
    known = [(drafted, steps) for _, drafted, steps in told if steps]
    if told and not known:
        raise InvalidParameter(
            f"{told[0][0]} of {told[0][1]} drafts were accepted; in how many steps follows from "
            'the line "eval time = … ms / … tokens" before it, which is missing. Keep it.'
        )
    each = sum(drafted for drafted, _ in known) / (sum(steps for _, steps in known) or 1.0)
    return [
        Tally(f"request {i}", steps or drafted / (each or 1.0), float(accepted), float(drafted))
        for i, (accepted, drafted, steps) in enumerate(told, 1)
    ]


def _runs(run: dict[str, int]) -> list[Tally]:
    """Return the run in the summary of `llama-speculative`."""
    steps = float(run["predict"] - run["accept"])
    return [Tally("run", steps, float(run["accept"]), float(max(run["drafted"], run["accept"])))]


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
    """Return the number of steps that the mean allows and for which rates × steps are whole."""
    if not accepted:
        return max(1, round(drafted / len(rates)))
    half = 0.5e-2  # two decimals
    over = mean - 1
    least = max(1, int(np.ceil(accepted / (over + half))))
    # A mean of 1.00 is no bound from above: then every step drafted, and as much as the list holds.
    told = over > half
    most = int(accepted / (over - half)) if told else drafted
    centre = accepted / over if told else drafted / len(rates)
    candidates = np.arange(least, max(least, min(most, least + 100_000)) + 1)
    counts = np.outer(candidates, rates)
    misses = np.abs(counts - np.round(counts)).max(axis=1) / candidates
    fits = np.flatnonzero(misses <= 0.5e-3)
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


def _recognises(document: Document) -> bool:
    printed = _RATES.search(document.text) or _SUMS.search(document.text)
    run = {name for name, _ in _RUN.findall(document.text)}
    return printed is not None or run >= {"predict", "drafted", "accept"}


FORM = Form(
    name="llama.cpp log",
    marks=(
        'lines with "draft acceptance =", "draft acceptance rate =", "acceptance rate per position '
        '= (", "acc per pos = (" or "#acc rate/pos = (", or "n_predict =", "n_drafted =" and '
        '"n_accept ="'
    ),
    recognises=_recognises,
    read=_read,
)
