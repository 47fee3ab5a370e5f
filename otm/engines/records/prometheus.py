"""Counters of a Prometheus page of vLLM or llama.cpp.

`vllm:spec_decode_num_drafts_total`, `…_num_draft_tokens_total`, `…_num_accepted_tokens_total` and,
with a label `position` from 0, `…_num_accepted_tokens_per_pos_total`: steps that accepted at least
position + 1 drafts. llama.cpp writes the same under `llamacpp:`. Label sets (engines, models) are
added up. `num_draft_tokens` below drafts × positions says that steps drafted fewer.

Source of the form: github.com/vllm-project/vllm, vllm/v1/spec_decode/metrics.py at 016a8587;
github.com/ggml-org/llama.cpp, tools/server/server-task.cpp, which writes a series for each
position.
"""

from __future__ import annotations

import re

from otm.engines.records.document import Document, Form, contiguous, count
from otm.engines.records.record import AcceptanceRecord
from otm.engines.records.tally import Tally
from otm.errors import InvalidParameter

_SAMPLE = re.compile(
    r"^[ "
    r"\t]*([a-z_]+):spec_decode_num_(drafts|draft_tokens|accepted_tokens|accepted_tokens_per_pos)(?:_total)?"
    r"(?:\{([^}\n]*)\})?[ \t]+(\S+)",
    re.MULTILINE,
)
_POSITION = re.compile(r'(?:^|,)\s*(?:position|pos)="(\d{1,6})"')
_ENGINES = {"vllm": "vLLM counters", "llamacpp": "llama.cpp counters"}


def _read(document: Document) -> AcceptanceRecord:
    found = _SAMPLE.findall(document.text)
    prefixes = sorted({prefix for prefix, *_ in found})
    if len(prefixes) > 1 or prefixes[0] not in _ENGINES:
        raise InvalidParameter(
            "A page holds the counters of one engine, vllm: or llamacpp:; this one has "
            f"{prefixes}. Split it."
        )
    sums = {"drafts": 0, "draft_tokens": 0, "accepted_tokens": 0}
    by_position: dict[int, int] = {}
    for _, name, labels, value in found:
        if name in sums:
            sums[name] += count(value, f"num_{name}")
        elif position := _POSITION.search(labels):
            i = int(position.group(1))
            by_position[i] = by_position.get(i, 0) + count(value, "num_accepted_tokens_per_pos")
    if not sums["drafts"] or not by_position:
        raise InvalidParameter(
            "The page must hold spec_decode_num_drafts above 0 and "
            f"spec_decode_num_accepted_tokens_per_pos with positions; got {sums['drafts']} drafts "
            f"and {len(by_position)} positions. Scrape it after some requests."
        )
    names = {name for _, name, *_ in found}
    tally = Tally.of_survivors(
        [by_position[i] for i in contiguous(by_position)],
        steps=sums["drafts"],
        name="server",
        accepted=sums["accepted_tokens"] if "accepted_tokens" in names else None,
        drafted=sums["draft_tokens"] if "draft_tokens" in names else None,
    )
    return AcceptanceRecord(
        form=_ENGINES[prefixes[0]],
        unit="server",
        parts=(tally,),
        convention="drafts only",
        notes=("Counters run since the server started: subtract two scrapes to see one period.",),
    )


FORM = Form(
    name="Prometheus counters of vLLM or llama.cpp",
    marks="vllm:spec_decode_num_… or llamacpp:spec_decode_num_… lines",
    recognises=lambda document: _SAMPLE.search(document.text) is not None,
    read=_read,
)
