"""`vllm bench serve --save-result`: JSON with counts and rates of one run.

`spec_decode_num_drafts`, `…_draft_tokens`, `…_accepted_tokens`, `…_acceptance_rate` in per cent,
`…_acceptance_length` with the bonus token, `…_per_position_acceptance_rates`: accepted at a
position over drafts, as fractions; tools that post-process the file write these in per cent as
well. Which it is follows from the counts: the rates add up to accepted tokens over drafts, or to a
hundred times that; neither is an error.

Source of the form: github.com/vllm-project/vllm, vllm/benchmarks/serve.py at 009e6d4a.
"""

from __future__ import annotations

import math
from typing import Any

from otm.engines.positions import ROUNDING
from otm.engines.records.document import Document, Form, count, number
from otm.engines.records.record import AcceptanceRecord
from otm.engines.records.tally import Tally, near_count
from otm.errors import InvalidParameter

_RATES = "spec_decode_per_position_acceptance_rates"
_KEYS = (_RATES, "spec_decode_num_drafts")


def _read(document: Document) -> AcceptanceRecord:
    parts = tuple(_run(run, f"run {i}") for i, run in enumerate(document.objects(*_KEYS), start=1))
    return AcceptanceRecord(
        form="vLLM bench",
        unit="run",
        parts=parts,
        convention="acceptance_length counts the bonus token, rates do not",
    )


def _run(run: dict[str, Any], name: str) -> Tally:
    drafts = count(run["spec_decode_num_drafts"], "spec_decode_num_drafts")
    accepted = count(_either(run, "accepted_tokens"), "spec_decode_accepted_tokens")
    drafted = count(_either(run, "draft_tokens"), "spec_decode_draft_tokens")
    if not isinstance(run[_RATES], list):
        raise InvalidParameter(
            f"{_RATES} must be a list; got {run[_RATES]!r:.40}. Check the export."
        )
    rates = [number(rate, _RATES) for rate in run[_RATES]]
    if not drafts:
        return Tally(name=name, steps=0.0, accepted=0.0)
    mean, total = accepted / drafts, math.fsum(rates)
    slack = ROUNDING * max(1, len(rates))
    scales = [scale for scale in (1.0, 100.0) if abs(total - scale * mean) <= scale * slack]
    if not scales or (len(scales) > 1 and total > 0):
        raise InvalidParameter(
            f"{_RATES} must add up to accepted tokens over drafts, {mean:.6g}, or to "
            f"{100 * mean:.6g} in per cent; they add up to {total:.6g}. Check the export."
        )
    counts = [near_count(rate / scales[0] * drafts) for rate in rates]
    return Tally.of_survivors(counts, steps=drafts, name=name, accepted=accepted, drafted=drafted)


def _either(run: dict[str, Any], name: str) -> object:
    """Return a count whose key has "num_" in some versions."""
    return run.get(f"spec_decode_{name}", run.get(f"spec_decode_num_{name}"))


FORM = Form(
    name="vLLM bench",
    marks=f'JSON with "{_RATES}" and "spec_decode_num_drafts"',
    recognises=lambda document: any(True for _ in document.objects(*_KEYS)),
    read=_read,
)
