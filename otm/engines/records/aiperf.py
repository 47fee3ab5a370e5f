"""AIPerf's `SpecDecodeAcceptanceRecord`, one for each request, as JSON or JSON lines.

vLLM's payload with "engine" beside it and a sparse histogram: an object from accepted drafts, as
text, to steps. The mean counts the bonus token, the histogram does not. `num_spec_tokens` is null
where drafting has no fixed length.

Source of the form: github.com/ai-dynamo/aiperf, src/aiperf/common/models/spec_decode_models.py at
7bb5f5c8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from otm.engines.records.fields import form_of_objects
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
