"""Trees by belief: nested, and against the fitted scale."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.steps.beliefs import BY_LEVEL, compare_beliefs
from analysis.steps.nodes import NOISE_TREE
from otm.sequence import markov_pair


def test_rows_are_against_the_fitted_scale() -> None:
    draft, target = markov_pair(6, similarity=0.7, rng=np.random.default_rng(1))
    found = compare_beliefs(
        draft=draft,
        target=target,
        contexts=[(i % 6,) for i in range(12)],
        nodes=(2, 4),
        noises=2,
        rng=np.random.default_rng(0),
    )
    rows = {(row.name, row.nodes): row for row in found.rows}
    assert rows[NOISE_TREE, 4].less == 0.0
    for name in (BY_LEVEL, "0.25 times the scale"):
        assert rows[name, 2].mean <= rows[name, 4].mean  # one tree within the other
        assert rows[name, 4].less == pytest.approx(rows[NOISE_TREE, 4].mean - rows[name, 4].mean)
