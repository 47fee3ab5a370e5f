"""Record the measurement and every batched operation on a GPU, by rows and vocabulary: `python -m
benchmarks.measure_cuda`.

Writes benchmarks/results/measure_DEVICE.json; without a GPU it says so and writes nothing.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import torch

from analysis.provenance import environment, origin
from benchmarks.device import operations
from benchmarks.measure import large_vocabulary

ROWS, VOCABULARIES = (1, 32, 1024), (32_768, 128_256, 262_144)
RESULTS = Path(__file__).resolve().parent / "results"


def main(seconds: float = 5.0) -> int:
    """Measure and write one file per kind of GPU."""
    if not torch.cuda.is_available():
        print("no CUDA device here: nothing measured")
        return 1
    name = torch.cuda.get_device_name()
    rows = [row for row in large_vocabulary(seconds) if row["device"] == name]
    sizes = [
        row
        for count in ROWS
        for vocabulary in VOCABULARIES
        for row in operations(
            "cuda",
            torch.float32,
            count,
            vocabulary,
            seconds=seconds / len(ROWS) / len(VOCABULARIES),
        )
    ]
    where = {key: value for key, value in origin().items() if key in ("revision", "created")}
    record = {
        "device": name,
        "cuda": torch.version.cuda,
        "environment": environment(),
        **where,
        "rows": rows,
        "operations": sizes,
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"measure_{re.sub(r'[^A-Za-z0-9]+', '_', name)}.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
