"""Beliefs about a target that is known: features find its scale, wrong scales lose tokens."""

from __future__ import annotations

import numpy as np
import pytest
import scipy

from analysis.steps.belief import Seen, fitted_scale
from analysis.steps.beliefs import BY_LEVEL, FEATURES, compare_beliefs, logit
from analysis.steps.nodes import NOISE_TREE
from otm.sequence import SharedNoise, markov_pair


def test_features_find_the_law_that_tokens_were_drawn_by() -> None:
    """Tokens by softmax((log p + g)/s), s = 1/2: 1,000 of them leave six coefficients with a mean
    distance of at most √(6/1000).
    """
    rng, seen, law = np.random.default_rng(0), list[Seen](), []
    for number in range(1000):
        mass, noise = rng.dirichlet(np.ones(4)), SharedNoise(1).row(number, 4)
        law.append(scipy.special.softmax(2.0 * (np.log(mass) + noise)))
        seen.append(Seen(number % 8, mass, noise, int(rng.choice(4, p=law[-1]))))
    assert abs(fitted_scale(seen) - 0.5) < 0.05
    belief = logit(seen)
    found = np.array([belief(one.level, one.mass, one.noise) for one in seen])
    assert np.abs(found - law).sum(axis=1).mean() < np.sqrt(6 / 1000)


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
    for name in (BY_LEVEL, FEATURES, "0.25 times the scale"):
        assert rows[name, 2].mean <= rows[name, 4].mean  # one tree within the other
        assert rows[name, 4].less == pytest.approx(rows[NOISE_TREE, 4].mean - rows[name, 4].mean)
