"""How often interpreted kernels read and write their arrays."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np

from tests.paths import ROOT

_BEGIN = """
import json
import numpy as np
from evidence.mutation import interpret_kernels
from tests.counted import Counted

interpret_kernels()
"""


class Counted(np.ndarray):
    """Arrays that count the numbers read and written one by one, all together."""

    uses = 0

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        Counted.uses += not isinstance(found, np.ndarray)
        return found

    def __setitem__(self, at: Any, value: Any) -> None:
        Counted.uses += 1
        super().__setitem__(at, value)


def told(script: str) -> Any:
    """Return the JSON that a script prints in a process whose kernels are interpreted."""
    done = subprocess.run(
        [sys.executable, "-c", _BEGIN + script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)
