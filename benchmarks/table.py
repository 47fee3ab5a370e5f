"""`otm.acceptance_table` of one row of 128,256 tokens, k = 1..8, in CPU milliseconds.

Beside it a sort of the same ratios; `--beside FOLDER` times another revision in turn. Each is a
process of its own that has its compiled code loaded.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.processes import homes, spread, told

_ROUNDS = 7
_TIMED = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
import numpy as np
import otm
from otm.table import table_columns
try:
    from otm._machine.compiled import load_at_once
    load_at_once()
except ImportError:  # an older revision always does
    pass
rng = np.random.default_rng(0)
logits = 3.0 * rng.standard_normal(128_256)
p, q = otm.from_logits(logits), otm.from_logits(logits + rng.standard_normal(len(logits)))
ks = range(1, 9)
stems = {column.stem for column in table_columns(ks)}
few = ["optimum_iid", "kseq_iid", "recursive_rejection_iid", "naive_iid"]
chosen = {
    "all columns": None,
    "without the threshold race": [name for name in stems if "threshold_race" not in name],
    "optimum, K-SEQ, recursive rejection, naive": few,
}
tasks = {
    name: lambda columns=columns: otm.acceptance_table(draft=p, target=q, k=ks, columns=columns)
    for name, columns in chosen.items()
}
tasks["numpy.argsort"] = lambda: np.argsort(q / p)
taken = {}
for name, task in tasks.items():
    for _ in range(3):
        task()
    taken[name] = one = []
    for _ in range(15):
        start = time.process_time()
        task()
        one.append(1e3 * (time.process_time() - start))
print(json.dumps({name: float(np.median(one)) for name, one in taken.items()}))
"""


def run(*, seconds: float, beside: Path | None = None) -> list[dict[str, Any]]:
    """Return a row for each choice of columns; `seconds` has no effect."""
    taken: dict[str, list[dict[str, float]]] = {side: [] for side in homes(beside)}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(1 + _ROUNDS):
            for side, home in homes(beside).items():
                found = told(home, _TIMED, NUMBA_CACHE_DIR=folder)
                if turn > 0:  # the first compiles
                    taken[side].append(found)
    sort = statistics.median(one["numpy.argsort"] for one in taken[""])
    rows = []
    for name in taken[""][0]:
        row: dict[str, Any] = {"columns": name}
        for side, rounds in taken.items():
            row[f"{side}ms"] = spread(one[name] for one in rounds)
            middle = statistics.median(one[name] for one in rounds)
            row[f"{side}argsorts"] = middle / sort
        if beside:
            row["of beside"] = row["argsorts"] / row["beside: argsorts"]
        rows.append(row)
    return rows
