"""AIPerf's `SpecDecodeAcceptanceRecord`, one for each request, and AIPerf's summary of a run.

vLLM's payload with "engine" beside it and a sparse histogram: an object from accepted drafts, as
text, to steps. The mean counts the bonus token, the histogram does not. `num_spec_tokens` is null
where drafting has no fixed length. They are JSON lines, "profile_export.jsonl", at the export level
"records".

"profile_export_aiperf.json" has "pooled_spec_decode_acceptance_histogram", the sum of them, and
under "total_spec_decode_steps", "total_accepted_draft_tokens" and "total_draft_tokens" an "avg"
each, which is the total.

Source of the form: github.com/ai-dynamo/aiperf, src/aiperf/common/models/spec_decode_models.py at
7bb5f5c8 and, of the summary, src/aiperf/common/models/export_models.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from otm.engines.records.document import Document
from otm.engines.records.fields import Fields, form_of_objects
from otm.engines.records.record import REQUEST
from otm.engines.records.tally import Tally
from otm.engines.records.vllm_request import CONVENTION, FIELDS, KEYS


def _about(found: Sequence[dict[str, Any]], parts: Sequence[Tally]) -> dict[str, Any]:
    engines = sorted({str(payload["engine"])[:20] for payload in found})
    return {"form": f"AIPerf records of {', '.join(engines)}"}


FORM = form_of_objects(
    name="AIPerf SpecDecodeAcceptanceRecord",
    marks='JSON with "engine", "acceptance_histogram", "num_spec_steps", …',
    unit=REQUEST,
    convention=CONVENTION,
    fields=FIELDS,
    find=lambda document: document.objects("engine", *KEYS),
    about=_about,
)

_POOLED = "pooled_spec_decode_acceptance_histogram"
_TOTALS = ("total_spec_decode_steps", "total_accepted_draft_tokens", "total_draft_tokens")


def _summaries(document: Document) -> Iterator[dict[str, Any]]:
    """Yield the fields of each summary, with totals as numbers."""
    for found in document.objects(_POOLED):
        totals = {key: found[key] for key in _TOTALS if isinstance(found.get(key), dict)}
        if found[_POOLED]:
            yield {_POOLED: found[_POOLED]} | {key: totals[key].get("avg") for key in totals}


SUMMARY = form_of_objects(
    name="AIPerf summary",
    marks=f'JSON with "{_POOLED}"',
    unit="run",
    convention=CONVENTION,
    fields=Fields(
        steps=_TOTALS[:1], accepted=_TOTALS[1:2], drafted=_TOTALS[2:], histogram=(_POOLED,)
    ),
    find=_summaries,
)
