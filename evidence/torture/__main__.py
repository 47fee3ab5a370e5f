"""`python -m evidence.torture`: run families of trials side by side for some minutes, and print the
failures and a table; `page` writes docs/accuracy.md.
"""

from __future__ import annotations

import argparse
import faulthandler
import multiprocessing
import os
import sys
import time
from pathlib import Path

from evidence.torture import results
from evidence.torture.frame import Course, families, fresh_seed, told
from evidence.torture.page import page
from tests.paths import ROOT

NICE = 15
LIMIT = 300.0
"""Seconds after which a trial hangs: its worker writes where it is and ends."""
PAGE = ROOT / "docs" / "accuracy.md"


def main() -> int:
    """Run what the command line asks for; the exit status is 1 if something failed."""
    asked = _arguments()
    if asked.replay:
        name, seed, index = asked.replay.rsplit(":", 2)
        trial = Course(families()[name], int(seed)).trial(int(index))
        print(told(name, int(seed), int(index), trial))
        return int(trial.failed)
    broken = _run(asked) if asked.action == "run" else 0
    total = results.summary(asked.out)
    if asked.action == "page":
        PAGE.write_text(page(total, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        print(f"written: {PAGE.relative_to(ROOT)}")
    else:
        print(results.table(total), end="")
    return int(bool(total.failures or broken))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m evidence.torture", description=__doc__)
    parser.add_argument("action", nargs="?", choices=["run", "table", "page"], default="run")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument(
        "--seed", type=int, default=fresh_seed(), help="of the trials (default: fresh, printed)"
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--only", nargs="+", metavar="FAMILY", choices=list(families()), default=list(families())
    )
    parser.add_argument(
        "--out", type=Path, default=Path("torture-results"), help="a folder that runs may share"
    )
    parser.add_argument("--replay", metavar="FAMILY:SEED:INDEX", help="repeat one trial and stop")
    return parser.parse_args()


def _run(asked: argparse.Namespace) -> int:
    """Keep the workers at work until the time is over; return how many of them died."""
    print(f"seed {asked.seed}, families: {', '.join(asked.only)}", flush=True)
    first = results.next_indices(asked.out, asked.seed)
    workers = [
        multiprocessing.Process(target=_work, args=[asked, number, first], daemon=True)
        for number in range(asked.workers)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(worker.exitcode != 0 for worker in workers)


def _work(asked: argparse.Namespace, number: int, first: dict[str, int]) -> None:
    """Do trials of the family that has had the least time, while the supervisor lives."""
    os.nice(NICE)
    until, supervisor = time.monotonic() + 60 * asked.minutes, os.getppid()
    courses = {name: Course(families()[name], asked.seed) for name in asked.only}
    index = {name: first[name] + (number - first[name]) % asked.workers for name in asked.only}
    spent = dict.fromkeys(index, 0.0)
    writer = results.Writer(asked.out, seed=asked.seed, worker=str(number))
    while time.monotonic() < until and os.getppid() == supervisor:
        name, begun = min(spent, key=spent.__getitem__), time.monotonic()
        faulthandler.dump_traceback_later(LIMIT, exit=True)
        trial = courses[name].trial(index[name])
        seconds = time.monotonic() - begun
        writer.record(name, index[name], trial, seconds)
        if trial.failed:
            print(told(name, asked.seed, index[name], trial), file=sys.stderr, flush=True)
        spent[name] += seconds
        index[name] += asked.workers
    faulthandler.cancel_dump_traceback_later()
    writer.close()


if __name__ == "__main__":
    sys.exit(main())
