"""Numbers as programs print them for people: tables of totals, lines of counts, and bare means.

* Tables, a name and a number in a line: `vllm bench serve` ("Drafts:  11043", "Draft tokens:",
  "Accepted tokens:", "Position 0:  76.17"), SGLang's benchmark of the same names, and vLLM's
  offline example ("num_drafts: 4687", "acceptance at token 0: 0.74", two decimals).
* Lines: mtp-bench of llama.cpp, "pred= 192 draft= 180 acc= 146"; oMLX, "142 tokens, …, cycles=72";
  ATOM, "[MTP Stats         ] … Accepted/Total Draft tokens: 65685/94000, … distribution: {0:
  '30.12%', 1: '69.88%'}", totals, of which the last counts; llama-server with `-v`, "accepted 1/16
  draft tokens", one line a step.
* A mean with a name like "Accept length", "mean acceptance length" or "accept_length", of
  benchmarks and of training logs by step: read where nothing else is told. It is taken to count the
  target's token, as vLLM's and SGLang's do.

Source of the form: github.com/vllm-project/vllm, vllm/benchmarks/serve.py and
examples/offline_inference/spec_decode.py at 009e6d4a; github.com/sgl-project/sglang,
python/sglang/bench_serving.py at 0033168f; the lines of other programs as pasted in ggml-org's
llama.cpp pull request 22673, in jundot/omlx 1277 and in ROCm/ATOM 560.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from otm.engines.records.document import Document, Form, contiguous, count, number
from otm.engines.records.fields import Fields, form_of_objects
from otm.engines.records.record import REQUEST, AcceptanceRecord
from otm.engines.records.tally import Tally

_ROW = re.compile(r"^[ \t|>*]*([A-Za-z][\w /.()%-]*?)[ \t]*[:=|][ \t]*([\d][\d.,]*)[ %|]*$", re.M)
_POSITION = re.compile(r"(?:position|acceptance[ _]at[ _]token)[ _](\d{1,3})")
_TABLE = ("drafts", "num_drafts")
# A number that the end of the file cut short is not followed by what follows it elsewhere.
_BENCH = re.compile(r"\bpred= *(?P<pred>\d+) +draft= *(?P<draft>\d+) +acc= *(?P<acc>\d+) +rate=")
_CYCLES = re.compile(r"\b(?P<tokens>\d+) tokens\b[^\n]*\bcycles=(?P<cycles>\d+)[,\s]")
_ATOM = re.compile(
    r"\[MTP Stats *\][^\n]*Accepted/Total Draft tokens: (\d+)/(\d+)\b"
    r"[^\n]*distribution: \{([^}\n]*)\}"
)
_ROUND = re.compile(
    r"(?:\bid +(\d+) \| task +(-?\d+)[^\n]*)?\baccepted +(\d+) */ *(\d+) draft tokens"
)
_NAMED = re.compile(
    r"\baccept(?:ance|ed)?[ _/-]*len(?:gth)?(?: *\([\w ]+\))?[\"']?\s*[:=]\s*(\d+(?:\.\d+)?)",
    re.IGNORECASE,
)


def _tables(document: Document) -> Iterator[dict[str, Any]]:
    """Yield each table's numbers by their names in lower case; a name again begins a table."""
    table: dict[str, Any] = {}
    for match in _ROW.finditer(document.text):
        name = match[1].lower()
        if name in table:
            yield from _with_rates(table)
            table = {}
        table[name] = match[2].replace(",", "")
    yield from _with_rates(table)


def _with_rates(table: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a table of counts with the list of its rates by position, if it has such."""
    if not any(name in table for name in _TABLE):
        return
    found = {int(match[1]): name for name in table if (match := _POSITION.fullmatch(name))}
    rates = [number(table[found[i]], found[i]) for i in (contiguous(found) if found else ())]
    yield table | {"rates": rates}


TABLE = form_of_objects(
    name="printed table",
    marks='a table with "Drafts:", "Draft tokens:" and "Accepted tokens:", or "num_drafts:" and '
    '"num_accepted_tokens:"',
    unit="run",
    convention="acceptance length counts the bonus token, rates do not",
    fields=Fields(
        steps=_TABLE,
        accepted=("accepted tokens", "num_accepted_tokens"),
        drafted=("draft tokens", "num_draft_tokens"),
        rates=("rates",),
        mean=("acceptance length", "mean acceptance length"),
        half=0.005,
    ),
    find=_tables,
)
BENCH = form_of_objects(
    name="mtp-bench",
    marks='lines with "pred=", "draft=" and "acc="',
    unit="run",
    convention="predicted tokens count the target's",
    fields=Fields(accepted=("acc",), drafted=("draft",), emitted=("pred",)),
    find=lambda document: (match.groupdict() for match in _BENCH.finditer(document.text)),
    about=lambda found, parts: {"notes": ("Calls that drafted nothing are among the steps.",)},
)
CYCLES = form_of_objects(
    name="oMLX log",
    marks='lines with "tokens" and "cycles="',
    unit=REQUEST,
    convention="tokens count the target's",
    fields=Fields(steps=("cycles",), emitted=("tokens",), prefills=("none",)),
    find=lambda document: (
        match.groupdict() | {"none": 0} for match in _CYCLES.finditer(document.text)
    ),
)


def _atom(document: Document) -> AcceptanceRecord:
    accepted, drafted, law = _ATOM.findall(document.text)[-1]
    shares = {
        count(i, "a number of drafts"): number(share, "a share") / 100.0
        for i, share in re.findall(r"(\d+): *'?([\d.]+)%", law)
    }
    exactly = np.array([shares[i] for i in contiguous(shares)])
    drafts, length = count(drafted, "draft tokens"), exactly.size - 1
    steps = drafts / max(1, length)
    survivors = np.cumsum(exactly[::-1])[::-1][1:] * steps
    tally = Tally.of_survivors(
        survivors,
        steps=steps,
        name="server",
        accepted=max(count(accepted, "accepted tokens"), float(survivors.sum()) * (1 - 1e-3)),
        drafted=drafts,
    )
    return AcceptanceRecord(
        form="ATOM log",
        unit="server",
        parts=(tally,),
        convention="tokens a forward pass count the target's",
        notes=("Totals since the server started; shares have four digits.",),
    )


ATOM = Form(
    name="ATOM log",
    marks='lines with "[MTP Stats" and "Accepted/Total Draft tokens:"',
    recognises=lambda document: _ATOM.search(document.text) is not None,
    read=_atom,
)


def _rounds(document: Document) -> AcceptanceRecord:
    requests: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for slot, task, accepted, drafted in _ROUND.findall(document.text):
        pair = count(accepted, "accepted"), count(drafted, "drafted")
        requests.setdefault((slot, task), []).append(pair)
    return AcceptanceRecord(
        form="llama.cpp rounds",
        unit=REQUEST,
        parts=tuple(
            Tally.of_steps(*zip(*steps, strict=True), name=f"request {i}")
            for i, steps in enumerate(requests.values(), 1)
        ),
        convention="drafts only",
        notes=("One line a step that drafted; calls that drafted nothing have no line.",),
    )


ROUNDS = Form(
    name="llama.cpp rounds",
    marks='lines with "draft tokens" behind accepted 1/16',
    recognises=lambda document: (
        "generated)" not in document.text and _ROUND.search(document.text) is not None
    ),
    read=_rounds,
)


def _mean(document: Document) -> AcceptanceRecord:
    means = [number(value, "a mean") for value in _NAMED.findall(document.text)]
    several = f"The mean of {len(means):,} printed means; the last is {means[-1]:.4g}. "
    return AcceptanceRecord(
        form="printed mean",
        unit="run",
        parts=(Tally.of_mean(sum(means) / len(means), name="run"),),
        convention="taken to count the target's token",
        notes=((several if len(means) > 1 else "") + "A mean alone: no law, no counts.",),
    )


MEAN = Form(
    name="printed mean",
    marks='a number behind "accept length", "mean acceptance length" or the like',
    recognises=lambda document: _NAMED.search(document.text) is not None,
    read=_mean,
)
