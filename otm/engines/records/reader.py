"""One reader for every form: the registry of forms, and the recognition of a document's form."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence

from otm.engines.records import (
    aiperf,
    llama_cpp,
    positions_csv,
    printed,
    prometheus,
    responses,
    sglang_log,
    sglang_meta,
    specforge,
    speculators,
    steps,
    tensorrt_llm,
    vllm_bench,
    vllm_log,
    vllm_request,
)
from otm.engines.records.document import Document, Form, read_document
from otm.engines.records.record import AcceptanceRecord, Times
from otm.engines.records.times import times_in
from otm.errors import InvalidParameter

FORMS: tuple[Form, ...] = (
    prometheus.FORM,
    vllm_log.FORM,
    vllm_request.FORM,
    vllm_bench.FORM,
    sglang_meta.FORM,
    sglang_log.FORM,
    aiperf.FORM,
    aiperf.SUMMARY,
    tensorrt_llm.FORM,
    tensorrt_llm.RESPONSES,
    tensorrt_llm.MEANS,
    llama_cpp.FORM,
    specforge.FORM,
    speculators.FORM,
    positions_csv.FORM,
    steps.FORM,
    responses.TIMINGS,
    responses.USAGE,
    printed.TABLE,
    printed.BENCH,
    printed.CYCLES,
    printed.ATOM,
    printed.ROUNDS,
)
"""Every form that is recognised; the next one is a file with a FORM and an entry here.

`printed.MEAN` is tried where none of them is: any of these prints a mean beside what tells more.
"""

_WITHOUT = {
    "vLLM": (
        re.compile(r"^vllm:|Avg generation throughput: ", re.MULTILINE),
        "--speculative-config",
    ),
    "SGLang": (re.compile(r"^sglang:|Decode batch\b", re.MULTILINE), "--speculative-algorithm"),
    "llama.cpp": (
        re.compile(r"^llamacpp:|\beval time = |\"predicted_per_second\"", re.MULTILINE),
        "--model-draft",
    ),
}
"""Text that engines print in any case, and the option that turns on speculation."""

_OFF = re.compile(
    r"speculative_(?:config|algorithm)['\"]?[=:] ?(?:None|null)|\bspecial\w*|Accept: "
)
_DRAFTING = re.compile(
    r"\w*(?:draft|accept|spec_|specul|mtp|eagle|medusa|n-?gram|lookahead)\w*|\bspec\b",
    re.IGNORECASE,
)
"""Words of drafting: a log with one of them is not called plain."""

_SYNTHETIC = re.compile(r"synthetic (?:speculative )?acceptance|synthetic_accept\w*", re.IGNORECASE)
_COUNT = re.compile(
    r"([A-Za-z][\w./ -]{0,60}?)[\"']?\s*[:=]\s*[\"']?(\d+(?:,\d{3})*)(?![\d.]*[.%\d])"
)
_TRIED = re.compile("draft|attempt|propos")
_OF = re.compile(r"(\d+) (?:accepted )?(?:/|of|out of) *(\d+)")


def read_acceptance(path: str | os.PathLike[str], *, model: str | None = None) -> AcceptanceRecord:
    r"""Read an engine's record of acceptance, in any known form.

    Args:
        path: a file of text: counters, a log, JSON, JSON lines or CSV, compressed or not; "-" for
            standard input.
        model: the model, where a page of counters has several.

    Returns:
        AcceptanceRecord, its conventions converted: drafts are counted without the token that the
        target adds, means with it.

    Raises:
        InvalidParameter: if the file cannot be read as text, is of no known form or of
            several, or contradicts itself.
        TooLarge: beyond 256 Mi characters.

    Cost: O(length of the file).

    >>> import pathlib, tempfile
    >>> log = (
    ...     "draft acceptance = 0.7 (14 accepted / 20 generated), mean len = 2.40\n"
    ...     "acc per pos = (0.800, 0.600)"
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "server.log"
    ...     _ = file.write_text(log)
    ...     read_acceptance(file)
    AcceptanceRecord(llama.cpp log: 1 request, 10 steps, 2.4 tokens a step, 2 positions)
    """
    return _record_in(read_document(path, model))


def parse_acceptance(text: str) -> AcceptanceRecord:
    """Read the text of a record, as `read_acceptance` does for a file.

    Args:
        text: counters, a log, JSON, JSON lines or CSV.

    Returns:
        AcceptanceRecord.

    Raises:
        InvalidParameter: if the text is of no known form or of several, or contradicts itself.
        TooLarge: beyond 256 Mi characters.

    Cost: O(length of the text).

    >>> text = '{"meta_info": {"spec_verify_ct": 10, "spec_accept_histogram": [2, 2, 6]}}'
    >>> parse_acceptance(text).pooled_mean
    2.4
    """
    return _record_in(Document(text))


def read_models(path: str | os.PathLike[str]) -> dict[str, AcceptanceRecord]:
    r"""Read the records of all models in a file, by name of the model.

    Args:
        path: as for `read_acceptance`.

    Returns:
        one record for each model that the file names; a single one under "" where it names none.

    Raises:
        InvalidParameter, TooLarge: as `read_acceptance` does.

    Cost: O(length of the file).

    >>> import pathlib, tempfile
    >>> line = 'vllm:spec_decode_num_{}_total{{model_name="{}"}} {}'
    >>> counts = ("drafts", "a", 10), ("accepted_tokens", "a", 14)
    >>> counts += ("drafts", "b", 30), ("accepted_tokens", "b", 30)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "metrics.txt"
    ...     _ = file.write_text("\n".join(line.format(*one) for one in counts))
    ...     {name: record.mean for name, record in read_models(file).items()}
    {'a': 2.4, 'b': 2.0}
    """
    return _models_in(read_document(path))


def parse_models(text: str) -> dict[str, AcceptanceRecord]:
    """Read the records of all models in a text, as `read_models` does for a file.

    Args:
        text: a page of counters, or any other record.

    Returns:
        one record for each model that the text names; a single one under "" where it names none.

    Raises:
        InvalidParameter, TooLarge: as `parse_acceptance` does.

    Cost: O(length of the text).

    >>> text = '{"meta_info": {"spec_verify_ct": 10, "spec_accept_histogram": [2, 2, 6]}}'
    >>> parse_models(text)[""].mean
    2.4
    """
    return _models_in(Document(text))


def _models_in(document: Document) -> dict[str, AcceptanceRecord]:
    models = prometheus.models_in(document)
    if len(models) < 2:
        return {"".join(models): _record_in(document)}
    return {name: _record_in(dataclasses.replace(document, model=name)) for name in models}


def _record_in(document: Document) -> AcceptanceRecord:
    """Return the record in a document, by the one form that recognises the document."""
    found = [form for form in FORMS if form.is_form_of(document)]
    if document.unwrapped:  # JSON around the lines of a log, if no form is of the JSON itself
        inside = Document(document.unwrapped, document.model)
        forms = [form for form in FORMS if form.is_form_of(inside)]
        if forms and found in ([], forms):
            document, found = inside, forms
    if not found and printed.MEAN.recognises(document):
        found = [printed.MEAN]
    if len(found) > 1:
        raise InvalidParameter(
            f"A record is of one form; this one is of {len(found)}: "
            f"{'; '.join(form.marks for form in found)}. Split it."
        )
    named = "ynthetic" in document.text or "YNTHETIC" in document.text  # found far sooner
    if named and (synthetic := _SYNTHETIC.search(document.text)):
        raise InvalidParameter(
            "A plan needs acceptance that drafts have earned; this record's is made up: "
            f'"{_line_at(document.text, synthetic.start())}". Run without it.'
        )
    times = times_in(document)
    if not found:
        raise InvalidParameter(_refusal(document, times))
    return dataclasses.replace(found[0].read(document), times=times)


def _refusal(document: Document, times: Times | None) -> str:
    """Return the message of the error on a text in which no form was recognised."""
    text = document.text
    if not text.strip():
        return "A record must hold text; this one is empty. Look at what wrote it."
    word = _DRAFTING.search(_OFF.sub("", text))
    if word is None:
        for engine, (mark, option) in _WITHOUT.items():
            if mark.search(text):
                told = f"A record tells of drafts; this is {engine}'s, but speculation is off. "
                told += f"Start the engine with {option}."
                if times is not None:
                    ms, running = 1e3 * times.token[times.usual], times.usual or "some"
                    told += f" Its {ms:.4g} ms a token, {running} running, is a --target-ms."
                return told
        names = ", ".join(form.name for form in FORMS)
        return (
            "A record tells of drafts; there is no word of them in this text. Pass a record of one "
            f"of these forms (docs/records.md): {names}; or type numbers, --accepted and --steps."
        )
    words = sorted({one.lower() for one in _DRAFTING.findall(_OFF.sub("", text))})[:8]
    near = max(FORMS, key=lambda form: _likeness(form, text))
    line = _line_at(text, text.find(word[0]))
    return (
        f"A record must be of a known form; this one says {', '.join(words)}, but no form was "
        f'recognised: "{line}".{_counts_words(text)} The nearest form is {near.name}: '
        f"{near.marks}. Or type numbers: --accepted A --steps N, or --mean M."
    )


def _likeness(form: Form, text: str) -> float:
    """Return the share of the words that mark a form which a text has."""
    marks = re.findall(r'"([^"]+)"', form.marks) or [form.marks]
    words = {word for mark in marks for word in re.findall(r"[A-Za-z_]{4,}", mark)}
    share = sum(word.lower() in text.lower() for word in words) / (1 + len(words))
    return share + any(
        form.name.startswith(name) for name, (mark, _) in _WITHOUT.items() if mark.search(text)
    )


def _counts_words(text: str) -> str:
    """Describe the accepted and drafted tokens in a text, if it has them."""
    told = {name.strip().lower(): value for name, value in _COUNT.findall(text)}
    accepted = [told[name] for name in told if "accept" in name]
    drafted = [told[name] for name in told if "accept" not in name and _TRIED.search(name)]
    pair: Sequence[str] = [*accepted[:1], *drafted[:1]]
    if not (accepted and drafted):
        of = _OF.search(text)
        pair = of.groups() if of else ()
    return f" {' of '.join(pair)} drafts accepted; tokens or steps are missing." if pair else ""


def _line_at(text: str, place: int) -> str:
    """Return the line of a text around a place, cut to 100 characters."""
    start = text.rfind("\n", 0, place) + 1
    return text[max(start, place - 60) :].partition("\n")[0].strip()[:100]
