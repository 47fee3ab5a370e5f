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

from collections.abc import Sequence
from typing import Any

from otm.engines.records.document import Document
from otm.engines.records.fields import Fields, form_of_objects
from otm.engines.records.record import REQUEST
from otm.engines.records.tally import Tally

KEYS = ("acceptance_histogram", "num_spec_steps")
"""Keys that AIPerf's records and TensorRT-LLM's responses have as well."""

TENSORRT = "avg_decoded_tokens_per_iter"
"""A further key in TensorRT-LLM's responses, which else have the same keys."""

CONVENTION = "the histogram counts drafts only, mean_acceptance_length the bonus token too"

FIELDS = Fields(
    steps=("num_spec_steps",),
    accepted=("num_accepted_draft_tokens", "total_accepted_draft_tokens"),
    drafted=("num_draft_tokens", "total_draft_tokens"),
    histogram=("acceptance_histogram",),
    taken=("per_step_accepted",),
    tried=("per_step_drafted",),
    length=("num_spec_tokens",),
)


def _find(document: Document) -> list[dict[str, Any]]:
    """Return the objects that belong to no other engine."""
    others = any(document.objects(TENSORRT))
    return [one for one in document.objects(*KEYS) if "engine" not in one and not others]


def _about(found: Sequence[dict[str, Any]], parts: Sequence[Tally]) -> dict[str, Any]:
    detailed = all(part.pairs is not None for part in parts)
    return {"form": f"vLLM per-request metrics, {'detailed' if detailed else 'summary'}"}


FORM = form_of_objects(
    name="vLLM per-request metrics",
    marks='JSON with "speculative_decoding": {"acceptance_histogram", "num_spec_steps", …}',
    unit=REQUEST,
    convention=CONVENTION,
    fields=FIELDS,
    find=_find,
    about=_about,
)
