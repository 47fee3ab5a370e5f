"""References for races that share no code with the library: fractions, panels, high precision,
simulation.
"""

from __future__ import annotations

import numpy as np

from otm.races import QUADRATURE_ERROR

# discretisation, two cut-offs of 1e-13 and the rounding of sums below 1
INTEGRATED = 2 * QUADRATURE_ERROR
P, Q = np.array([0.5, 0.25, 0.15, 0.1]), np.array([0.1, 0.3, 0.2, 0.4])


def simulated_race(
    p: np.ndarray, q: np.ndarray, k: int, lists: int, n: int, rng: np.random.Generator
) -> list[tuple[int, ...]]:
    """Draw (drafts, output) from plain exponentials: the definition."""
    times = rng.exponential(size=(n, lists, len(p)))
    draft = np.argsort(times / p, axis=2)
    drafts = draft[:, 0, :k] if lists == 1 else draft[:, :, 0]
    output = (times / q).min(axis=1).argmin(axis=1)
    return [(*map(int, row), int(y)) for row, y in zip(drafts, output, strict=True)]
