"""How much Monte Carlo a figure does, its randomness, and who is told about progress."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np


@dataclasses.dataclass(frozen=True)
class Work:
    """Passed to every `compute`: draws per point, the generator, whether to thin the grids, and a
    progress callback.
    """

    samples: int
    rng: np.random.Generator
    fast: bool = False
    tick: Callable[[], object] = lambda: None
