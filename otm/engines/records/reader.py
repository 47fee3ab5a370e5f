"""One reader for every form: the registry of forms, and the recognition of a document's form."""

from __future__ import annotations

import dataclasses
import os
import re

from otm.engines.records import (
    aiperf,
    llama_cpp,
    positions_csv,
    prometheus,
    sglang_bench,
    sglang_log,
    sglang_meta,
    specforge,
    speculators,
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
    sglang_bench.FORM,
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
)
"""Every form that is recognised; the next one is a file with a FORM and an entry here."""

_WITHOUT = {
    "vLLM": (
        re.compile(r"^vllm:|Avg generation throughput: ", re.MULTILINE),
        "--speculative-config",
    ),
    "SGLang": (re.compile(r"^sglang:|Decode batch\b", re.MULTILINE), "--speculative-algorithm"),
    "llama.cpp": (re.compile(r"^llamacpp:|\beval time = ", re.MULTILINE), "--model-draft"),
}
"""Text that engines print in any case, and the option that turns on speculation."""


def read_acceptance(path: str | os.PathLike[str]) -> AcceptanceRecord:
    r"""Read an engine's record of acceptance, in any known form.

    Args:
        path: a file of text: counters, a log, JSON, JSON lines or CSV; "-" for standard input.

    Returns:
        AcceptanceRecord, its conventions converted: drafts are counted without the token that the
        target adds, means with it.

    Raises:
        InvalidParameter: if the file cannot be read as UTF-8 text, is of no known form or of
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
    return _record_in(read_document(path))


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
    """Read the records of all models in a file, by name of the model.

    Args:
        path: as for `read_acceptance`.

    Returns:
        one record for each model that the file names; a single one under "" where it names none.

    Raises:
        InvalidParameter, TooLarge: as `read_acceptance` does.

    Cost: O(length of the file).
    """
    return {"": _record_in(read_document(path))}


def _record_in(document: Document) -> AcceptanceRecord:
    """Return the record in a document, by the one form that recognises the document."""
    found = [form for form in FORMS if form.recognises(document)]
    if len(found) > 1:
        raise InvalidParameter(
            f"A record is of one form; this one is of {len(found)}: "
            f"{'; '.join(form.marks for form in found)}. Split it."
        )
    times = times_in(document)
    for engine, (mark, option) in _WITHOUT.items() if not found else ():
        if mark.search(document.text):
            raise InvalidParameter(
                f"A record tells of drafts; this is {engine}'s, but speculation is off. "
                f"Start the engine with {option}.{_plain_words(times)}"
            )
    if not found:
        looked = "".join(f"\n  {form.name}: {form.marks}" for form in FORMS)
        raise InvalidParameter(
            f"The text must be of a known form; it is of none. Looked for:{looked}"
        )
    return dataclasses.replace(found[0].read(document), times=times)


def _plain_words(times: Times | None) -> str:
    """Describe the cost of a target call, from a log without speculation."""
    if times is None:
        return ""
    ms = 1e3 * times.token[times.usual]
    return f" Its {ms:.4g} ms a token, {times.usual or 'some'} running, is a --target-ms."
