"""Damaged files through every reader: a typed error that names the file, or an answer that is
right.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from benchmarks.torture import readers
from benchmarks.torture.frame import Trial, family
from benchmarks.torture.isolation import Apart, Broken

LIMIT = 60.0
"""Seconds that a reader may take on a busy machine; files here are small, and what hangs hangs for
ever.
"""

PATIENCE = 240.0
"""Seconds that making a reader's valid files may take: models may be made, and code compiled."""


@family("files", counts="files")
def files(random: np.random.Generator) -> Iterator[Trial]:
    """Damage the files of one reader after another, chosen by weight, and have it read them in a
    process apart.
    """
    names = list(readers.READERS)
    weights = np.array([readers.READERS[name].weight for name in names])
    apart = Apart("benchmarks.torture.readers")
    prepared: set[str] = set()
    try:
        while True:
            name, seed = (
                str(random.choice(names, p=weights / weights.sum())),
                int(random.integers(2**53)),
            )
            reproduce = (
                f"from benchmarks.torture.readers import trial\n\nassert not trial({name!r}, "
                f"{seed})['fault']"
            )
            try:
                if name not in prepared:
                    apart.ask("benchmarks.torture.readers:prepare", name, seconds=PATIENCE)
                    prepared.add(name)
                said = apart.ask("benchmarks.torture.readers:trial", name, seed, seconds=LIMIT)
            except Broken as broken:
                prepared.clear()
                yield Trial(
                    readers.READERS[name].function, 1, math.inf, reproduce, f"the reader {broken}"
                )
                continue
            ratio = math.inf if said["fault"] else 0.0
            yield Trial(
                said["function"], 1, ratio, said["reproduce"], f"{said['damage']}: {said['fault']}"
            )
    finally:
        apart.close()
