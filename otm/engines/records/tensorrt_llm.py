"""TensorRT-LLM's iteration statistics, as JSON lines, and TensorRT-LLM's responses.

`trtllm-bench --iteration_log` and `get_stats` write them. `specDecodingStats` holds
`numDraftTokens`, `numAcceptedTokens` (the bonus token excluded), `numRequestsWithDraftTokens`, and
`acceptanceLength` = (accepted + requests)/requests, which counts it. One line sums up the requests
of one iteration; where there was one request with drafts, the line is one step. With attention data
parallelism other ranks repeat the counters of rank 0, and are left out.

A response's choice has `avg_decoded_tokens_per_iter`, tokens a step with the target's; some have
vLLM's `speculative_decoding` beside it, which tells more.

Source of the form: github.com/NVIDIA/TensorRT-LLM, cpp/include/tensorrt_llm/executor/types.h at
a98a9061 (`SpecDecodingStats`); tensorrt_llm/serve/openai_protocol.py.
"""

from __future__ import annotations

from typing import Any

from otm.engines.records.document import Document, Form, count
from otm.engines.records.fields import Fields, form_of_objects
from otm.engines.records.record import REQUEST, AcceptanceRecord
from otm.engines.records.tally import Tally
from otm.engines.records.vllm_request import CONVENTION, FIELDS, KEYS, TENSORRT

_STATS = "specDecodingStats"
_KEYS = ("numRequestsWithDraftTokens", "numAcceptedTokens", "numDraftTokens")


def _read(document: Document) -> AcceptanceRecord:
    rows = [row for row in document.objects(_STATS) if not row.get("attentionDpRank")]
    counts = [_counts(row[_STATS]) for row in rows if isinstance(row[_STATS], dict)]
    steps = [one for one in counts if one[0]]
    if steps and all(requests == 1 for requests, _, _ in steps):
        tally = Tally.of_steps([a for _, a, _ in steps], [d for _, _, d in steps], name="server")
        notes = ("One request at a time: every line is one step.",)
    else:
        requests, accepted, drafted = (float(sum(one[i] for one in steps)) for i in range(3))
        tally = Tally(name="server", steps=requests, accepted=accepted, drafted=drafted)
        notes = (
            "Lines sum up several requests: a mean, no law. Run with one request at a time to plan "
            "with it.",
        )
    return AcceptanceRecord(
        form="TensorRT-LLM iterations",
        unit="server",
        parts=(tally,),
        convention="numAcceptedTokens excludes the bonus token, acceptanceLength counts it",
        notes=notes,
    )


def _counts(stats: dict[str, Any]) -> tuple[int, int, int]:
    """Return requests with drafts, accepted and drafted tokens of one iteration."""
    requests, accepted, drafted = (count(stats.get(key), key) for key in _KEYS)
    return requests, accepted, drafted


def _counted(document: Document) -> list[dict[str, Any]]:
    """Return the counts of responses, none if the document is of another engine."""
    return list(document.objects(*KEYS)) if any(document.objects(TENSORRT)) else []


def _means(document: Document) -> list[dict[str, Any]]:
    """Return the means of responses that have no counts."""
    return [] if _counted(document) else list(document.objects(TENSORRT))


RESPONSES = form_of_objects(
    name="TensorRT-LLM responses",
    marks=f'JSON with "{TENSORRT}" and "acceptance_histogram", "num_spec_steps", …',
    unit=REQUEST,
    convention=CONVENTION,
    fields=FIELDS,
    find=_counted,
)
MEANS = form_of_objects(
    name="TensorRT-LLM responses, means",
    marks=f'JSON with "{TENSORRT}" alone',
    unit=REQUEST,
    convention="tokens of an iteration count the target's",
    fields=Fields(mean=(TENSORRT,)),
    find=_means,
)
FORM = Form(
    name="TensorRT-LLM iterations",
    marks=f'JSON lines with "{_STATS}": {{"numAcceptedTokens", "numRequestsWithDraftTokens", …}}',
    recognises=lambda document: any(
        isinstance(row[_STATS], dict) for row in document.objects(_STATS)
    ),
    read=_read,
)
