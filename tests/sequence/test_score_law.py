"""Score laws: children mix to their parent, have the levels that were chosen, and those are the
best that there are.
"""

import numpy as np
import pytest

import otm
from otm.sequence.score_law import (
    ScoreLaw,
    _spread_over,
    refine,
    refine_first,
    win_probabilities,
)
from tests.sequence.toys import random_pair_of_rows


def check(found):
    """Σ_y p κ_y = κ, and every child has its level; both in units of probability."""
    p = found.draft
    live = np.flatnonzero(p > 0).tolist()
    children = [found.child(y) for y in live]
    masses = np.array([child.mass for child in children])
    np.testing.assert_allclose(p[live] @ masses, found.law.mass, atol=1e-14)
    levels = np.array([child.level for child in children])
    np.testing.assert_allclose(p[live] * levels, found.selected[live], atol=1e-13)
    assert (masses >= 0).all()
    np.testing.assert_allclose(masses.sum(axis=1), 1.0, atol=1e-14)
    assert found.selected.sum() == pytest.approx(found.law.level, abs=1e-13)


@pytest.mark.parametrize("seed", range(40))
def test_two_levels_down(seed):
    """The first of them is the optimum."""
    rng = np.random.default_rng(seed)
    size, k, cells = int(rng.integers(2, 40)), int(rng.integers(1, 9)), int(rng.choice([2, 5, 64]))
    draft, target = random_pair_of_rows(size, rng)
    first = refine_first(k, cells, draft, target)
    check(first)
    optimum = otm.optimal_acceptance(otm.Problem(draft=draft, target=target, law=otm.IID(k)))
    assert np.minimum(first.selected, target).sum() == pytest.approx(optimum, abs=1e-13)
    token = int(rng.choice(np.flatnonzero(first.draft > 0)))
    law = first.child(token)
    weight = min(law.level, float(first.target[token] / first.draft[token]))
    check(refine(law, weight, *random_pair_of_rows(size, rng)))


@pytest.mark.parametrize("seed", range(20))
def test_no_levels_accept_more(seed):
    """The cut formula on an uneven resource: Σ min(F q, p a) is at most F·Q(T) + ∫ of the scores
    above P(T), for every set T.
    """
    rng = np.random.default_rng([2, seed])
    law = ScoreLaw(rng.dirichlet(np.ones(6)), np.sort(rng.exponential(size=6)))
    draft, target = rng.dirichlet(np.ones(5), size=2)
    weight = law.level * rng.uniform(0.3, 1.0)
    found = refine(law, weight, draft, target)
    check(found)
    inside = (np.arange(32)[:, None] >> np.arange(5)) & 1
    below = np.interp(inside @ draft, law.below, law.moment)
    bounds = weight * (inside @ target) + law.level - below
    accepted = np.minimum(weight * target, found.selected).sum()
    assert accepted == pytest.approx(bounds.min(), abs=1e-14)


def test_the_last_token_below_the_cap_may_have_a_level_of_its_own():
    mass = np.array([0.2, 0.406, 0.152, 0.094, 0.067, 0.082])
    law = ScoreLaw(mass / mass.sum(), np.array([0.192, 0.404, 0.493, 0.603, 0.792, 2.153]))
    found = refine(law, 0.55, np.full(4, 0.25), np.array([0.047, 0.49, 0.189, 0.274]))
    check(found)
    assert found.upper.levels[-1] == found.high > found.upper.levels[-2]


@pytest.mark.parametrize(
    ("parts", "wanted"),
    [
        ([(0.0, 1.0, 0.5), (0.3, 0.3, 0.5)], [0.125, 0.625, 0.125, 0.125]),
        ([(0.0, 0.0, 1.0)], [1.0, 0.0, 0.0, 0.0]),
        ([(1.0, 1.0, 1.0)], [0.0, 0.0, 0.0, 1.0]),
    ],
)
def test_a_part_without_width_is_one_cell_s(parts, wanted):
    assert _spread_over(ScoreLaw.uniform(2, np.linspace(0.0, 1.0, 5)), parts).tolist() == wanted


def test_spread_is_kept():
    """Equal models need no choice: all levels are 1 and every token keeps the whole score."""
    draft = np.random.default_rng(0).dirichlet(np.ones(8))
    found = refine_first(4, 64, draft, draft)
    for token in range(8):
        np.testing.assert_allclose(found.child(token).mass, found.law.mass, atol=1e-14)


def test_who_wins():
    """Against simulated scores; equal laws win equally often."""
    rng, num = np.random.default_rng(1), 200_000
    edges = np.array([0.0, 0.2, 0.7, 1.0])
    uniform = ScoreLaw.uniform(3, edges)
    np.testing.assert_allclose(win_probabilities([uniform] * 5), 0.2, atol=1e-15)
    assert win_probabilities([uniform])[0] == 1.0
    laws = [ScoreLaw(mass, uniform.gain) for mass in rng.dirichlet(np.ones(3), size=3)]
    cells = np.stack([rng.choice(3, size=num, p=law.mass) for law in laws])
    scores = edges[cells] + np.diff(edges)[cells] * rng.random((3, num))
    share = np.bincount(scores.argmax(axis=0), minlength=3) / num
    # five standard errors
    np.testing.assert_allclose(win_probabilities(laws), share, atol=5 * 0.5 / np.sqrt(num))


def test_a_wide_vocabulary():
    """Many tokens between floor and cap are served by few atoms, exactly."""
    rng = np.random.default_rng(3)
    logits = 2 * rng.normal(size=3000) + rng.normal(size=(2, 3000))
    first = refine_first(4, 64, *otm.from_logits(logits))
    check(first)
    assert len(first.lower.levels) + len(first.upper.levels) < 100
