"""SpecForge's benchmark of an SGLang server, `--output-json`: means only, of two kinds.

`average_acceptance_length` is the mean over requests of SGLang's `spec_accept_length`;
`output_tokens`/`spec_verify_count` the pooled one. Both count the root.

Source of the form: github.com/sgl-project/SpecForge, specforge/benchmarks/sglang.py at a6b6b023
(`BenchmarkResult`).
"""

from __future__ import annotations

from typing import Any

from otm.engines.records.document import Document, Form, count, number
from otm.engines.records.record import AcceptanceRecord
from otm.engines.records.tally import Tally
from otm.errors import InvalidParameter

_KEYS = ("average_acceptance_length", "spec_verify_count", "output_tokens")


def _read(document: Document) -> AcceptanceRecord:
    runs = [run for run in document.objects(*_KEYS) if run["spec_verify_count"]]
    if not runs:
        raise InvalidParameter(
            "spec_verify_count must be above 0 in some run; it is null or 0 in all. Turn "
            "speculation on."
        )
    means = [
        run["average_acceptance_length"]
        for run in runs
        if run["average_acceptance_length"] is not None
    ]
    return AcceptanceRecord(
        form="SpecForge benchmark",
        unit="run",
        parts=tuple(_tally(run) for run in runs),
        convention="lengths count the root",
        reported_mean=number(means[0], "average_acceptance_length")
        if len(runs) == len(means) == 1
        else None,
        notes=("Means only: record meta_info's histogram to plan with.",),
    )


def _tally(run: dict[str, Any]) -> Tally:
    steps = count(run["spec_verify_count"], "spec_verify_count")
    tokens = count(run["output_tokens"], "output_tokens")
    samples = count(run.get("samples", 0), "samples")
    # Completion tokens include that of each prefill, which no verification emitted.
    return Tally(
        name=str(run.get("dataset", "run"))[:40],
        steps=float(steps),
        accepted=float(max(0, tokens - samples - steps)),
    )


FORM = Form(
    name="SpecForge benchmark",
    marks='JSON with "average_acceptance_length", "spec_verify_count" and "output_tokens"',
    recognises=lambda document: any(True for _ in document.objects(*_KEYS)),
    read=_read,
)
