"""Timings of whole processes, one after the other, in turn with those of another revision."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROUNDS = 3


def told(home: Path, script: str, *arguments: object, **environment: str) -> Any:
    """Return the JSON that a script prints in a process that imports the library from a folder,
    which is its first argument.
    """
    command = [sys.executable, "-c", script, str(home), *map(str, arguments)]
    clean = os.environ | {"PYTHONPATH": "", "PYTHONSAFEPATH": "1"} | environment
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=clean, cwd="/")
    return json.loads(done.stdout)


def homes(beside: Path | None) -> Mapping[str, Path]:
    """Return the folders of the revisions by what their columns' names begin with."""
    return {"": Path.cwd()} | ({"beside: ": beside} if beside else {})


def spread(seconds: Iterable[float]) -> str:
    """Return median, least and most of some seconds."""
    taken = sorted(seconds)
    return f"{statistics.median(taken):.2f} ({taken[0]:.2f} to {taken[-1]:.2f})"
