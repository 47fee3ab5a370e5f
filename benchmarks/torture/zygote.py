"""A process that has imported what a command needs, and forks one child for each command: kills
without waiting for imports.

It is asked through `benchmarks.torture.isolation`. Workers are forked, too, where the command
itself would start them anew: torch is not imported here, so that nothing is held by a thread that
the fork leaves behind.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import traceback

import pandas  # noqa: F401 (pyarrow loads it when it first makes a table)

import analysis.run.runs
import analysis.trace.traces  # noqa: F401
from analysis.__main__ import main as command
from analysis.provenance import environment, origin

environment(), origin()
_FORKED = multiprocessing.get_context("fork")
multiprocessing.get_context = lambda method=None: _FORKED  # type: ignore[assignment]


def start(arguments: list[str], said: str) -> int:
    """Fork a child that is the command, and return its number; what it says goes to a file."""
    child = os.fork()
    if child == 0:
        _run(arguments, said)
    return child


def status(child: int) -> int:
    """Return the exit status of a child that has ended."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _run(arguments: list[str], said: str) -> None:
    """Be the command."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    file = os.open(said, os.O_WRONLY | os.O_APPEND)
    for number, handle in ((0, nothing), (1, file), (2, file)):
        os.dup2(handle, number)
    code = 1
    try:
        sys.argv = ["otm", *arguments]
        code = command(arguments)
    except SystemExit as stopped:
        code = stopped.code if isinstance(stopped.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
