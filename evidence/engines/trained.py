"""What a run with a trained pair writes: the texts of each configuration and its steps.

Executed in the environment of an engine: standard library and numpy only.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import itertools
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from evidence.engines.recording import Case, machine

TEMPERATURES = (1.0, 0.7, 0.3)
DRAFTS = 4
"""Of a step."""


@dataclasses.dataclass(frozen=True)
class Task:
    """What is written with a pair.

    Attributes:
        prompts: tokens before each text.
        length: tokens of a text.
        never: a token that no text has, for engines that end texts at one.
    """

    prompts: list[list[int]]
    length: int
    never: int


def cases(
    open_session: Callable[[Path, Any], Any], *told: tuple[Any, str, str, str], first: str = "step"
) -> tuple[Case, ...]:
    """Return configurations of `DRAFTS` drafts at the three temperatures.

    Args:
        open_session: starts a session with the pair in a folder, in a way.
        told: the way, and the name, rule and options of a `Case`, for each.
        first: as of `Case`.
    """
    return tuple(
        Case(
            name=name,
            rule=rule,
            drafts=DRAFTS,
            options=options,
            open=lambda pair, _, way=way: open_session(pair, way),
            first=first,
            temperatures=TEMPERATURES,
        )
        for way, name, rule, options in told
    )


def run(
    packages: Sequence[str],
    cases: Sequence[Case],
    prepare: Callable[[Path, Path, int], Path] = lambda pair, *_: pair,
) -> None:
    """Run all cases for the task in a file, and write texts and steps as JSON.

    Args:
        packages: whose versions are recorded.
        cases: what is run.
        prepare: returns the folder of the pair in the engine's format, which it may write into a
            second folder; it is told the token that no text has.
    """
    parser = argparse.ArgumentParser()
    for name in ("pair", "task", "out"):
        parser.add_argument(name, type=Path)
    options = parser.parse_args()
    task = Task(**json.loads(options.task.read_text()))
    with tempfile.TemporaryDirectory() as place:
        pair = prepare(options.pair, Path(place), task.never)
        results = [
            _written(one, temperature, pair, task)
            for one in cases
            for temperature in one.temperatures
        ]
    names = [package.split("==")[0].split("[")[0] for package in packages]
    record = {
        "packages": {name: importlib.metadata.version(name) for name in names},
        "machine": machine(),
        "results": results,
    }
    options.out.write_text(json.dumps(record), encoding="utf-8")


def _written(one: Case, temperature: float, pair: Path, task: Task) -> dict[str, Any]:
    """Return the texts of a configuration, the steps of each, and the seconds of all."""
    session, texts, steps = one.open(pair, True), [], [0]
    start = time.perf_counter()
    for number, prompt in enumerate(task.prompts):
        texts += session.write([prompt], task.length, temperature, number)
        steps.append(session.told()["rounds"])
    seconds = time.perf_counter() - start
    print(f"{one.name}, T = {temperature:g}: {seconds:.0f} s, {steps[-1]} steps", flush=True)
    return {
        "name": one.name,
        "rule": one.rule,
        "options": one.options,
        "first": one.first,
        "temperature": temperature,
        "texts": texts,
        "steps": [after - before for before, after in itertools.pairwise(steps)],
        "seconds": round(seconds, 1),
    }
