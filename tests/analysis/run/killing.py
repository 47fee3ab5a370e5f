"""Run a measurement again and again, killing it with SIGKILL at random moments; a script, so that
everything is imported once.

The process forks before it has started any thread; the children are what is killed. After every
kill: whatever shards are there are those of an uninterrupted run, byte for byte, and none has been
written twice.

    python tests/analysis/run/killing.py TRACE REFERENCE WORK KILLS SEED
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

# The children must not import, they must measure; pyarrow loads pandas when it first makes a table.
import pandas  # noqa: F401

import analysis.trace.traces  # noqa: F401
from analysis.provenance import environment, origin
from analysis.run.runs import measure_trace_file
from analysis.run.settings import Settings

TRACE = Settings(positions="trace", k=(1, 2), shard_prompts=8)


def start(measure: Callable[[], object]) -> int:
    """Return the process id of a child that measures and leaves with status 0."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            measure()
            status = 0
        finally:
            os._exit(status)
    return child


def state(run: Path) -> dict[str, tuple[int, int]]:
    """Return inode and modification time of every shard; one written again has others."""
    return {
        path.name: (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in (run / "shards").glob("shard-*.parquet")
    }


def check(
    run: Path, reference: Path, before: dict[str, tuple[int, int]]
) -> dict[str, tuple[int, int]]:
    """Compare what is there with the uninterrupted run and with what was there before."""
    now = state(run)
    for name, identity in before.items():
        assert now.get(name) == identity, f"{name} was written again, or lost"
    for name in now:
        assert (run / "shards" / name).read_bytes() == (reference / "shards" / name).read_bytes(), (
            f"{name} differs"
        )
    return now


def wait_for_a_random_moment(
    rng: random.Random, child: int, run: Path, *, whole: int, duration: float
) -> None:
    """Return at any time of the run half of the time, else just after a random number of shards,
    which may be written in no time.

    The first kind hits planning, loading and the manifest, the second the writing of shards,
    however a machine divides its time.
    """
    if rng.random() < 0.5:
        time.sleep(rng.uniform(0, duration))
        return
    number = rng.randrange(whole)
    while (
        len(state(run)) < number
        and os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    ):
        time.sleep(1e-3)
    time.sleep(rng.uniform(0, 0.01))


def main() -> None:
    """Measure once without a kill, then until enough kills have hit."""
    trace, reference, work, kills, seed = sys.argv[1:]

    def measure(run: Path) -> Callable[[], object]:
        return lambda: measure_trace_file(run, trace=Path(trace), settings=TRACE)

    environment(), origin()
    rng = random.Random(int(seed))
    begin = time.monotonic()
    assert os.waitpid(start(measure(Path(reference))), 0)[1] == 0
    duration = time.monotonic() - begin
    hits, partial, rounds = 0, 0, 0
    whole = len(state(Path(reference)))
    run = Path(work)
    while True:
        before: dict[str, tuple[int, int]] = {}
        finished = False
        while not finished:
            child = start(measure(run))
            if hits < int(kills):
                wait_for_a_random_moment(rng, child, run, whole=whole, duration=duration)
                os.kill(child, signal.SIGKILL)
            killed = os.waitpid(child, 0)[1]
            assert killed in (0, signal.SIGKILL), killed
            hits += killed == signal.SIGKILL
            before = check(run, Path(reference), before)
            partial += killed == signal.SIGKILL and 0 < len(before) < whole
            finished = killed == 0
        assert len(before) == whole
        assert (run / "prompts.parquet").read_bytes() == (
            Path(reference) / "prompts.parquet"
        ).read_bytes()
        assert not list(run.rglob("*.partial"))
        rounds += 1
        if hits >= int(kills):
            break
        shutil.rmtree(run)
    print(f"{hits} kills, {partial} of them between the first and the last shard, {rounds} runs")


if __name__ == "__main__":
    main()
