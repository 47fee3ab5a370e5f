"""A process that has imported what a command needs, and forks one child for each command: kills
without waiting for imports.

    python -m tests.torture.zygote

reads a JSON array of arguments and the file for what the command says, a line each, and answers a
line with the child's number; `null` asks how the last one ended. Workers are forked, too, where the
command itself would start them anew: torch is not imported here, so that nothing is held by a
thread that the fork leaves behind.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys


def main() -> None:
    """Fork until the input ends."""
    import pandas  # noqa: F401 (pyarrow loads it when it first makes a table)

    import analysis.run.runs
    import analysis.trace.traces  # noqa: F401
    from analysis.provenance import environment, origin

    environment(), origin()
    forked = multiprocessing.get_context("fork")
    multiprocessing.get_context = lambda method=None: forked  # type: ignore[assignment]
    child = 0
    for line in sys.stdin:
        asked = json.loads(line)
        if asked is None:
            print(json.dumps(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])), flush=True)
            continue
        child = os.fork()
        if child == 0:
            _run(*asked)
        print(child, flush=True)


def _run(arguments: list[str], said: str) -> None:
    """Be the command."""
    from analysis.__main__ import main as command

    os.setsid()
    signal.set_wakeup_fd(-1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    file = os.open(said, os.O_WRONLY | os.O_APPEND)
    for number, handle in ((0, nothing), (1, file), (2, file)):
        os.dup2(handle, number)
    status = 1
    try:
        sys.argv = ["otm", *arguments]
        status = command(arguments)
    except SystemExit as stopped:
        status = stopped.code if isinstance(stopped.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
