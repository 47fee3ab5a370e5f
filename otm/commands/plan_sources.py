"""The records that ``otm plan`` works on: files, addresses, typed numbers, and a live view."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import re
import sys
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TextIO

from otm.commands.plan_costs import by_drafts
from otm.engines import (
    AcceptanceRecord,
    parse_models,
    read_models,
    record_of_counts,
    record_of_mean,
    record_of_means,
    record_of_rates,
)
from otm.engines.difference import drifted_positions
from otm.engines.pages import fetch_page
from otm.errors import InvalidParameter, OtmError

MOST_RATES = 8
"""Positions that a line of the live view shows."""

_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0}


def read_records(options: SimpleNamespace) -> dict[str, AcceptanceRecord]:
    """Return the records that the options name, by name of the model."""
    typed = _typed(options)
    if len(typed) + bool(options.files) != 1:
        raise InvalidParameter(
            "A plan has one source: files, an address, --accepted with --steps, --mean, --rates "
            f"or --means; got {len(typed) + bool(options.files)}. Name one."
        )
    if typed:
        _require_unused(options, ("every", "windows", "since", "model"), "numbers typed in")
        return {"": typed[0]}
    if options.every is not None or options.windows is not None:
        return {options.model or "": _watched(options)}
    models = _joined([read_source(file) for file in options.files])
    if options.since is not None:
        earlier = read_source(options.since)
        if unknown := sorted(models.keys() - earlier.keys()):
            raise InvalidParameter(
                f"--since is an earlier scrape of the same models; {unknown[0]!r} is not in it. "
                "Pass a scrape of the same server."
            )
        models = {name: record.since(earlier[name]) for name, record in models.items()}
    return models if options.model is None else {options.model: single(models, options.model)}


def read_source(source: str) -> dict[str, AcceptanceRecord]:
    """Return the records in a file or at an address, by name of the model."""
    if "://" not in source:
        return read_models(source)
    return parse_models(fetch_page(source))


def single(models: dict[str, AcceptanceRecord], name: str | None) -> AcceptanceRecord:
    """Return the record of the named model, or of the only one."""
    chosen = next(iter(models)) if name is None and len(models) == 1 else name
    if chosen not in models:
        raise InvalidParameter(
            f"--model is one of {sorted(models)}; got {name!r}. Choose one of them."
        )
    return models[chosen]


def _typed(options: SimpleNamespace) -> list[AcceptanceRecord]:
    """Return the records of the numbers that are typed in."""
    found = []
    if options.accepted is not None or options.steps is not None:
        found.append(record_of_counts(options.accepted, options.steps, drafts=options.drafts))
    if options.mean is not None:
        found.append(record_of_mean(options.mean, drafts=options.drafts))
    if options.rates is not None or options.means is not None:
        _require_unused(options, ("drafts",), "--rates and --means, which say it themselves")
    if options.rates is not None:
        found.append(record_of_rates(options.rates))
    if options.means is not None:
        found.append(record_of_means(by_drafts(options.means, "--means")))
    return found


def _require_unused(options: SimpleNamespace, names: Sequence[str], what: str) -> None:
    """Raise if one of the options is given that say nothing beside some source."""
    for name in names:
        if getattr(options, name) is not None:
            raise InvalidParameter(
                f"--{name} says nothing of {what}; got {getattr(options, name)!r}. Leave it out."
            )


def _joined(each: list[dict[str, AcceptanceRecord]]) -> dict[str, AcceptanceRecord]:
    """Join the records of several files, model by model."""
    names = dict.fromkeys(itertools.chain(*each))
    return {
        name: AcceptanceRecord.together([models[name] for models in each if name in models])
        for name in names
    }


def _watched(options: SimpleNamespace) -> AcceptanceRecord:
    """Print a line for each window of a live view, and return the record of all windows."""
    (source,) = options.files if len(options.files) == 1 else ("",)
    pause = re.fullmatch(r"(\d{1,6}(?:\.\d+)?)(ms|s|m)", options.every or "")
    if pause is None or "://" not in source or options.since is not None:
        raise InvalidParameter(
            f"--every is a time such as 10s, 500ms or 1m, for one address; got {options.every!r} "
            f"for {', '.join(options.files)}. Pass http://HOST:PORT/metrics, without --since."
        )
    view = _View(sys.stderr if options.json == "-" else sys.stdout)
    with contextlib.suppress(BrokenPipeError):  # who read the lines has left
        with contextlib.suppress(KeyboardInterrupt):
            for number in (
                itertools.count() if options.windows is None else range(options.windows + 1)
            ):
                time.sleep(float(pause[1]) * _UNITS[pause[2]] if number else 0.0)
                try:
                    view.add(single(read_source(source), options.model))
                except OtmError as error:
                    if view.last is None:
                        raise
                    view.say(f"no record: {error}")
        view.say("")
    if view.last is None:
        raise KeyboardInterrupt
    return AcceptanceRecord.together(view.seen or [view.last])


@dataclasses.dataclass
class _View:
    """A live view of one server's counters.

    Attributes:
        stream: where lines go.
        seen: what was seen since the first scrape, a record for each start of the server.
        first, last: the scrapes that the last of these lies between; no first one after a
            restart, when counters begin at 0.
    """

    stream: TextIO
    seen: list[AcceptanceRecord] = dataclasses.field(default_factory=list)
    first: AcceptanceRecord | None = None
    last: AcceptanceRecord | None = None

    def add(self, now: AcceptanceRecord) -> None:
        """Take another scrape, and print the window since the last one."""
        if self.last is None:
            if now.unit != "server" or now.steps is None:
                raise InvalidParameter(
                    f"--every takes a page of counters; this is a {now.form}. Leave it out."
                )
            self.first = self.last = now
            self.say(f"{now.steps:9,.0f} steps before the first window")
            return
        if now.weight == self.last.weight:
            self.say(f"{0:9} steps")
            return
        before = AcceptanceRecord.together(self.seen or [self.last])
        try:
            window = now.since(self.last)
            del self.seen[-1:]
        except InvalidParameter:
            self.say("counters fell: the server was started anew")
            self.seen, self.first, window = list(map(_earlier, self.seen)), None, now
        self.seen.append(now if self.first is None else now.since(self.first))
        self.last = now
        self.say(_line(before, window))

    def say(self, text: str) -> None:
        """Print a line at once."""
        print(text, file=self.stream, flush=True)


def _earlier(record: AcceptanceRecord) -> AcceptanceRecord:
    """Return a record of a server before it was started anew: of another server, by its name."""
    parts = tuple(dataclasses.replace(one, name=f"earlier {one.name}") for one in record.parts)
    return dataclasses.replace(record, parts=parts)


def _line(before: AcceptanceRecord, window: AcceptanceRecord) -> str:
    """Describe a window: steps, tokens, acceptance by position, and the drift from before."""
    line = f"{window.weight:9,.0f} steps  {window.mean:6.3f} tokens a call"
    if not window.measured or not before.measured:
        return line
    rates = " ".join(f"{rate:.2f}" for rate in window.survivors[:MOST_RATES] / window.weight)
    drifted = ", ".join(map(str, drifted_positions(before, window)[:MOST_RATES]))
    return f"{line}  {rates}" + (f"  drift: {drifted}" if drifted else "")
