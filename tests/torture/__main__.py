"""`python -m tests.torture`: run families of trials side by side for some minutes, and print what
came of it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType

from tests.paths import ROOT
from tests.torture import results
from tests.torture.frame import Course, Trial, families, fresh_seed, replay, told
from tests.torture.page import page

NICE = 15


def main() -> int:
    """Run what the command line asks for; the exit status is 1 if something failed."""
    asked = _arguments()
    if asked.replay:
        name, seed, index = asked.replay.rsplit(":", 2)
        trial = replay(name, int(seed), int(index))
        print(told(name, int(seed), int(index), trial))
        return int(trial.failed)
    if asked.worker:
        _work(asked)
        return 0
    if asked.action == "run":
        _supervise(asked)
    total = results.summary([asked.out, *asked.also], revisions=asked.revision)
    if asked.action == "page":
        committed = ROOT / "docs" / "accuracy.md"
        print(
            page(total, committed.read_text(encoding="utf-8") if committed.is_file() else ""),
            end="",
        )
    else:
        print(results.table(total), end="")
    return int(bool(total.failures))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
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
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    asked.only = asked.only or list(families())
    return asked


class Stopped(SystemExit):
    """The run is to end now; what is set up is torn down on the way out."""


def _stop(number: int, frame: FrameType | None) -> None:
    raise Stopped


def _leave_with(parent: int) -> None:
    """Stop this process soon after its parent has ended, however that ended."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)


def _status(folder: Path, worker: str) -> Path:
    return folder / f"working-{worker}.json"


def _work(asked: argparse.Namespace) -> None:
    """Do trials of the family that has had the least time, as one of several workers, until told to
    stop or left alone.
    """
    signal.signal(signal.SIGTERM, _stop)
    os.nice(NICE)
    threading.Thread(target=_leave_with, args=[os.getppid()], daemon=True).start()
    number, workers = map(int, asked.worker.split("/"))
    first = results.next_indices(asked.out, asked.seed)
    known = families()
    courses = {name: Course(known[name], asked.seed) for name in asked.only}
    index = {name: first[name] + (number - first[name]) % workers for name in courses}
    spent = dict.fromkeys(courses, 0.0)
    writer = results.Writer(asked.out, seed=asked.seed, worker=str(number))
    status = _status(asked.out, str(number))
    try:
        while True:
            name = min(spent, key=spent.__getitem__)
            begun = time.monotonic()
            status.write_text(json.dumps([name, index[name], time.time()]))
            trial = courses[name].trial(index[name])
            seconds = time.monotonic() - begun
            writer.record(name, index[name], trial, seconds)
            if trial.failed:
                print(told(name, asked.seed, index[name], trial), file=sys.stderr, flush=True)
            spent[name] += seconds
            index[name] += workers
    except Stopped:
        pass
    finally:
        status.unlink(missing_ok=True)
        for course in courses.values():
            course.close()
        writer.close()


def _supervise(asked: argparse.Namespace) -> None:
    """Keep the workers at work until the time is over; one that dies or hangs is a failed trial,
    and another takes its place.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    asked.seed = fresh_seed() if asked.seed is None else asked.seed
    print(f"seed {asked.seed}, families: {', '.join(asked.only)}", flush=True)
    asked.out.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + 60 * asked.minutes
    workers = {str(number): _start(asked, number) for number in range(asked.workers)}
    try:
        while time.monotonic() < until:
            time.sleep(min(0.5, max(until - time.monotonic(), 0.0)))
            for number, process in workers.items():
                wrong = _what_is_wrong(asked, number, process)
                if wrong:
                    _end(process)
                    _blame(asked, number, wrong)
                    workers[number] = _start(asked, int(number))
    except Stopped:
        pass
    finally:
        for process in workers.values():
            process.terminate()
        for process in workers.values():
            _end(process)
        for number in workers:
            _status(asked.out, number).unlink(missing_ok=True)


def _start(asked: argparse.Namespace, number: int) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "tests.torture",
        "--worker",
        f"{number}/{asked.workers}",
        "--seed",
        str(asked.seed),
    ]
    return subprocess.Popen(
        [*command, "--out", str(asked.out), "--only", *asked.only], start_new_session=True
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Give a worker half a minute to tear down what it has set up, then kill it and all that it
    started.
    """
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _what_is_wrong(asked: argparse.Namespace, number: str, process: subprocess.Popen[bytes]) -> str:
    if process.poll() is not None:
        return f"the worker ended with status {process.returncode}"
    try:
        name, _, since = json.loads(_status(asked.out, number).read_text())
    except (OSError, ValueError):
        return ""  # between two trials
    limit = families()[name].limit
    return f"no end after {limit:g} s" if time.time() - since > limit else ""


def _blame(asked: argparse.Namespace, number: str, wrong: str) -> None:
    """Write down the trial in which a worker died or hung."""
    try:
        name, index, since = json.loads(_status(asked.out, number).read_text())
    except (OSError, ValueError):
        name, index, since = asked.only[0], 0, time.time()
    writer = results.Writer(asked.out, seed=asked.seed, worker=f"{number}-supervisor")
    trial = Trial(Course(families()[name], asked.seed).itself, 0, math.inf, detail=wrong)
    writer.record(name, index, trial, time.time() - since)
    writer.close()
    print(told(name, asked.seed, index, trial), file=sys.stderr, flush=True)
    _status(asked.out, number).unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
