"""vLLM's log line, one for each window of some seconds.

"SpecDecoding metrics: Mean acceptance length: 2.40, … Accepted: 14 tokens, Drafted: 20 tokens,
Per-position acceptance rate: 0.800, 0.600, Avg Draft acceptance rate: 70.0%". The mean counts the
bonus token; rates are steps that accepted at least i drafts over steps, to three decimals. A
window's steps are not printed: accepted tokens over the sum of the rates, or drafted tokens over
positions where nothing was accepted, give them to the rounding. Windows cut requests in pieces;
they are no independent samples.

vLLM V0: "Speculative metrics: Draft acceptance rate: 0.642, System efficiency: 0.598, Number of
speculative tokens: 3, Number of accepted tokens: 8547, Number of draft tokens: 13311, Number of
emitted tokens: 10616." Totals since the start, the target's tokens emitted too; a smaller total is
a new start. Its accepted tokens are counted wherever they stand, also behind a rejected one: 1 +
8547/4437 is more than the 10616/4437 tokens that a step emitted.

Source of the form: github.com/vllm-project/vllm, vllm/v1/spec_decode/metrics.py at 016a8587
(`SpecDecodingLogging.log`); of V0, as printed by version 0.6.3.
"""

from __future__ import annotations

import math
import re

from otm.engines.records.document import Document, Form, count, number
from otm.engines.records.record import AcceptanceRecord
from otm.engines.records.tally import Tally

_LINE = re.compile(r"^.*Per-position acceptance rate: ([0-9., ]*[0-9]).*$", re.MULTILINE)
_ACCEPTED = re.compile(r"\bAccepted: (\d+) tokens")
_TOTALS = re.compile(
    r"Number of speculative tokens: (\d+), Number of accepted tokens: \d+, Number of draft tokens: "
    r"(\d+), Number of emitted tokens: (\d+)\."
)
_DRAFTED = re.compile(r"\bDrafted: (\d+) tokens")


def _read(document: Document) -> AcceptanceRecord:
    totals = _TOTALS.findall(document.text)
    if totals:
        return _v0([tuple(count(value, "a total") for value in line) for line in totals])
    parts = [
        _window(match.group(0), match.group(1), f"window {i}")
        for i, match in enumerate(_LINE.finditer(document.text), 1)
    ]
    counted = [part for part in parts if part.counted]
    return AcceptanceRecord(
        form="vLLM log",
        unit="window",
        parts=tuple(counted if len(counted) == len(parts) else parts),
        convention="its mean counts the bonus token",
        notes=("Rates have three decimals; steps follow from them and the accepted tokens.",),
    )


def _v0(lines: list[tuple[int, ...]]) -> AcceptanceRecord:
    """Return the sum of the last totals of each start."""
    following = [*lines[1:], (0, 0, 0)]
    ends = [line for line, after in zip(lines, following, strict=True) if after[1] < line[1]]
    lengths = {length for length, _, _ in ends}
    parts = [
        Tally("server", float(steps), float(max(0, emitted - steps)), float(drafted))
        for length, drafted, emitted in ends
        if (steps := drafted // max(1, length))
    ]
    return AcceptanceRecord(
        form="vLLM V0 log",
        unit="server",
        parts=tuple(parts),
        convention="emitted tokens, the target's too; accepted ones are not of a prefix",
        length=lengths.pop() if len(lengths) == 1 else None,
        notes=("Totals since the server started.",),
    )


def _window(line: str, rates: str, name: str) -> Tally:
    values = [number(value, "a rate") for value in re.findall(r"\d+(?:\.\d+)?", rates)]
    accepted, drafted = _ACCEPTED.search(line), _DRAFTED.search(line)
    if accepted is None or drafted is None:
        return Tally.of_rates(values, name=name)
    tokens, tried = count(accepted.group(1), "Accepted"), count(drafted.group(1), "Drafted")
    total = math.fsum(values)
    steps = tokens / total if tokens and total else tried / len(values)
    if not steps:
        return Tally(name=name, steps=0.0, accepted=0.0)
    return Tally.of_survivors(
        [value * steps for value in values], steps=steps, name=name, accepted=tokens, drafted=tried
    )


FORM = Form(
    name="vLLM log",
    marks='lines with "Per-position acceptance rate:" or "Number of emitted tokens:"',
    recognises=lambda document: (
        (_LINE.search(document.text) or _TOTALS.search(document.text)) is not None
    ),
    read=_read,
)
