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

**Calls that drafted nothing** are in none of these counts: n-gram drafters find nothing, low
confidence stops a draft, and a last token leaves no room. The "eval time" line has all tokens: less
the first one and the accepted ones they are the target calls. A request in which nothing was
drafted has no other line. Of the totals, `b` counts requests, `g` calls for which
a drafter was asked, `a` calls that drafted. A recurrent or hybrid target runs again after a
rejection: twice as many calls as steps.

A rate is steps that accepted at least i drafts over steps, a mean counts the target's token. In
many versions the list has as many entries as the draft *model* drafts at most; n-gram drafters go
beyond, so that their lists are cut short and 1 + Σ rates is less than the mean. Where a line has no
number of steps, it is the whole number that mean, accepted tokens and rates agree on.

Source of the form: github.com/ggml-org/llama.cpp, tools/server/server-context.cpp and
common/speculative.cpp at 001d906a (`print_timings`, `common_speculative_print_stats`); the other
spellings are of earlier and later versions. examples/speculative/speculative.cpp prints the run.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections.abc import Iterator

import numpy as np

from otm.engines.records.document import LINE, Document, Form, count, number
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
_WRAPPED = re.compile(r"(draft acceptance(?: rate)? = *[0-9.]+)\s*\n\s*(?=\()")
_EVAL = re.compile(r"(?<!prompt )\beval time = *([0-9.]+) ms */ *(\d+) tokens")
_RUN = re.compile(r"^.*?\bn_(draft|predict|drafted|accept) += +(\d+) *$", re.MULTILINE)
_TASK = re.compile(r"\bid +(\d+) \| task +(-?\d+)")
_TOTALS = re.compile(
    r"statistics +([\w-]+): #calls\(b,g,a\) = *\d+ +(\d+) +(\d+),.*?#acc drafts = *(\d+), "
    r"#gen tokens = *(\d+), #acc tokens = *(\d+),(?:.*#acc rate/pos = \(([0-9., ]*[0-9])\))?"
)
_HALF = 0.005 + 1e-9  # two decimals
_STARTED = "speculative implementation"


@dataclasses.dataclass
class _Request:
    """The lines of one request: its evaluation, its sums, its rates.

    Attributes:
        ms, tokens: of the evaluation; None without its line.
        sums: accepted and drafted tokens; None where nothing was drafted.
        mean: tokens a step as printed; None in builds of 2025.
        rates: by position; None without trace level.
        drafting: whether the server speculated by then, as far as the lines before say.
    """

    ms: float | None = None
    tokens: int | None = None
    sums: tuple[int, int] | None = None
    mean: float | None = None
    rates: list[float] | None = None
    drafting: bool = False

    @functools.cached_property
    def calls(self) -> int | None:
        """The target's calls after the prompt's: tokens − 1 − accepted; None if unknown."""
        if self.tokens is None:
            return None
        return max(0, self.tokens - 1 - (self.sums or (0, 0))[0])

    @functools.cached_property
    def printed_steps(self) -> float:
        """The steps that drafted, from the rates or the mean; 0 if neither tells."""
        accepted, drafted = self.sums or (0, 0)
        if self.rates is not None and self.mean is not None:
            return _steps(self.rates, accepted, drafted, self.mean)
        over = (self.mean or 1.0) - 1.0
        if accepted and over > 0:
            steps = accepted / over
            whole = max(1, round(steps))
            return whole if abs(accepted / whole - over) <= _HALF else steps
        # A mean of 1.00 says nothing of the steps: they drafted one token each at least.
        return self.calls if self.calls is not None and self.calls <= drafted else 0

    @functools.cached_property
    def idle(self) -> float:
        """The calls that drafted nothing; the last token alone does not count."""
        if self.calls is None or self.sums is None or (self.rates is None and self.mean is None):
            return 0
        idle = self.calls - self.printed_steps
        return idle if idle > max(1, 0.01 * self.calls) else 0

    @functools.cached_property
    def steps(self) -> float:
        """The steps that drafted, 0 if unknown."""
        told = self.sums and self.mean is not None and (self.rates or self.sums[0])
        if self.idle or (told and self.rates):
            return self.printed_steps
        if self.calls is not None:
            return max(1, self.calls) if self.sums else 0
        return self.printed_steps if told else 0

    def tally(self, name: str, *, each: float, listed: bool) -> Tally:
        """Return the counts of the request, where others drafted `each` a step, and list rates."""
        if self.sums is None and self.rates:
            return Tally.of_rates(self.rates, name=name)
        if self.sums is None:
            empty = np.zeros(0) if listed else None
            return Tally(name, 0.0, 0.0, 0.0, empty, undrafted=float(self.calls or 0))
        steps, accepted = float(self.steps or self.sums[1] / each), self.sums[0]
        drafted, undrafted = float(max(self.sums)), float(self.idle)
        if not self.rates or self.mean is None:
            return Tally(name, steps, float(accepted), drafted, undrafted=undrafted)
        return Tally.of_survivors(
            np.round(np.multiply(self.rates, steps)),
            steps=steps,
            name=name,
            accepted=accepted,
            drafted=drafted,
            undrafted=undrafted,
        )


def _requests(document: Document) -> list[_Request]:
    """Return the requests of a log; lines of one belong together by slot and task, or by order."""
    found: list[_Request] = []
    last: dict[str | None, _Request] = {}
    drafting, line = False, ""
    for match in LINE.finditer(_WRAPPED.sub(r"\1 ", document.text)):
        before, line = line, match[0]
        if line == before:  # two handlers of one log
            continue
        drafting |= _STARTED in line
        if "statistics " in line and _TOTALS.search(line):
            drafting = True
            if found:
                found[-1].drafting = True
            continue
        ran, sums, rates = _EVAL.search(line), _SUMS.search(line), _RATES.search(line)
        if ran is None and sums is None and rates is None:
            continue
        task = _TASK.search(line)
        key = None if task is None else task[0]
        drafting |= sums is not None
        one = last.get(key) or last.get(None)
        if one is None or ran or (sums and one.sums) or (rates and one.rates):
            one = last[key] = _Request(drafting=drafting)
            found.append(one)
        if ran:
            one.ms, one.tokens = number(ran[1], "eval time"), count(ran[2], "tokens")
        if sums:
            one.sums = count(sums[1], "accepted"), count(sums[2], "generated")
            one.mean = None if sums[3] is None else number(sums[3], "mean len")
        one.rates = _numbers(rates[1]) if rates else one.rates
        one.drafting |= one.sums is not None
    return found


def _speculative(found: list[_Request]) -> list[_Request]:
    """Return the requests that a drafter served, those in which it drafted nothing among them.

    A request without a line of drafts is one of a drafter that declines, if this drafter declined
    in others, and a plain one pasted beside otherwise.
    """
    declines = any(one.idle for one in found)
    return [one for one in found if one.sums or one.rates or (one.drafting and declines)]


def eval_times(document: Document) -> Iterator[tuple[int, float]]:
    """Yield pairs (running requests, seconds a token) of the requests of a log.

    The speculative ones, if any is; 0 running where several slots served and the log does not say
    how many at a time.
    """
    if "eval time = " not in document.text:
        return
    found = document.once(_requests)
    slots = len({slot for slot, _ in _TASK.findall(document.text)})
    for one in _speculative(found) or found:
        if one.ms is not None and (one.tokens or 0) > 1:
            yield int(slots <= 1), one.ms / 1e3 / ((one.tokens or 0) - 1)


def _read(document: Document) -> AcceptanceRecord:
    length, unit = None, REQUEST
    found, totals = document.once(_requests), _totals(document.text)
    served = _speculative(found)
    if served:
        parts, notes = _of_requests(served), list(_request_notes(served, len(found)))
        notes += _thrown_away(totals)
    elif totals:
        unit, parts = "drafter", _drafters(totals)
        notes = ["Running totals of each drafter: requests are not told apart."]
        notes += _drafter_notes(parts)
    else:
        parts, length = _runs(document.text)
        notes = ["Totals of a run: no law."]
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


def _of_requests(served: list[_Request]) -> list[Tally]:
    """Return the counts of each request."""
    listed = any(one.rates for one in served)
    drafted = sum(one.sums[1] for one in served if one.sums and one.steps)
    steps = sum(one.steps for one in served)
    if not steps and not listed:
        accepted, drafted = next(one.sums for one in served if one.sums)
        raise InvalidParameter(
            f"{accepted} of {drafted} drafts were accepted; in how many steps follows from "
            'the line "eval time = … ms / … tokens" before it, which is missing. Keep it.'
        )
    # Where nothing tells the steps, they drafted as many as others.
    each = drafted / (steps or 1.0) or 1.0
    return [one.tally(f"request {i}", each=each, listed=listed) for i, one in enumerate(served, 1)]


def _request_notes(served: list[_Request], found: int) -> Iterator[str]:
    """Yield what a reader of the requests must know."""
    if not any(one.rates for one in served):
        yield "Means only: per-position rates are printed at trace level, -lv 4."
    else:
        yield "Rates have three decimals; a request's steps follow from them and its mean."
    idle, steps = (sum(getattr(one, name) for one in served) for name in ("idle", "steps"))
    if any(one.calls is None for one in served):
        yield (
            "Calls that drafted nothing, as n-gram drafters leave some, are not counted: eval time "
            "lines would tell them."
        )
    elif idle and abs(idle - steps) <= 0.02 * steps:
        yield (
            "There are two target calls for each step: a recurrent or hybrid target, which runs "
            f"again after a rejection, or a drafter that declined as often. {steps:,.0f} steps."
        )
    empty = sum(one.sums is None and not one.rates for one in served)
    if empty:
        yield f"In {empty} of {len(served)} requests nothing was drafted."
    if plain := found - len(served):
        yield f"{plain} requests without drafts are taken for plain decoding, and left out."


def _thrown_away(totals: list[Tally]) -> list[str]:
    """Return a note on calls in which a draft model ran for nothing."""
    last = {one.name: one for one in totals if one.name.startswith("draft")}
    return [
        f"{name} ran in {one.undrafted:,.0f} calls and threw its drafts away "
        "(--spec-draft-p-min): that time is in no cost of a draft."
        for name, one in last.items()
        if one.undrafted > 0.01 * one.calls
    ]


def _totals(text: str) -> list[Tally]:
    """Return the lines of totals; their calls are those for which the drafter was asked.

    The first rate is told where no rates are printed.
    """
    found = []
    for name, *totals, listed in _TOTALS.findall(text):
        asked, steps, first, drafted, accepted = (float(count(n, "a total")) for n in totals)
        rates = _numbers(listed) or [first / (steps or 1.0)] * (steps > 0)
        survivors = np.round(steps * np.array(rates, dtype=np.float64))
        found.append(Tally(name, steps, accepted, drafted, survivors, undrafted=asked - steps))
    return found


def _drafters(totals: list[Tally]) -> list[Tally]:
    """Return each drafter's totals, the last line of each start, added up.

    Drafters are asked in turn: calls that none of them drafted for are those of the most asked one.
    """
    starts: dict[str, list[Tally]] = {}
    for line in totals:
        known = starts.setdefault(line.name, [])
        if known and line.calls >= known[-1].calls and line.steps >= known[-1].steps:
            known.pop()
        known.append(line)
    asked = {name: sum(one.calls for one in lines) for name, lines in starts.items()}
    most = max(asked, key=lambda name: asked[name])
    idle = max(0.0, asked[most] - sum(one.steps for lines in starts.values() for one in lines))
    return [_drafter(lines, idle * (name == most)) for name, lines in starts.items()]


def _drafter(lines: list[Tally], undrafted: float) -> Tally:
    """Return the sum of a drafter's totals, one of each start."""
    name, steps = lines[0].name, sum(one.steps for one in lines)
    if not steps:
        return Tally(name, 0.0, 0.0, 0.0, np.zeros(0), undrafted=undrafted)
    accepted = sum(one.accepted for one in lines)
    lists = [one.survivors for one in lines if one.survivors is not None]
    return Tally.of_survivors(
        [sum(by_start) for by_start in itertools.zip_longest(*lists, fillvalue=0.0)],
        steps=steps,
        name=name,
        accepted=accepted,
        drafted=max(accepted, sum(one.drafted or 0.0 for one in lines)),
        undrafted=undrafted,
    )


def _drafter_notes(parts: list[Tally]) -> Iterator[str]:
    """Yield the mean of each of several drafters, and the calls that none of them took."""
    drafting = [part for part in parts if part.steps]
    for part in drafting if len(drafting) > 1 else ():
        mean = 1.0 + part.accepted / part.steps
        yield f"{part.name}: {mean:.3f} tokens a step in {part.steps:,.0f} steps that it drafted."
    if any(part.undrafted for part in parts) and len(parts) == 1:
        yield (
            "Calls for which it was asked and did not draft are taken to have drafted nothing: if "
            "another drafter took them, its line is missing."
        )


def _runs(text: str) -> tuple[list[Tally], int | None]:
    """Return the runs in summaries of `llama-speculative`, and their drafts a step."""
    runs: list[dict[str, int]] = [{}]
    for name, value in _RUN.findall(text):
        if name in runs[-1]:
            runs.append({})
        runs[-1][name] = count(value, name)
    parts = [
        Tally(
            f"run {i}",
            float(run["predict"] - run["accept"]),
            float(run["accept"]),
            float(max(run["drafted"], run["accept"])),
        )
        for i, run in enumerate(runs, 1)
        if run.keys() >= _SUMMARY
    ]
    lengths = {run.get("draft") for run in runs}
    return parts, lengths.pop() if len(lengths) == 1 else None


_SUMMARY = {"predict", "drafted", "accept"}


def _steps(rates: list[float], accepted: int, drafted: int, mean: float) -> int:
    """Return the number of steps that the mean allows and for which rates × steps are whole."""
    if not accepted:
        return max(1, round(drafted / len(rates)))
    over = mean - 1
    least = max(1, int(np.ceil(accepted / (over + _HALF))))
    # A mean of 1.00 is no bound from above: then every step drafted, and as much as the list holds.
    told = over > _HALF
    most = int(accepted / (over - _HALF)) if told else drafted
    centre = accepted / over if told else drafted / len(rates)
    candidates = np.arange(least, max(least, min(most, least + 100_000)) + 1)
    counts = np.outer(candidates, rates)
    misses = np.abs(counts - np.round(counts)).max(axis=1) / candidates
    fits = np.flatnonzero(misses <= 0.5e-3)
    near = fits if fits.size else np.arange(candidates.size)
    return int(candidates[near[np.argmin(np.abs(candidates[near] - centre))]])


def _numbers(text: str) -> list[float]:
    return [number(value, "a rate") for value in re.findall(r"\d+(?:\.\d+)?", text)]


def _recognises(document: Document) -> bool:
    text = _WRAPPED.sub(r"\1 ", document.text)
    printed = _SUMS.search(text) or _RATES.search(text) or _TOTALS.search(text)
    run = {name for name, _ in _RUN.findall(text)}
    return printed is not None or run >= _SUMMARY


FORM = Form(
    name="llama.cpp log",
    marks=(
        'lines with "draft acceptance", "acceptance rate per position", "acc per pos" or '
        '"statistics …: #calls(b,g,a) =", or "n_predict", "n_drafted" and "n_accept"'
    ),
    recognises=_recognises,
    read=_read,
)
