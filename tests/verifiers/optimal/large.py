"""Pairs of distributions on vocabularies of real size."""

from __future__ import annotations

import numpy as np

import otm


def language_rows(
    num_tokens: int, seed: int, rows: tuple[int, ...] = ()
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    logits = 3 * rng.standard_normal((*rows, num_tokens))
    moved = logits + rng.standard_normal((*rows, num_tokens))
    return otm.from_logits(logits), otm.from_logits(moved)
