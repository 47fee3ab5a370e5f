"""What a run with the shipped pair writes: the texts of each configuration and its steps.

Executed in the environment of an engine: standard library and numpy only.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import itertools
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from evidence.engines.recording import Case, machine

TEMPERATURES = (1.0, 0.7, 0.3)
LENGTH, DRAFTS = 48, 4
"""Tokens of a text, drafts of a step."""


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
    prepare: Callable[[Path], Path] = lambda pair: pair,
) -> None:
    """Run all cases after the prompts of a file, and write texts and steps as JSON.

    Args:
        packages: whose versions are recorded.
        cases: what is run.
        prepare: writes the pair in the engine's format and returns its folder.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("pair", type=Path)
    parser.add_argument("prompts", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    pair, prompts = prepare(options.pair), json.loads(options.prompts.read_text())
    results = [
        _written(one, temperature, pair, prompts)
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


def _written(
    one: Case, temperature: float, pair: Path, prompts: Sequence[Sequence[int]]
) -> dict[str, Any]:
    """Return the texts of a configuration, the steps of each, and the seconds of all."""
    session, texts, steps = one.open(pair, True), [], [0]
    start = time.perf_counter()
    for number, prompt in enumerate(prompts):
        texts += session.write([prompt], LENGTH, temperature, number)
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
