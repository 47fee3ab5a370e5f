"""`otm.compare` with its defaults and k = (1, 2, 4), in CPU seconds by vocabulary.

Each is a process of its own that has imported the library; `--beside FOLDER` times another revision
in turn. Both find their compiled code on the disk.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.processes import ROUNDS, homes, spread, told

SIZES = (10, 100, 1_000, 2_000, 5_000, 20_000, 128_256)
_COMPARED = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
import numpy as np
import otm
p, q = np.random.default_rng(0).dirichlet(np.full(int(sys.argv[2]), 0.1), size=2)
taken = []
for _ in range(2):
    start = time.process_time()
    found = otm.compare(draft=p, target=q, k=(1, 2, 4))
    taken.append(time.process_time() - start)
print(json.dumps(taken))
"""


def run(*, seconds: float, beside: Path | None = None) -> list[dict[str, Any]]:
    """Return a row for each vocabulary; `seconds` has no effect, each is compared three times."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for home in homes(beside).values():
            told(home, _COMPARED, SIZES[-1], NUMBA_CACHE_DIR=folder)
        for size in SIZES:
            taken: dict[str, list[float]] = {}
            for _ in range(ROUNDS):
                for side, home in homes(beside).items():
                    found = told(home, _COMPARED, size, NUMBA_CACHE_DIR=folder)
                    for call, one in zip(("first call", "second call"), found, strict=True):
                        taken.setdefault(f"{side}{call}", []).append(one)
            rows.append({"V": f"{size:,}"} | {call: spread(one) for call, one in taken.items()})
    return rows
