"""The amount of Monte Carlo of a figure, the random generator, and progress."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np


@dataclasses.dataclass(frozen=True)
class Work:
    """Draws per point, the generator, whether to thin grids, and progress, for every `compute`."""

    samples: int
    rng: np.random.Generator
    fast: bool = False
    tick: Callable[[], object] = lambda: None
