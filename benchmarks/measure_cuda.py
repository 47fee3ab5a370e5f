"""Record positions per second of the measurement alone at V = 128,256 on a GPU: `python -m benchmarks.measure_cuda`.

Writes benchmarks/results/measure_DEVICE.json; without a GPU it says so and writes nothing.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import torch

from analysis.provenance import environment, origin
from benchmarks.measure import large_vocabulary

RESULTS = Path(__file__).resolve().parent / "results"


def main(seconds: float = 5.0) -> int:
    """Measure and write one file per kind of GPU."""
    if not torch.cuda.is_available():
        print("no CUDA device here: nothing measured")
        return 1
    name = torch.cuda.get_device_name()
    rows = [row for row in large_vocabulary(seconds) if row["device"] == name]
    where = {key: value for key, value in origin().items() if key in ("revision", "created")}
    record = {"device": name, "cuda": torch.version.cuda, "environment": environment(), **where, "rows": rows}
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"measure_{re.sub(r'[^A-Za-z0-9]+', '_', name)}.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
