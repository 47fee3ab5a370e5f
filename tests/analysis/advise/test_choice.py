"""A plan for each context: features, the mixed walk, and what choosing costs."""

import numpy as np
import pytest

from analysis.advise.choice import MENUS, Menu, compare_choice, costs_with, features, ridge
from analysis.advise.families import Limits, Plan, Work
from analysis.advise.walk import Walk
from figures.paths import DATA
from otm.engines import CostSurface
from otm.sequence import SpeculativeSampling, markov_pair
from tests.analysis.toys import Toy

COSTS = CostSurface.flat(draft=0.25, target=1.0)


def chain(length, *walks):
    decoder = SpeculativeSampling(length)
    return Plan("chain", "", f"chain of {length}", decoder, walks, Work.of(decoder))


def certain(known):
    """A chain of one draft, right where it says so."""
    right = np.array([known], dtype=float)
    return Walk.of(np.vstack([np.ones_like(right), right]), right)


def test_a_choice_that_knows_where_drafts_are_right_by_hand():
    """Drafts are right at every second place, which is where steps begin: 12 tokens in 6 steps of
    1.25, and nothing to choose.
    """
    places = [True, False] * 6
    seen = np.column_stack([np.ones(12), places])
    menu = Menu([chain(1, certain(places))], [seen], COSTS, 0)
    assert menu.fastest([0]) == (1, 12 / 7.5)
    assert menu.fixed[1, 0].tolist() == [6.0, 12.0, 7.5]
    (expected,) = menu.learn([0])
    assert np.allclose(expected, [[1.0, 2.0], [1.0, 1.0]] * 6, atol=0.02)
    assert np.array_equal(menu.yields[0], [[1.0, 2.0], [1.0, 1.0]] * 6)
    assert menu.rate([0], [expected]) == 12 / 7.5
    assert menu.chosen(0, expected, 12 / 7.5) == (6.0, 12.0, 7.5)


def test_the_walk_of_a_choice_is_that_of_the_plans_it_takes():
    rng = np.random.default_rng(0)
    accepted = rng.random((2, 9))
    reached = np.cumprod(np.vstack([np.ones(9), accepted]), axis=0)
    long, short = Walk.of(reached, reached[1:]), Walk.of(reached[:2], reached[1:2])
    seen = np.column_stack([np.ones(9), np.arange(9) % 2])
    menu = Menu([chain(1, short), chain(2, long)], [seen], COSTS, 0)
    always = np.tile([0.0, 0.0, 9.0], (9, 1))  # the third plan, wherever it is
    assert menu.chosen(0, always, 0.0) == pytest.approx(tuple(menu.fixed[2, 0]))
    never = -always  # the first: a token a step, each with a call for p
    assert menu.chosen(0, never, 0.0) == (9.0, 9.0, 9 * 1.25)
    turns = np.where(np.arange(9)[:, None] % 2, [0.0, 1.0, 0.0], [0.0, 0.0, 1.0])
    visits, tokens, seconds = np.zeros(12), 0.0, 0.0
    visits[0] = 1.0
    for place in range(9):
        depth = 1 if place % 2 else 2
        fates = np.append(reached[: depth + 1, place], 0.0)
        tokens += visits[place] * (1.0 + reached[1 : depth + 1, place].sum())
        seconds += visits[place] * (1.0 + 0.25 * depth)
        visits[place + 1 : place + 2 + depth] += visits[place] * -np.diff(fates)
    assert menu.chosen(0, turns, 0.0) == pytest.approx((visits[:9].sum(), tokens, seconds))


def test_features_and_ridge():
    one = features(np.array([[0.25] * 4, [1.0, 0.0, 0.0, 0.0]]))
    assert one[0] == pytest.approx(
        [1, np.log(4), np.log(4) ** 2, 0.25, *[-np.log(4)] * 3, np.log(4) / 4]
    )
    assert np.isfinite(one).all()  # a certain draft has no second token
    rng = np.random.default_rng(2)
    seen = np.column_stack([np.ones(50), rng.normal(size=(50, 2))])
    tokens = rng.normal(size=(50, 1))
    shrunk = np.sqrt(1e-3 * 50 * seen.var(axis=0))
    rows = np.vstack([seen, np.diag(shrunk)])
    by_rows = np.linalg.lstsq(rows, np.vstack([tokens, np.zeros((3, 1))]), rcond=None)[0]
    assert np.allclose(ridge(seen, tokens), by_rows, atol=1e-12)


def test_a_pair_in_every_way():
    draft, target = map(Toy, markov_pair(5, similarity=0.7, rng=np.random.default_rng(1)))
    found = compare_choice(
        draft=draft,
        target=target,
        contexts=[(i % 5, 2) for i in range(8)],
        costs=costs_with(DATA / "advice.json"),
        eos=4,
        rng=np.random.default_rng(0),
        num_tokens=12,
        limits=Limits(4, 2, 2),
    )
    assert (found.texts, len(found.rows)) == (8, 3 * len(MENUS))
    assert "a draft call 0.2, chain or tree on shared noise" in str(found)
    for row in found.rows:
        assert row.low <= row.gain <= row.high
        assert row.gain == pytest.approx(row.speed / row.one_speed)
        assert 1.0 <= row.tokens <= 3.0
        assert row.known > row.speed
