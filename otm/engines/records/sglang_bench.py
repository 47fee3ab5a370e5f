"""`sglang.bench_serving --output-file`: JSON lines with a mean, `accept_length`.

The mean counts the root. It is the server's average since it started, over all of its steps: no
law, no number of steps.

Source of the form: github.com/sgl-project/sglang, python/sglang/bench_serving.py at 0033168f.
"""

from __future__ import annotations

from typing import Any

from otm.engines.records.document import Document, Form, number
from otm.engines.records.record import AcceptanceRecord
from otm.engines.records.tally import Tally
from otm.errors import InvalidParameter

_KEYS = ("accept_length", "request_throughput", "mean_ttft_ms")


def _read(document: Document) -> AcceptanceRecord:
    runs = [run for run in document.objects(*_KEYS) if run["accept_length"] is not None]
    if not runs:
        raise InvalidParameter(
            "accept_length must be a number in some run; it is null in all. Turn speculation on."
        )
    return AcceptanceRecord(
        form="SGLang bench",
        unit="run",
        parts=tuple(_tally(run, f"run {i}") for i, run in enumerate(runs, start=1)),
        convention="accept_length counts the root",
        notes=("A mean of the whole server: record meta_info's histogram to plan with.",),
    )


def _tally(run: dict[str, Any], name: str) -> Tally:
    mean = number(run["accept_length"], "accept_length")
    if mean < 1:
        raise InvalidParameter(
            f"accept_length counts the root, so it is at least 1; got {mean:g}. Check the export."
        )
    return Tally(name=name, steps=1.0, accepted=mean - 1.0, counted=False)


FORM = Form(
    name="SGLang bench",
    marks='JSON lines with "accept_length", "request_throughput" and "mean_ttft_ms"',
    recognises=lambda document: any(True for _ in document.objects(*_KEYS)),
    read=_read,
)
