"""vLLM's per-request metrics, `metrics.speculative_decoding` of a response, summary or detailed.

Responses as JSON, JSON lines or server-sent events. `acceptance_histogram` counts steps by accepted
drafts and excludes the bonus token; `mean_acceptance_length` counts it. With
`--per-request-spec-decode-metrics detailed`, `per_step_accepted` and `per_step_drafted` list every
step. The object is null for several sequences of one request, which are left out.

Source of the form: github.com/vllm-project/vllm,
docs/features/speculative_decoding/acceptance_metrics.md, pull request 48915; at cd199986, an
earlier draft, the object is that of a choice, `speculative_decoding_stats`, and its histogram
sparse: read as well.
"""

from __future__ import annotations

from typing import Any

from otm.engines.records.document import Document, Form
from otm.engines.records.per_request import KEYS, length_of, payload_tally
from otm.engines.records.record import REQUEST, AcceptanceRecord


def _payloads(document: Document) -> list[dict[str, Any]]:
    return [payload for payload in document.objects(*KEYS) if "engine" not in payload]


def _read(document: Document) -> AcceptanceRecord:
    payloads = _payloads(document)
    parts = tuple(
        payload_tally(payload, name=f"request {i}") for i, payload in enumerate(payloads, start=1)
    )
    detailed = all(part.pairs is not None for part in parts)
    return AcceptanceRecord(
        form=f"vLLM per-request metrics, {'detailed' if detailed else 'summary'}",
        unit=REQUEST,
        parts=parts,
        convention="the histogram counts drafts only, mean_acceptance_length the bonus token too",
        length=length_of(payloads),
    )


FORM = Form(
    name="vLLM per-request metrics",
    marks='JSON with "speculative_decoding": {"acceptance_histogram", "num_spec_steps", …}',
    recognises=lambda document: bool(_payloads(document)),
    read=_read,
)
