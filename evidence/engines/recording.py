"""What a run of an engine records: `Result`, one for each configuration, and the run around them.

Executed in the environment of an engine: standard library and numpy only.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import importlib.metadata
import itertools
import json
import os
import platform
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from evidence.engines import tiny

TEXTS = 3_000
"""Sampled texts of a configuration."""

LENGTH, DEPTH, LONG = 8, 3, 80
"""Tokens of a sampled text, how many of its first are counted jointly, tokens of a long text."""

SEED = 7


class Session(Protocol):
    """An engine with its models loaded; its counters start at 0."""

    def write(
        self, prompts: Sequence[Sequence[int]], length: int, temperature: float, seed: int
    ) -> list[list[int]]:
        """Write a text of so many tokens after each prompt; request i has the seed `seed` + i."""
        ...

    def told(self) -> dict[str, Any]:
        """Tell the engine's totals, as far as it counts them.

        By its own words `tokens`, `steps`, `drafted`, `accepted`; beside these `rounds`, all steps
        after the prompts' own, drafted or not, by the best count there is; `calls` of the target
        for them where these are counted apart; `raw`, a piece of the record as it stands.
        """
        ...


Open = Callable[[Path, bool], Session]
"""Starts a session with the pair in a folder, its files `target` and `draft`; False: no drafts."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A way to run an engine.

    Attributes:
        name: what is told apart in the table.
        rule: a key of `evidence.engines.rules.RULES`, what it is believed to run.
        drafts: most drafted tokens of a step.
        options: what is set in the engine, in its own words.
        first: "prompt" where the first token is the prompt's own pass's, "step" where it comes from
            a verified step.
        temperatures: 0 is greedy.
        texts: sampled texts of one temperature; fewer where the engine is slow.
        open: starts a session.
    """

    name: str
    rule: str
    drafts: int
    options: str
    open: Open
    first: str = "prompt"
    temperatures: tuple[float, ...] = (1.0, 0.7, 0.0)
    texts: int = TEXTS


@dataclasses.dataclass
class Result:
    """What one configuration wrote and said of itself.

    Attributes:
        name, rule, drafts, options, first, temperature: of the case.
        texts, tokens: how many were written.
        counters: the engine's totals over these texts, by `Session.told`; absent if not counted.
        raw: a piece of its record.
        seconds: for these texts.
        sequences: sampled texts by their first three letters, numbers in lexicographic order.
        strange: sampled texts that are too short, too long or not of letters, and not in
            `sequences`.
        again, plain: texts of one seed, of so many prompts, that came out equal when written again,
            and without drafts; at temperature 0 `plain` is of greedy texts.
        of: how many these were.
    """

    name: str
    rule: str
    drafts: int
    options: str
    first: str
    temperature: float
    texts: int = 0
    tokens: int = 0
    counters: dict[str, int] = dataclasses.field(default_factory=dict)
    raw: str = ""
    seconds: float = 0.0
    sequences: str = ""
    strange: int = 0
    again: int = 0
    plain: int = 0
    of: int = 0


def counted(texts: Sequence[Sequence[int]], length: int) -> tuple[str, int]:
    """Count texts by their first letters, and those that are no texts of so many letters."""
    seen: collections.Counter[tuple[int, ...]] = collections.Counter()
    for text in texts:
        good = len(text) == length and min(text) >= tiny.pair.SPECIAL
        seen[tuple(text[:DEPTH]) if good else ()] += 1
    letters = range(tiny.pair.SPECIAL, tiny.pair.VOCABULARY)
    numbers = (seen[key] for key in itertools.product(letters, repeat=DEPTH))
    return " ".join(map(str, numbers)), seen[()]


def result(case: Case, temperature: float, folder: Path) -> Result:
    """Run one configuration."""
    names = {field.name for field in dataclasses.fields(Result)}
    given = {name: getattr(case, name) for name in names if hasattr(case, name)}
    found = Result(**given | {"temperature": temperature})
    start = time.perf_counter()
    pair = folder / ("contextual" if temperature == 0 else "plain")
    sampled = ([tiny.pair.PROMPT] * case.texts, LENGTH)
    prompts, length = sampled if temperature > 0 else (tiny.pair.PROMPTS, LONG)
    session = case.open(pair, True)
    texts = session.write(prompts, length, temperature, 0)
    told = session.told() if case.drafts else {}
    found.texts, found.tokens = len(texts), sum(map(len, texts))
    found.raw = str(told.pop("raw", ""))[:400]
    found.counters = {name: int(value) for name, value in told.items() if value is not None}
    found.seconds = round(time.perf_counter() - start, 1)
    if temperature > 0:
        found.sequences, found.strange = counted(texts, length)
    if not case.drafts:
        return found
    if temperature > 0:
        texts = case.open(folder / "contextual", True).write(
            tiny.pair.PROMPTS, LONG, temperature, SEED
        )
    again, plain = (
        case.open(folder / "contextual", drafting).write(tiny.pair.PROMPTS, LONG, temperature, SEED)
        for drafting in (True, False)
    )
    found.of = len(texts)
    found.again = sum(map(list.__eq__, texts, again))
    found.plain = sum(map(list.__eq__, texts, plain))
    return found


def run(
    packages: Sequence[str],
    cases: Sequence[Case],
    write: Callable[[Path, int, float], object],
) -> None:
    """Run all cases and print the record as JSON into the file named on the command line.

    Args:
        packages: whose versions are recorded.
        cases: what is run.
        write: writes one model to a path without suffix: seed, attention.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--install-seconds", type=float, default=0.0)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    results = []
    control = Case(
        name="no drafts",
        rule="none",
        drafts=0,
        options="",
        open=lambda pair, _: cases[0].open(pair, False),
        temperatures=(1.0, 0.7),
        texts=cases[0].texts,
    )
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name, attention in (("plain", 0.0), ("contextual", 1.5)):
            (folder / name).mkdir()
            for role, seed in tiny.pair.SEEDS.items():
                write(folder / name / role, seed, attention)
        for case in (control, *cases):
            for temperature in case.temperatures:
                if options.only in f"{case.name} {temperature}":
                    results.append(dataclasses.asdict(result(case, temperature, folder)))
                    shown = {k: v for k, v in results[-1].items() if k not in ("sequences", "raw")}
                    print(shown, flush=True)
    record = {
        "packages": {
            name: importlib.metadata.version(name)
            for name in (package.split("==")[0].split("[")[0] for package in packages)
            if name[0] != "-"
        },
        "machine": machine(),
        "install_seconds": options.install_seconds,
        **{
            role: (
                tiny.pair.UNIT * tiny.pair.logits(seed)[tiny.pair.SPECIAL :, tiny.pair.SPECIAL :]
            )
            .astype(int)
            .tolist()
            for role, seed in tiny.pair.SEEDS.items()
        },
        "last": tiny.pair.PROMPT[-1] - tiny.pair.SPECIAL,
        "length": LENGTH,
        "results": results,
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def machine() -> dict[str, object]:
    """Return processor, cores and Python of this machine."""
    told = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = re.search(r"model name\s*: (.+)", told)
    return {
        "processor": model[1] if model else platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }
