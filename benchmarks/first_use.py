"""First answers of a process, in CPU seconds, on a machine without compiled code and on one with.

Imports are part of it. "loaded at once" is what the code takes that is compiled, or read from the
disk, once a process has worked for some seconds; `--beside FOLDER` times another revision in turn.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.processes import ROUNDS, homes, spread, told

_ASKED = """
import json, sys, time
start = time.process_time()
sys.path.insert(0, sys.argv[1])
import numpy as np
import otm
if sys.argv[4] == "now":
    try:
        from otm._machine.compiled import load_at_once
        load_at_once()
    except ImportError:
        pass
p, q = np.random.default_rng(0).dirichlet(np.full(int(sys.argv[3]), 0.1), size=2)
problem = otm.Problem(draft=p, target=q, law=otm.IID(2))
if sys.argv[2] == "optimum":
    otm.optimal_acceptance(problem)
elif sys.argv[2] == "table":
    otm.acceptance_table(draft=p, target=q, k=range(1, 9))
print(json.dumps(time.process_time() - start))
"""
QUESTIONS = {
    "optimal_acceptance, V = 5,000": ("optimum", 5_000, "late"),
    "optimal_acceptance, V = 128,256": ("optimum", 128_256, "late"),
    "acceptance_table, k = 1..8, V = 5,000": ("table", 5_000, "late"),
    "acceptance_table, k = 1..8, V = 128,256": ("table", 128_256, "late"),
    "optimal_acceptance, loaded at once": ("optimum", 5_000, "now"),
    "acceptance_table, loaded at once": ("table", 5_000, "now"),
}


def run(*, seconds: float, beside: Path | None = None) -> list[dict[str, Any]]:
    """Return a row for each question; `seconds` has no effect, each is asked three times."""
    rows = []
    for name, asked in QUESTIONS.items():
        taken: dict[str, list[float]] = {}
        for _ in range(ROUNDS):
            for side, home in homes(beside).items():
                with tempfile.TemporaryDirectory() as folder:
                    for state in ("nothing compiled", "compiled before"):
                        found = told(home, _ASKED, *asked, NUMBA_CACHE_DIR=folder)
                        taken.setdefault(f"{side}{state}", []).append(float(found))
        rows.append({"CPU s": name} | {state: spread(found) for state, found in taken.items()})
    return rows
