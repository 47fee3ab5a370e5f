"""`python -m benchmarks.torture`: run families of trials side by side for some minutes, and print
the failures and a table; `page` writes docs/accuracy.md.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import threading
import time
from pathlib import Path

from benchmarks.torture import results
from benchmarks.torture.frame import Trial, families, fresh_seed, one_of, told
from benchmarks.torture.isolation import Apart, Broken
from benchmarks.torture.page import page
from tests.paths import ROOT

NICE = 15
PAGE = ROOT / "docs" / "accuracy.md"


def main() -> int:
    """Run what the command line asks for; the exit status is 1 if something failed."""
    asked = _arguments()
    if asked.replay:
        name, seed, index = asked.replay.rsplit(":", 2)
        trial = Trial(**one_of(name, int(seed), int(index)))
        print(told(name, int(seed), int(index), trial))
        return int(trial.failed)
    if asked.action == "run":
        _run(asked)
    total = results.summary([asked.out, *asked.also], revisions=asked.revision)
    if asked.action == "page":
        PAGE.write_text(page(total, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        print(f"written: {PAGE.relative_to(ROOT)}")
    else:
        print(results.table(total), end="")
    return int(bool(total.failures))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torture", description=__doc__)
    parser.add_argument("action", nargs="?", choices=["run", "table", "page"], default="run")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument(
        "--seed", type=int, default=None, help="from the operating system unless given; printed"
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--only", nargs="+", metavar="FAMILY", choices=list(families()), default=None
    )
    parser.add_argument(
        "--out", type=Path, default=Path("torture-results"), help="a folder that runs may share"
    )
    parser.add_argument(
        "--also", type=Path, nargs="+", default=[], help="folders to add up with it"
    )
    parser.add_argument(
        "--revision", nargs="+", default=(), help="count trials of these revisions only"
    )
    parser.add_argument("--replay", metavar="FAMILY:SEED:INDEX", help="repeat one trial and stop")
    asked = parser.parse_args()
    asked.only = asked.only or list(families())
    return asked


def _run(asked: argparse.Namespace) -> None:
    """Keep the workers at work until the time is over."""
    asked.seed = fresh_seed() if asked.seed is None else asked.seed
    print(f"seed {asked.seed}, families: {', '.join(asked.only)}", flush=True)
    os.nice(NICE)
    until = time.monotonic() + 60 * asked.minutes
    first = results.next_indices(asked.out, asked.seed)
    workers = [
        threading.Thread(target=_work, args=[asked, number, first, until], daemon=True)
        for number in range(asked.workers)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def _work(asked: argparse.Namespace, number: int, first: dict[str, int], until: float) -> None:
    """Do trials of the family that has had the least time, in a process apart; one that dies or
    hangs is a failed trial, and another takes its place.
    """
    known = families()
    index = {name: first[name] + (number - first[name]) % asked.workers for name in asked.only}
    spent = dict.fromkeys(index, 0.0)
    writer = results.Writer(asked.out, seed=asked.seed, worker=str(number))
    apart = Apart("benchmarks.torture.frame", memory=None)
    while time.monotonic() < until:
        name = min(spent, key=spent.__getitem__)
        which, begun = (name, asked.seed, index[name]), time.monotonic()
        try:
            answer = apart.ask("benchmarks.torture.frame:one_of", *which, seconds=known[name].limit)
            trial = Trial(**answer)
        except Broken as broken:
            trial = Trial(known[name].itself, 0, math.inf, detail=f"the worker {broken}")
        seconds = time.monotonic() - begun
        writer.record(name, index[name], trial, seconds)
        if trial.failed:
            print(told(*which, trial), file=sys.stderr, flush=True)
        spent[name] += seconds
        index[name] += asked.workers
    apart.close(30.0)
    writer.close()


if __name__ == "__main__":
    sys.exit(main())
