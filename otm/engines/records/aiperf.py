"""AIPerf's `SpecDecodeAcceptanceRecord`, one for each request, as JSON or JSON lines.

vLLM's payload with "engine" beside it and a sparse histogram: an object from accepted drafts, as
text, to steps. The mean counts the bonus token, the histogram does not. `num_spec_tokens` is null
where drafting has no fixed length.

Source of the form: github.com/ai-dynamo/aiperf, src/aiperf/common/models/spec_decode_models.py at
7bb5f5c8.
"""

from __future__ import annotations

from typing import Any

from otm.engines.records.document import Document, Form
from otm.engines.records.per_request import KEYS, length_of, payload_tally
from otm.engines.records.record import REQUEST, AcceptanceRecord


def _payloads(document: Document) -> list[dict[str, Any]]:
    return list(document.objects("engine", *KEYS))


def _read(document: Document) -> AcceptanceRecord:
    payloads = _payloads(document)
    engines = sorted({str(payload["engine"])[:20] for payload in payloads})
    return AcceptanceRecord(
        form=f"AIPerf records of {', '.join(engines)}",
        unit=REQUEST,
        parts=tuple(
            payload_tally(payload, name=f"request {i}")
            for i, payload in enumerate(payloads, start=1)
        ),
        convention="the histogram counts drafts only, mean_acceptance_length the bonus token too",
        length=length_of(payloads),
    )


FORM = Form(
    name="AIPerf SpecDecodeAcceptanceRecord",
    marks='JSON with "engine", "acceptance_histogram", "num_spec_steps", …',
    recognises=lambda document: bool(_payloads(document)),
    read=_read,
)
