"""The matching bounds: their order, their exact counterparts, and what each of them forgets."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import otm
from otm import IID, ListRace, MinHash, Problem, Race, WithoutReplacement
from tests import strategies

BOUNDS = [
    otm.bounds.poisson_matching_lower,
    otm.bounds.poisson_representation_lower,
    otm.bounds.list_matching_lower,
]
SLACK = 1e-11  # quadrature (2e-12) and rounding on both sides of an inequality


@settings(max_examples=150)
@given(pair=strategies.pairs(max_tokens=6), data=st.data())
def test_the_order_of_the_race_and_its_bounds(pair, data):
    k = data.draw(st.integers(1, len(pair[0])))
    problem = Problem(draft=pair[0], target=pair[1], law=WithoutReplacement(k))
    chain = [
        otm.optimal_acceptance(problem),
        otm.acceptance(Race(), problem),
        otm.bounds.poisson_representation_lower(problem),
        otm.bounds.poisson_matching_lower(problem),
        otm.bounds.list_matching_lower(problem),
    ]
    assert all(left >= right - SLACK for left, right in itertools.pairwise(chain)), chain
    if k == 1:
        assert chain[1] == pytest.approx(chain[2], abs=1e-13)
        assert chain[3] == pytest.approx(chain[4], abs=1e-13)


@settings(max_examples=150)
@given(problem=strategies.iid_problems(max_tokens=6))
def test_independent_drafts_of_one_race_keep_what_the_certificate_says(problem):
    """Different drafts keep more, a list race less by its rule: (1 + 1/g)^k ≥ 1 + k/g."""
    race, by_rule = otm.acceptance(Race(), problem), otm.acceptance(ListRace(), problem, by="rule")
    assert otm.bounds.poisson_representation_lower(problem) == pytest.approx(race, abs=1e-13)
    for best in (race, otm.acceptance(ListRace(), problem)):
        chain = [
            otm.optimal_acceptance(problem),
            best,
            by_rule,
            otm.bounds.list_matching_lower(problem),
        ]
        assert all(left >= right - SLACK for left, right in itertools.pairwise(chain)), chain


@settings(max_examples=200)
@given(pair=strategies.pairs(max_tokens=7))
def test_one_draft_minhash_race_maximal(pair):
    problem = Problem(draft=pair[0], target=pair[1], law=IID(1))
    tv, lemma = 0.5 * np.abs(pair[0] - pair[1]).sum(), otm.bounds.poisson_matching_lower(problem)
    same = otm.acceptance(MinHash(), problem, by="rule")
    assert same == pytest.approx((1 - tv) / (1 + tv), abs=1e-14)
    darts, race, best = (otm.acceptance(one, problem) for one in (MinHash(), Race(), otm.Maximal()))
    chain = [best, race, darts, same]
    assert all(left >= right - SLACK for left, right in itertools.pairwise(chain)), chain
    wanted = 0.5 * (1 - otm.divergences.harmonic_mean_distance(draft=pair[0], target=pair[1]))
    assert lemma == pytest.approx(wanted, abs=1e-14)
    assert lemma <= min(race + SLACK, 0.5 + 1e-15)


def test_equal_distributions_show_what_the_lemma_forgets():
    p = otm.examples.zipf(50)
    for k in (1, 2, 3):
        problem = Problem(draft=p, target=p, law=WithoutReplacement(k))
        assert otm.acceptance(Race(), problem) == pytest.approx(1, abs=SLACK)
        assert otm.bounds.poisson_representation_lower(problem) == pytest.approx(1, abs=SLACK)
        assert otm.bounds.poisson_matching_lower(problem) == pytest.approx(1 - 0.5**k, abs=1e-13)
        assert otm.bounds.list_matching_lower(problem) == pytest.approx(k / (k + 1), abs=1e-13)


@pytest.mark.parametrize("bound", BOUNDS)
def test_tiny_masses_and_other_laws(bound):
    tiny = Problem(draft=[1e-300, 1.0], target=[1.0, 1e-300], law=WithoutReplacement(1))
    assert 0 < bound(tiny) < 1e-299
    with pytest.raises(otm.errors.Unsupported, match=r"the problem has Greedy\(k=2\).*Use "):
        bound(tiny.with_law(otm.Greedy(2)))


@settings(max_examples=200)
@given(pair=strategies.pairs(max_tokens=6), c=st.floats(1.0, 1e4))
def test_the_order_of_threshold_races(pair, c):
    """Σ c p q/(c p + q) ≤ matching ≤ optimum ≤ H(c) ≤ twice the first."""
    problem = Problem(draft=pair[0], target=pair[1], law=otm.ThresholdRace(c))
    height = float(otm.overlap.overlap_at(problem.draft, problem.target, c))
    matched, lower = otm.acceptance(Race(), problem), otm.bounds.threshold_race_lower(problem)
    chain = [2 * lower, height, otm.optimal_acceptance(problem), matched, lower]
    assert all(left >= right - SLACK for left, right in itertools.pairwise(chain)), chain
    assert otm.bounds.poisson_representation_lower(problem) == pytest.approx(matched, abs=1e-12)
    assert otm.bounds.poisson_matching_lower(problem) == pytest.approx(lower, abs=1e-12)
