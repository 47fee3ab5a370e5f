"""Counters of a Prometheus page of vLLM, llama.cpp or SGLang, or of AIPerf's scrapes of a page.

* `vllm:spec_decode_num_drafts_total`, `…_num_draft_tokens_total`, `…_num_accepted_tokens_total`
  and, with a label `position` from 0, `…_num_accepted_tokens_per_pos_total`: steps that accepted at
  least position + 1 drafts; without positions, a mean. llama.cpp writes the same under `llamacpp:`.
  `num_draft_tokens` below drafts × positions says that steps drafted fewer.
* Drafts count the calls that drafted. All calls follow from the tokens of the same page, vLLM's
  `generation_tokens_total` and llama.cpp's `tokens_predicted_total`, less the accepted ones and the
  first of each request (`request_success_total`; llama.cpp does not count requests).
* Engines (label `engine`) are parts; models (label `model_name`) are records of their own. The
  same series twice are two scrapes of one server: the record is of the time between them.
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
from typing import Any, NamedTuple

from otm.engines.records.document import Document, Form, contiguous, count, number
from otm.engines.records.record import UNCOUNTED, AcceptanceRecord
from otm.engines.records.sglang_log import drafts_of
from otm.engines.records.tally import Tally, told_apart
from otm.errors import InvalidParameter

_LINE = re.compile(
    r"^[ \t>|]*(vllm|llamacpp|sglang):(\w+)(?:\{([^}\n]*)\})?[ \t|]+(\S+)", re.MULTILINE
)
_NAME = re.compile(r"(vllm|llamacpp|sglang):(\w+)")
_SPECULATIVE = re.compile(r"spec_(?:decode_num_\w+|accept_length|verify_calls)$")
_LABEL = r'(?:^|,)\s*(?:{})="([^"]*)"'
_POSITION = re.compile(_LABEL.format("position|pos"))
_MODEL = re.compile(_LABEL.format("model_name"))
_SERVER = re.compile(_LABEL.format("engine|dp_rank|instance|pod"))
_TITLES = {
    "vllm": "vLLM counters",
    "llamacpp": "llama.cpp counters",
    "sglang": "SGLang counters",
}
_COUNTER = "spec_decode_num_"
_ALL = {f"{_COUNTER}{name}" for name in ("drafts", "draft_tokens", "accepted_tokens")}
_FEW = 0.05  # of the drafts: so many first tokens of requests are expected where nobody counts them
_RUNNING = "Counters run since the server started: --since takes an earlier scrape off."


class Sample(NamedTuple):
    """One series: the engine, the name without `_total`, the labels as text, the value."""

    engine: str
    name: str
    labels: str
    value: object


def _samples(document: Document) -> list[Sample]:
    """Return the series of a page, or of AIPerf's scrapes of a page."""
    lines = list(_LINE.finditer(document.text))
    # Where values have decimals, a last one without them was cut.
    decimals = ["." in line[4] for line in lines[-2:]]
    if decimals == [True, False] and lines[-1].end() == len(document.text):
        lines.pop()
    rows = [line.groups() for line in lines]
    for export in document.objects("metrics"):
        for key, metric in _mapping(export, "metrics").items():
            named = _NAME.fullmatch(key)
            series = metric.get("series") if isinstance(metric, dict) else None
            if named is None or not isinstance(series, list):
                continue
            for one in series:
                labels, stats = (_mapping(one, name) for name in ("labels", "stats"))
                written = ",".join(f'{name}="{value}"' for name, value in labels.items())
                rows.append((*named.groups(), written, stats.get("total", stats.get("avg"))))
    return [
        Sample(engine, name.removesuffix("_total"), labels or "", value)
        for engine, name, labels, value in rows
    ]


def _mapping(found: object, name: str) -> dict[str, Any]:
    """Return the object under a name, an empty one if there is none."""
    value = found.get(name) if isinstance(found, dict) else None
    return value if isinstance(value, dict) else {}


def models_in(document: Document) -> list[str]:
    """Return the names of the models that the series of a page tell of drafts."""
    found = document.once(_samples)
    named = (_MODEL.search(one.labels) for one in found if _SPECULATIVE.match(one.name))
    return sorted({match[1] for match in named if match})


def _values(found: list[Sample], name: str) -> list[float]:
    """Return the values of a series for all label sets."""
    return [number(one.value, name) for one in found if one.name == name]


def _summed(found: list[Sample], name: str) -> float | None:
    """Return the sum of a counter over all label sets, None if the counter is missing."""
    values = _values(found, name)
    return sum(values) if values else None


def _scrapes(found: list[Sample]) -> list[list[Sample]]:
    """Return the pages in a text: a series that is there again begins the next page."""
    pages: list[list[Sample]] = [[]]
    seen: set[tuple[str, str]] = set()
    for one in found:
        if (one.name, one.labels) in seen:
            pages.append([])
            seen.clear()
        pages[-1].append(one)
        seen.add((one.name, one.labels))
    return pages


def _read(document: Document) -> AcceptanceRecord:
    found = document.once(_samples)
    engines = sorted({one.engine for one in found})
    models = models_in(document)
    if len(engines) > 1:
        raise InvalidParameter(
            "A page holds the counters of one engine, vllm:, llamacpp: or sglang:; this one has "
            f"{engines}. Split it."
        )
    if len(models) > 1 and document.model not in models:
        raise InvalidParameter(
            f"A record is of one model; this page has {models}. Pass one of them as model."
        )
    if document.model is not None:
        named = [(_MODEL.search(one.labels), one) for one in found]
        found = [one for name, one in named if name is None or name[1] == document.model]
    records = []
    for page in _scrapes(found):
        known = _sglang(page) if engines == ["sglang"] else _by_position(page)
        records.append(AcceptanceRecord(form=_TITLES[engines[0]], unit="server", **known))
    first, last = records[0], records[-1]
    if len(records) == 1 or first.steps == last.steps:
        return last
    between = last.since(first)
    told = f"{len(records)} scrapes of one server: between the first and the last. To date "
    return between.with_notes(f"{told}{last.mean:.3f} tokens a call.")


def _by_position(found: list[Sample]) -> dict[str, Any]:
    """Return the fields of counters by position."""
    by_engine: dict[str, list[Sample]] = {}
    for one in found:
        by_engine.setdefault(", ".join(_SERVER.findall(one.labels)), []).append(one)
    told = {name: {one.name for one in page} for name, page in by_engine.items()}
    engines = {name for name, series in told.items() if f"{_COUNTER}drafts" in series}
    # Engines whose series are not all there are added up.
    complete = all(told[name] >= _ALL for name in engines) and len(by_engine) > 1
    pages = (
        {name: by_engine[name] for name in engines}
        if complete
        else {" ".join(by_engine) if len(by_engine) == 1 else "": found}
    )
    tallies = [
        _tally(page, f"engine {name}" if name else "server") for name, page in sorted(pages.items())
    ]
    drafting = [one for one in tallies if one is not None]
    tokens = _generated(found)
    if not drafting or not any(one.steps for one in drafting):
        raise InvalidParameter(
            f"The page must count drafts; it has {tokens:,.0f} tokens and no draft: either "
            "speculation is off, or its drafter declined in every call. Look at how the server was "
            "started."
            if tokens
            else "The page must hold spec_decode_num_drafts above 0 with "
            "spec_decode_num_accepted_tokens; it does not. Scrape it after some requests."
        )
    unknown = () if tokens else (UNCOUNTED,)
    several = (f"{len(drafting)} engines, added up.",) if len(drafting) > 1 else ()
    notes = (_RUNNING, *several, *told_apart(drafting), *unknown)
    return {"parts": tuple(drafting), "convention": "drafts only", "notes": notes}


def _tally(found: list[Sample], name: str) -> Tally | None:
    """Return the counts of one engine, None unless drafts and accepted tokens are there."""
    drafts, drafted, accepted = (
        _summed(found, f"{_COUNTER}{series}")
        for series in ("drafts", "draft_tokens", "accepted_tokens")
    )
    by_position: dict[int, int] = {}
    for one in found:
        position = _POSITION.search(one.labels)
        if one.name == f"{_COUNTER}accepted_tokens_per_pos" and position:
            i = count(position[1], "position")
            by_position[i] = by_position.get(i, 0) + count(one.value, one.name)
    if not drafts or (accepted is None and not by_position):
        return None
    steps, idle = count(drafts, "num_drafts"), _idle(found, drafts, accepted)
    if not by_position:
        return Tally(name, steps, accepted or 0.0, drafted, undrafted=idle)
    if found[0].engine == "vllm" and accepted is not None and sum(by_position.values()) != accepted:
        raise InvalidParameter(
            f"Accepted tokens must be those of all positions; they are {accepted:,.0f}, and "
            f"{sum(by_position.values()):,} by position. The page is cut, or of several scrapes."
        )
    return Tally.of_survivors(
        [by_position[i] for i in contiguous(by_position)],
        steps=steps,
        name=name,
        accepted=accepted,
        drafted=drafted,
        undrafted=idle,
    )


def _generated(found: list[Sample]) -> float | None:
    """Return the tokens that the page counts, None if it does not."""
    return _summed(found, "generation_tokens") or _summed(found, "tokens_predicted")


def _idle(found: list[Sample], drafts: float, accepted: float | None) -> float:
    """Return the calls that drafted nothing: tokens, less accepted, first ones, and drafts."""
    tokens = _generated(found)
    requests = _summed(found, "request_success")
    if tokens is None or accepted is None:
        return 0.0
    idle = tokens - (requests or 0.0) - accepted - drafts
    return idle if idle > _FEW * drafts * (requests is None) else 0.0


def _sglang(found: list[Sample]) -> dict[str, Any]:
    """Return the fields of SGLang's counters, or else of SGLang's gauges."""
    told = [count(one.value, one.name) for one in found if one.name == "spec_num_steps"]
    means, rates = (_values(found, f"spec_accept_{name}") for name in ("length", "rate"))
    length = (told and told[0]) or drafts_of(list(zip(means, rates, strict=False)))
    calls, tokens, prefills = (
        _summed(found, name) or 0.0
        for name in ("spec_verify_calls", "generation_tokens", "num_requests")
    )
    if calls and tokens >= calls + prefills:
        drafted = calls * length if length else None
        tally = Tally("server", calls, tokens - prefills - calls, drafted)
        note = f"The prefills' tokens are taken off. {_RUNNING}"
    else:
        gauges = [mean for mean in means if mean >= 1]
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
    marks='lines with "spec_decode_num_…" behind vllm: or llamacpp:, or "spec_verify_calls" or '
    '"spec_accept_length" behind sglang:, or AIPerf\'s metrics of these names',
    recognises=lambda document: any(
        _SPECULATIVE.match(one.name) for one in document.once(_samples)
    ),
    read=_read,
)
