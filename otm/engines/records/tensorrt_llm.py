"""TensorRT-LLM's iteration statistics, as JSON lines.

`trtllm-bench --iteration_log` and `get_stats` write them. `specDecodingStats` holds
`numDraftTokens`, `numAcceptedTokens` (the bonus token excluded), `numRequestsWithDraftTokens`, and
`acceptanceLength` = (accepted + requests)/requests, which counts it. One line sums up the requests
of one iteration; where there was one request with drafts, the line is one step. With attention data
parallelism other ranks repeat the counters of rank 0, and are left out.

Source of the form: github.com/NVIDIA/TensorRT-LLM, cpp/include/tensorrt_llm/executor/types.h at
a98a9061 (`SpecDecodingStats`).
"""

from __future__ import annotations

from typing import Any

from otm.engines.records.document import Document, Form, count
from otm.engines.records.record import AcceptanceRecord
from otm.engines.records.tally import Tally

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


FORM = Form(
    name="TensorRT-LLM iterations",
    marks=f'JSON lines with "{_STATS}": {{"numAcceptedTokens", "numRequestsWithDraftTokens", …}}',
    recognises=lambda document: any(
        isinstance(row[_STATS], dict) for row in document.objects(_STATS)
    ),
    read=_read,
)
