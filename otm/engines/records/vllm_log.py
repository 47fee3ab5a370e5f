"""vLLM's log line, one for each window of some seconds.

"SpecDecoding metrics: Mean acceptance length: 2.40, … Accepted: 14 tokens, Drafted: 20 tokens,
Per-position acceptance rate: 0.800, 0.600, Avg Draft acceptance rate: 70.0%". The mean counts the
bonus token; rates are steps that accepted at least i drafts over steps, to three decimals. A
window's steps are not printed: accepted tokens over the sum of the rates, or drafted tokens over
positions where nothing was accepted, give them to the rounding. Windows cut requests in pieces;
they are no independent samples.

Source of the form: github.com/vllm-project/vllm, vllm/v1/spec_decode/metrics.py at 016a8587
(`SpecDecodingLogging.log`).
"""

from __future__ import annotations

import math
import re

from otm.engines.records.document import Document, Form, count, number
from otm.engines.records.record import AcceptanceRecord
from otm.engines.records.tally import Tally

_LINE = re.compile(r"^.*Per-position acceptance rate: ([0-9., ]*[0-9]).*$", re.MULTILINE)
_ACCEPTED = re.compile(r"\bAccepted: (\d+) tokens")
_DRAFTED = re.compile(r"\bDrafted: (\d+) tokens")


def _read(document: Document) -> AcceptanceRecord:
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
    marks='lines with "Per-position acceptance rate:"',
    recognises=lambda document: _LINE.search(document.text) is not None,
    read=_read,
)
