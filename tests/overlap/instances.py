"""Rows that are hard for bins, and the largest difference between two ways of summing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import otm
from otm.overlap.curve import Containment

KS = [1, 2, 3, 8, 33, 64, 65, 1000]
SIZES = [*(Containment(k=k) for k in KS), *(Containment(c=c) for c in (1.5, 4.0, 1000.0))]


def families(width: int, rng: np.random.Generator) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return pairs (draft, target) as language models give, and pairs that are hard for bins."""
    logits = 3 * rng.standard_normal(width)
    p, q = np.exp(logits), np.exp(logits + rng.standard_normal(width))
    drafted, wanted = rng.random((2, width)) < 0.5
    drafted[0], wanted[0] = True, True
    inside = np.cumsum(np.full(width, 1 / width))
    tiny = 10.0 ** rng.uniform(-320, 0, (2, width))
    return {
        "language model": (p, q),
        "flat": (rng.exponential(size=width), rng.exponential(size=width)),
        "equal": (p, p.copy()),
        "one bin, all different": (p, p * (1 + 1e-6 * rng.random(width))),
        "one ulp apart": (p, np.nextafter(p, rng.choice([0.0, 9.0], width))),
        "a minimum on every piece": (np.full(width, 1.0), 8 * (inside - 0.5 / width) ** 7),
        "few ratios": (
            rng.integers(1, 4, width).astype(float),
            rng.integers(1, 4, width).astype(float),
        ),
        "zeros": (np.where(drafted, p, 0), np.where(wanted, q, 0)),
        "disjoint": (np.where(drafted, p, 0), np.where(drafted, 0, q) + (drafted.all() * q)),
        "subnormal masses": (tiny[0], tiny[1]),
        "one token": (np.where(np.arange(width) == 0, 1.0, 0.0), q),
    }


def problems(width: int, seed: int) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    for name, (p, q) in families(width, np.random.default_rng(seed)).items():
        yield name, otm.normalise(p), otm.normalise(q)


def slack(width: int, k: int) -> float:
    """Return the largest difference of two ways to sum V masses in float64, in different orders.

    V units each at worst, and k/2 for a power that is multiplied out.
    """
    return 4 * (width + min(k, 64) + 8) * 2.0**-53
