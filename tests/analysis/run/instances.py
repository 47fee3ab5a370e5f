"""Logits of a draft and a target that follows it."""

from __future__ import annotations

import numpy as np

KS = (1, 2, 4)


def logits(number: int, width: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(number)
    draft = 3.0 * rng.normal(size=width)
    return draft, draft + rng.normal(size=width)
