"""The threshold race: its law three times, its size, and what is refused."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import otm
from otm.drafts.base import PAD, all_subsets, enumerate_drafts, members
from tests import exact, strategies
from tests.tolerance import rounding

P = np.array([0.41, 0.33, 0.17, 0.09])
FALSE_ALARM = 1e-9


def law_of_sets(p, c):
    """The law of the set from containment by inclusion and exclusion, in fractions."""
    found = {}
    for held in all_subsets(len(p))[1:]:
        tokens = np.flatnonzero(held).tolist()
        mass = Fraction(0)
        for inside in exact.subsets(len(tokens)):
            within = sum((p[tokens[i]] for i in inside), Fraction(0))
            mass += (-1) ** (len(tokens) - len(inside)) * within / (within + c * (1 - within))
        found[frozenset(tokens)] = mass
    return found


@pytest.mark.parametrize("c", [1.0, 1.5, 4.0, 1000.0])
def test_the_enumeration_is_the_law_that_containment_says(c):
    p = exact.exact(P)
    table = otm.ThresholdRace(c).enumerate(np.asarray(p, dtype=object))
    wanted = law_of_sets(p, Fraction(c))
    sets = [frozenset(row) - {PAD} for row in table.tokens.tolist()]
    found = dict(zip(sets, table.mass, strict=True))
    assert found == wanted


@pytest.mark.parametrize("way", ["law", "in turn", "arrivals"])
def test_three_samplers_draw_the_same_sets(way):
    """Poisson arrivals after the first, i.i.d. draws of a geometric number, plain exponentials."""
    law, rng, size = otm.ThresholdRace(2.5), np.random.default_rng(1), 100_000
    table = enumerate_drafts(law, P)
    if way == "arrivals":
        times = rng.exponential(size=(size, 4)) / P
        drafted = times <= law.c * times.min(axis=1, keepdims=True)
    elif way == "in turn":
        drafts = law.draw_in_turn(P, rng.random((size, law.most_in_turn + 1)))
        drafted = members(drafts, 4)
    else:
        drafted = members(law.draw(P, rng.random((size, law.num_uniforms(4)))), 4)
    seen = np.bincount(drafted @ (1 << np.arange(4)), minlength=16)[1:]
    mass = table.mass
    statistic = ((seen - size * mass) ** 2 / (size * mass)).sum()
    # The chi-squared law of 14 degrees exceeds this with probability 1e-9.
    assert statistic < 73.0, FALSE_ALARM


def test_the_draws_in_turn_are_c_on_average():
    law, rng = otm.ThresholdRace(3.0), np.random.default_rng(2)
    drafts = law.draw_in_turn(P, rng.random((100_000, law.most_in_turn + 1)))
    number = (drafts != PAD).sum(axis=1)
    deviation = math.sqrt(law.c * (law.c - 1) / len(number))
    assert abs(number.mean() - law.c) < 6.2 * deviation  # two sides of 6.2: below FALSE_ALARM


@settings(max_examples=50)
@given(strategies.pairs(max_tokens=5), st.floats(1.0, 1e6))
def test_mean_inclusion_and_what_solves_for_it(pair, c):
    law = otm.ThresholdRace(c)
    rows = np.stack(pair)
    mean = float(np.mean(law.mean_drafts(otm.normalise(rows))))
    late = [p * Fraction(c) / (1 + (Fraction(c) - 1) * p) for row in rows for p in exact.exact(row)]
    assert mean == pytest.approx(float(sum(late, Fraction(0)) / 2), abs=rounding(10, 1))
    most = np.count_nonzero(rows) / 2
    if 1.0 < mean < most * (1 - 1e-9):
        found = otm.ThresholdRace.with_mean_drafts(rows, mean)
        assert float(np.mean(found.mean_drafts(otm.normalise(rows)))) == pytest.approx(
            mean, rel=1e-13
        )


def test_a_batch_gives_drafts_to_the_rows_that_are_unsure():
    rows = np.array([[1.0, 0.0, 0.0], [0.5, 0.25, 0.25]])
    law = otm.ThresholdRace.with_mean_drafts(rows, 1.5)
    np.testing.assert_allclose(law.mean_drafts(rows), [1.0, 2.0], rtol=1e-14)
    assert otm.ThresholdRace.with_mean_drafts([1.0, 0.0], 1).c == 1.0


@pytest.mark.parametrize("mean", [0.5, 2.0, 3.0, math.nan, "many"])
def test_means_that_no_threshold_has(mean):
    with pytest.raises(otm.errors.InvalidParameter, match="mean must"):
        otm.ThresholdRace.with_mean_drafts([0.5, 0.5], mean)


def test_one_threshold_is_one_draft_and_a_large_one_every_token():
    q = np.array([0.2, 0.1, 0.4, 0.3])
    one = otm.Problem(draft=P, target=q, law=otm.ThresholdRace(1))
    assert otm.optimal_acceptance(one) == pytest.approx(np.minimum(P, q).sum(), abs=1e-15)
    two = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.ThresholdRace(2))
    assert otm.optimal_acceptance(two) == pytest.approx(0.9, abs=1e-15)
    draft = np.array([0.5, 0.5, 0.0, 0.0])
    all_ = otm.Problem(draft=draft, target=q, law=otm.ThresholdRace(2.0**53))
    for value in (otm.optimal_acceptance(all_), otm.acceptance(otm.Race(), all_)):
        assert value == pytest.approx(0.3, abs=1e-14)
    with pytest.raises(otm.errors.TooLarge, match=r"otm\.Race"):
        otm.sample(otm.Optimal(), all_, size=1, rng=np.random.default_rng(0))


def test_drafts_are_told_as_a_set():
    problem = otm.Problem(draft=P, target=P[::-1], law=otm.ThresholdRace(2))
    for verifier in (otm.Race(), otm.Optimal(), otm.Naive()):
        straight = otm.kernel(verifier, problem, [1, 3])
        for told in ([3, 1], [3, 1, 3], [1, PAD, 3, PAD]):
            np.testing.assert_array_equal(otm.kernel(verifier, problem, told), straight)
    with pytest.raises(otm.errors.InvalidParameter, match="k = 4 or less"):
        otm.kernel(otm.Race(), problem, [0, 1, 2, 3, 0])


@pytest.mark.parametrize(("c", "most"), [(1, 1), (2, 54), (4, 128)])
def test_a_uniform_of_53_bits_stands_for_so_many_draws(c, most):
    """1 + ⌊53 log 2/log(c/(c − 1))⌋."""
    assert otm.ThresholdRace(c).most_in_turn == most
