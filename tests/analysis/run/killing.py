"""Kill a measurement at every moment at which something reaches the disk; a script, so that
everything is imported once.

The process forks before it has started any thread; the children are what is killed. After every
kill, and after the run that goes on behind it, all shards are those of an uninterrupted run, byte
for byte, and none has been written twice.

    python tests/analysis/run/killing.py TRACE REFERENCE WORK
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

# The children must not import, they must measure; pyarrow loads pandas when it first makes a table.
import pandas  # noqa: F401

import analysis.trace.traces  # noqa: F401
from analysis.provenance import environment, origin
from analysis.run.runs import measure_trace_file
from analysis.run.settings import Settings

TRACE = Settings(positions="trace", k=(1, 2), shard_prompts=8)


def measured(run: Path, trace: Path, *, moment: int = 0) -> bool:
    """Measure in a child that is killed at the `moment`-th flush; return True unless killed.

    A file is flushed before it has its name, and its folder after that.
    """
    child = os.fork()
    if child == 0:
        flushes, flush = itertools.count(1), os.fsync

        def counted(fd: Any) -> None:
            if next(flushes) == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            flush(fd)

        os.fsync = counted
        try:
            measure_trace_file(run, trace=trace, settings=TRACE)
            os._exit(0)
        finally:
            os._exit(1)
    ended = os.waitpid(child, 0)[1]
    assert ended in (0, signal.SIGKILL), ended
    return ended == 0


def shards(run: Path, reference: Path) -> dict[str, tuple[int, int]]:
    """Return inode and modification time of every shard; one written again has others. Their bytes
    are those of the reference.
    """
    found = {path: path.stat() for path in (run / "shards").glob("shard-*.parquet")}
    for path in found:
        whole = (reference / "shards" / path.name).read_bytes()
        assert path.read_bytes() == whole, f"{path.name} differs"
    return {path.name: (one.st_ino, one.st_mtime_ns) for path, one in found.items()}


def main() -> None:
    """Measure once without a kill, then with one at each moment."""
    trace, reference, run = map(Path, sys.argv[1:])
    environment(), origin()
    assert "torch" not in sys.modules, "a trace is measured without models"
    assert measured(reference, trace)
    whole, partial = len(shards(reference, reference)), 0
    for moment in itertools.count(1):
        lived = measured(run, trace, moment=moment)
        before = shards(run, reference)
        assert measured(run, trace)
        now = shards(run, reference)
        assert before.items() <= now.items(), "a shard was written again, or lost"
        assert len(now) == whole and not list(run.rglob("*.partial"))
        prompts = [(place / "prompts.parquet").read_bytes() for place in (run, reference)]
        assert prompts[0] == prompts[1]
        if lived:
            break
        partial += 0 < len(before) < whole
        shutil.rmtree(run)
    print(f"{moment - 1} kills, {partial} of them between the first and the last shard")


if __name__ == "__main__":
    main()
