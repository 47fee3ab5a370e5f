"""Seconds per token in the logs of every engine, beside acceptance.

* SGLang, "#running-req: 18, … gen throughput (token/s): 2520.18,", and vLLM, "Avg generation
  throughput: 75.3 tokens/s, Running: 6 reqs": requests over tokens a second, by running requests.
* llama.cpp, "eval time = 2187.50 ms / 125 tokens", or "predicted_ms" and "predicted_n" of its
  responses: one request; the first token is the prompt's.
* TensorRT-LLM, "iterLatencyMS" beside "specDecodingStats": an iteration over its tokens a request.
* Steps, one a line, "seconds": over a step's tokens, of unknown many requests, counted as 0.
* AIPerf, "inter_token_latency": its mean in ms, of unknown many requests, counted as 0.
* Drafts by themselves: vLLM V0, "average_time_per_proposal_tok_ms=3.57"; llama.cpp, "#gen tokens =
  20, … dur(b,g,a) = 0.004, 1.0, 0.1 ms", the second over the first.

Sources are those of the engines' forms; vLLM's line is of vllm/v1/metrics/loggers.py at 016a8587.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator

import numpy as np

from otm.engines.records.document import Document, count, number
from otm.engines.records.llama_cpp import eval_times
from otm.engines.records.record import Times
from otm.engines.records.steps import seconds_of_tokens

_SGLANG = "#running-req"
_RUNNING = {
    _SGLANG: re.compile(
        r"#running-req: (?P<n>\d+),.*?gen throughput \(token/s\): (?P<rate>\d+\.\d+),"
    ),
    "Avg generation": re.compile(
        r"Avg generation throughput: (?P<rate>\d+\.\d+) tokens/s, Running: (?P<n>\d+) reqs"
    ),
}
_PROPOSAL = re.compile(r"average_time_per_proposal_tok_ms=(\d+\.\d+)\b")
_DRAFTING = re.compile(r"#gen tokens = *(\d+),.*?dur\(b,g,a\) = *[0-9.]+, *([0-9.]+),")


def times_in(document: Document) -> Times | None:
    """Return the median times in a document, None without any time of a token."""
    tokens: dict[int, array[float]] = {}
    for running, seconds in _tokens(document):
        tokens.setdefault(running, array("d")).append(seconds)
    drafts = [number(ms, "a draft's time") for ms in _PROPOSAL.findall(document.text)]
    drafts += [
        number(ms, "dur") / count(drafted, "#gen tokens")
        for drafted, ms in _DRAFTING.findall(document.text)
        if count(drafted, "#gen tokens")
    ]
    if not tokens:
        return None
    return Times(
        token={running: float(np.median(tokens[running])) for running in sorted(tokens)},
        usual=max(tokens, key=lambda running: len(tokens[running])),
        draft=float(np.median(drafts)) / 1e3 if drafts else None,
    )


def _tokens(document: Document) -> Iterator[tuple[int, float]]:
    """Yield pairs (running requests, seconds between two tokens of a request)."""
    for mark, form in _RUNNING.items():
        # Lines of a plain run beside a speculative one are of another speed.
        drafting = "accept len" in document.text
        for match in form.finditer(document.text) if mark in document.text else ():
            if drafting and "accept len" not in match[0] and mark == _SGLANG:
                continue
            running, rate = int(match["n"][:9]), float(match["rate"])
            if running and rate:
                yield running, running / rate
    yield from eval_times(document)
    yield from seconds_of_tokens(document)
    for timings in document.objects("predicted_n", "predicted_ms", "draft_n"):
        tokens = count(timings["predicted_n"], "predicted_n") - 1
        if tokens > 0:
            yield 0, number(timings["predicted_ms"], "predicted_ms") / 1e3 / tokens
    for row in document.objects("iterLatencyMS", "specDecodingStats"):
        stats = row["specDecodingStats"]
        told = isinstance(stats, dict) and not row.get("attentionDpRank")
        running = count(stats.get("numRequestsWithDraftTokens", 0), "requests") if told else 0
        if running:
            emitted = running + count(stats.get("numAcceptedTokens"), "numAcceptedTokens")
            yield running, number(row["iterLatencyMS"], "iterLatencyMS") / 1e3 * running / emitted
    for found in document.objects("inter_token_latency"):
        latency = found["inter_token_latency"]
        if isinstance(latency, dict) and latency.get("avg") is not None:
            yield 0, number(latency["avg"], "inter_token_latency") / 1e3
