"""Pieces of work for tests of workers, in a module that loads neither torch nor pandas.

A worker imports the module of the piece that it runs, so each of the many processes begins at once.
"""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

from analysis.errors import AnalysisError


def square(number: int) -> int:
    return number * number


def refuse(number: int) -> int:
    if number == 3:
        raise AnalysisError("not three")
    return number


def die_once(argument: tuple[int, str]) -> int:
    """Kill the process that runs piece 2, the first time."""
    number, witness = argument
    if number == 2 and not Path(witness).exists():
        Path(witness).write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.01)
    return number * number


def die_at_three(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def exhaust(number: int) -> int:
    raise MemoryError


def hold(argument: tuple[str, str]) -> None:
    """Tell the process's number, then work for ever: in Python, or without letting another thread
    run.
    """
    folder, how = argument
    (Path(folder) / str(os.getpid())).touch()
    if how == "sleeps":
        time.sleep(600)
    re.match(r"(a+)+$", "a" * 60 + "b")
