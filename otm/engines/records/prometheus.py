"""Counters of a Prometheus page of vLLM, llama.cpp or SGLang, or of AIPerf's scrapes of a page.

* `vllm:spec_decode_num_drafts_total`, `…_num_draft_tokens_total`, `…_num_accepted_tokens_total`
  and, with a label `position` from 0, `…_num_accepted_tokens_per_pos_total`: steps that accepted at
  least position + 1 drafts. llama.cpp writes the same under `llamacpp:`. Label sets (engines,
  models) are added up. `num_draft_tokens` below drafts × positions says that steps drafted fewer.
* SGLang: `sglang:spec_verify_calls_total`, `generation_tokens_total`, which counts the prefills'
  tokens too, and `num_requests_total`; or, where nothing was verified yet or an older version has
  no such counter, the gauges `spec_accept_length` and `spec_accept_rate` of the last interval.
* AIPerf, `--server-metrics`, "server_metrics_export.json": under "metrics" the same names, in
  versions with and without `_total`, each with "series" of "labels" and "stats"; "total" is what a
  counter rose by during the run, "avg" the mean of a gauge.

Source of the form: github.com/vllm-project/vllm, vllm/v1/spec_decode/metrics.py at 016a8587;
github.com/ggml-org/llama.cpp, tools/server/server-task.cpp, which writes a series for each
position; github.com/sgl-project/sglang,
python/sglang/srt/observability/metrics_collector.py at 44cedc2b; github.com/ai-dynamo/aiperf at
7bb5f5c8.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from otm.engines.records.document import Document, Form, contiguous, count, number
from otm.engines.records.record import AcceptanceRecord
from otm.engines.records.sglang_log import drafts_of
from otm.engines.records.tally import Tally
from otm.errors import InvalidParameter

_LINE = re.compile(
    r"^[ \t]*(vllm|llamacpp|sglang):(\w+)(?:\{([^}\n]*)\})?[ \t]+(\S+)", re.MULTILINE
)
_NAME = re.compile(r"(vllm|llamacpp|sglang):(\w+)")
_SPECULATIVE = re.compile(r"spec_(?:decode_num_\w+|accept_length|verify_calls_total)")
_POSITION = re.compile(r'(?:^|,)\s*(?:position|pos)="(\d{1,6})"')
_TITLES = {
    "vllm": "vLLM counters",
    "llamacpp": "llama.cpp counters",
    "sglang": "SGLang counters",
}
_RUNNING = "Counters run since the server started: --since takes an earlier scrape off."


class Sample(NamedTuple):
    """One series: the engine, the name without `_total`, the labels as text, the value."""

    engine: str
    name: str
    labels: str
    value: object


def samples(document: Document) -> Iterator[Sample]:
    """Yield the series of a page, or of AIPerf's scrapes of a page."""
    for match in _LINE.finditer(document.text):
        engine, name, labels, value = match.groups()
        yield Sample(engine, name.removesuffix("_total"), labels or "", value)
    for export in document.objects("metrics"):
        metrics = export["metrics"]
        for key, metric in metrics.items() if isinstance(metrics, dict) else ():
            named = _NAME.fullmatch(key)
            series = metric.get("series") if isinstance(metric, dict) else None
            if named is None or not isinstance(series, list):
                continue
            for one in series:
                labels, stats = (_mapping(one, name) for name in ("labels", "stats"))
                written = ",".join(f'{name}="{value}"' for name, value in labels.items())
                value = stats.get("total", stats.get("avg"))
                yield Sample(named[1], named[2].removesuffix("_total"), written, value)


def _mapping(found: object, name: str) -> dict[str, Any]:
    """Return the object under a name, an empty one if there is none."""
    value = found.get(name) if isinstance(found, dict) else None
    return value if isinstance(value, dict) else {}


def summed(found: list[Sample], name: str) -> float | None:
    """Return the sum of a counter over all label sets, None if the counter is missing."""
    values = [number(one.value, name) for one in found if one.name == name]
    return sum(values) if values else None


def _read(document: Document) -> AcceptanceRecord:
    found = list(samples(document))
    engines = sorted({one.engine for one in found})
    if len(engines) > 1:
        raise InvalidParameter(
            "A page holds the counters of one engine, vllm:, llamacpp: or sglang:; this one has "
            f"{engines}. Split it."
        )
    known = _sglang(found) if engines == ["sglang"] else _by_position(found)
    return AcceptanceRecord(form=_TITLES[engines[0]], unit="server", **known)


def _by_position(found: list[Sample]) -> dict[str, Any]:
    """Return the fields of counters by position."""
    drafts, drafted, accepted = (
        summed(found, f"spec_decode_num_{name}")
        for name in ("drafts", "draft_tokens", "accepted_tokens")
    )
    by_position: dict[int, int] = {}
    for one in found:
        position = _POSITION.search(one.labels)
        if one.name == "spec_decode_num_accepted_tokens_per_pos" and position:
            i = int(position.group(1))
            by_position[i] = by_position.get(i, 0) + count(one.value, one.name)
    if not drafts or not by_position:
        raise InvalidParameter(
            "The page must hold spec_decode_num_drafts above 0 and "
            f"spec_decode_num_accepted_tokens_per_pos with positions; got {drafts or 0:g} drafts "
            f"and {len(by_position)} positions. Scrape it after some requests."
        )
    tally = Tally.of_survivors(
        [by_position[i] for i in contiguous(by_position)],
        steps=count(drafts, "num_drafts"),
        name="server",
        accepted=accepted,
        drafted=drafted,
    )
    return {"parts": (tally,), "convention": "drafts only", "notes": (_RUNNING,)}


def _sglang(found: list[Sample]) -> dict[str, Any]:
    """Return the fields of SGLang's counters, or else of SGLang's gauges."""
    length = next(
        (count(one.value, one.name) for one in found if one.name == "spec_num_steps"), 0
    ) or drafts_of(
        [
            tuple(number(one.value, one.name) for one in pair)
            for pair in zip(
                (one for one in found if one.name == "spec_accept_length"),
                (one for one in found if one.name == "spec_accept_rate"),
                strict=False,
            )
        ]
    )
    calls, tokens, prefills = (
        summed(found, name) or 0.0
        for name in ("spec_verify_calls", "generation_tokens", "num_requests")
    )
    if calls and tokens >= calls + prefills:
        drafted = calls * length if length else None
        tally = Tally("server", calls, tokens - prefills - calls, drafted)
        note = f"The prefills' tokens are taken off. {_RUNNING}"
    else:
        gauges = [
            mean
            for one in found
            if one.name == "spec_accept_length" and (mean := number(one.value, one.name)) >= 1
        ]
        if not gauges:
            raise InvalidParameter(
                "The page must hold spec_verify_calls_total with generation_tokens_total, or "
                "spec_accept_length above 0; none is. Scrape it after some requests."
            )
        tally = Tally.of_mean(sum(gauges) / len(gauges), name="server")
        note = "Gauges: the last interval only, not a run."
    return {
        "parts": (tally,),
        "convention": "accept length counts the root",
        "notes": (note,),
        "length": length,
    }


FORM = Form(
    name="Prometheus counters of vLLM, llama.cpp or SGLang",
    marks="vllm:spec_decode_num_…, llamacpp:spec_decode_num_… or sglang:spec_… lines, or "
    'AIPerf\'s "metrics" of these names',
    recognises=lambda document: any(_SPECULATIVE.match(one.name) for one in samples(document)),
    read=_read,
)
