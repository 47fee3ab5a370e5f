"""The bracket without a sort: it holds the optimum, narrows with bins, on every array kind."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import otm
from otm import IID, Optimal, Problem
from tests import strategies
from tests.conftest import Backend
from tests.tolerance import rounding
from tests.verifiers.optimal.large import language_model_pair


@settings(max_examples=200)
@given(
    strategies.pairs(max_tokens=30),
    st.sampled_from([1, 2, 3, 8, 64, 1000, 10**6]),
    st.sampled_from([1, 2, 3, 7, 64, 4096]),
)
def test_the_bracket_holds_the_optimum(
    pair: tuple[np.ndarray, np.ndarray], k: int, bins: int
) -> None:
    problem = Problem(draft=pair[0], target=pair[1], law=IID(k))
    best, bracket = otm.optimal_acceptance(problem), otm.bounds.optimal_bracket(problem, bins=bins)
    slack = rounding(problem.num_tokens + bins, k)
    assert bracket.lower <= best + slack
    assert best <= bracket.upper + slack
    rule = otm.prepare(Optimal(bins=bins), problem)
    assert rule.lower == pytest.approx(bracket.lower, abs=slack)
    assert rule.upper == pytest.approx(bracket.upper, abs=slack)


def test_the_bracket_narrows_with_bins() -> None:
    p, q = language_model_pair(128_256, seed=2)
    for k in (2, 8):
        gaps = [
            otm.bounds.optimal_bracket(Problem(draft=p, target=q, law=IID(k)), bins=bins).gap
            for bins in (64, 512, 4096)
        ]
        assert gaps[2] < 3e-4
        assert gaps[0] > 4 * gaps[1] > 16 * gaps[2]


def test_the_bracket_on_every_array_kind(backend: Backend) -> None:
    rng = np.random.default_rng(8)
    p, q = (
        otm.examples.dirichlet(1000, rng=rng, rows=6, concentration=0.3),
        otm.examples.dirichlet(1000, rng=rng, rows=6, concentration=0.3),
    )
    q[0] = p[0]
    q[1] = np.roll(np.where(np.arange(1000) < 500, 0.0, 1.0 / 500), 0)
    p[1] = np.where(np.arange(1000) < 500, 1.0 / 500, 0.0)
    p, q = p.reshape(2, 3, -1), q.reshape(2, 3, -1)
    for k in (1, 4, 1000):
        batch = Problem(draft=backend.array(p), target=backend.array(q), law=IID(k))
        bracket = otm.bounds.optimal_bracket(batch, bins=256)
        assert backend.is_own(bracket.lower)
        lower, upper = backend.numpy(bracket.lower), backend.numpy(bracket.upper)
        assert lower.shape == upper.shape == (2, 3)
        best = backend.numpy(otm.optimal_acceptance(batch))
        assert (lower <= best + 1e-5 * (backend.dtype == "float32") + 1e-12).all()
        assert (best <= upper + 1e-5 * (backend.dtype == "float32") + 1e-12).all()
        for i, j in np.ndindex(2, 3):
            one = otm.bounds.optimal_bracket(
                Problem(draft=p[i, j], target=q[i, j], law=IID(k)), bins=256
            )
            # A ratio next to the edge of a bin may change its bin in float32: a bin's width, 0.1
            # octave, of one token's mass.
            loose = 1e-13 if backend.dtype == "float64" else 2e-3
            assert lower[i, j] == pytest.approx(one.lower, abs=loose)
            assert upper[i, j] == pytest.approx(one.upper, abs=loose)


def test_the_bracket_is_for_iid_drafts_and_membership_has_a_limit() -> None:
    p, q = language_model_pair(3000, seed=1)
    problem = Problem(draft=p, target=q, law=IID(2))
    with pytest.raises(otm.errors.TooLarge, match="by='rule'"):
        otm.acceptance(Optimal(bins=64), problem)
    rule, lower = (
        otm.acceptance(Optimal(bins=64), problem, by="rule"),
        otm.bounds.optimal_bracket(problem, bins=64).lower,
    )
    moved = (8 * (3000 + 64) + 64) * 2.0**-53
    assert lower < rule
    assert rule - lower == pytest.approx(moved, abs=2.0**-52)  # rounded to its side by just so much
    with pytest.raises(otm.errors.Unsupported, match=r"i\.i\.d\."):
        otm.bounds.optimal_bracket(problem.with_law(otm.WithoutReplacement(2)))
