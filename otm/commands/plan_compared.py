"""Two records beside each other on the page of ``otm plan``: the verdict, then both."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace

from otm._display.tabular import columns
from otm.commands.plan_report import interval_words, name_of, plain
from otm.commands.plan_sources import read_source, single
from otm.commands.printing import paragraph
from otm.engines import AcceptanceRecord, RecordDifference, compare_records
from otm.errors import InvalidParameter


def comparison(
    options: SimpleNamespace, models: dict[str, AcceptanceRecord], *, as_json: bool = False
) -> str:
    """Return the comparison that the options ask for, in words or as JSON."""
    if options.beside is not None and options.against is not None:
        raise InvalidParameter(
            "A record is compared with another one or with a number; got --beside and --against. "
            "Drop one of them."
        )
    record = single(models, options.model)
    records = {", ".join(map(name_of, options.files or ())) or record.form: record}
    other = options.against
    if options.beside is not None:
        others = read_source(options.beside)
        other = single(others, options.model if len(others) > 1 else None)
        records[name_of(options.beside) + " " * (name_of(options.beside) in records)] = other
    found = compare_records(record, other, confidence=options.confidence)
    if as_json:
        return json.dumps(plain(found), allow_nan=False)
    return "\n".join([*_verdict(found), "", *_table(found, records)])


def _verdict(found: RecordDifference) -> Iterator[str]:
    """Yield the verdict, the difference, and the number of requests that would tell it."""
    first, second = found.tokens
    yield f"{found.verdict.upper()}: {first:.3f} and {second:.3f} tokens a call"
    yield f"  {found.difference.words(3, ' tokens a call')}, {found.ratio.words(3, ' x')}"
    paired = ", paired by prompt" * found.paired
    words = interval_words(found.clusters, found.difference.confidence or 0.95, whole=paired)
    yield from paragraph("", words, indent=2)
    if found.needed is not None:
        unit = "requests" if found.clusters == "request" else "calls"
        yield (
            f"  {found.needed:,} {unit} would tell this difference; the first record has "
            f"{found.difference.samples:,}"
        )


def _table(found: RecordDifference, records: dict[str, AcceptanceRecord]) -> Iterator[str]:
    """Yield both records, or the record and the number."""
    rows = [("", "tokens a call", "drafts a step", "requests", "ms a token")]
    for name, record in records.items():
        drafts, times = record.drafts_per_step, record.times
        running = times.usual if times and found.running is None else found.running
        token = (
            f"{1e3 * times.token[running]:.4g}, {running or 'some'} running"
            if times and running is not None
            else ""
        )
        rows.append(
            (
                name,
                f"{record.mean:.3f}",
                "" if drafts is None else f"{drafts:.3g}",
                "" if record.requests is None else f"{record.requests:,}",
                token,
            )
        )
    if len(records) == 1:
        rows.append(("given", f"{found.tokens[1]:.3f}", "", "", ""))
    yield from columns(rows, right=(1, 2, 3))
