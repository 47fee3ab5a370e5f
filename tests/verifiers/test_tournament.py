"""The tournament: hand values, the optimum for two drafts, laws of winners against enumeration, and
drafts that do harm.
"""

import itertools

import numpy as np
import pytest

import otm
from otm.verifiers.tournament import MOST_TOKENS, Match


def problem(draft, target, k):
    return otm.Problem(draft=draft, target=target, law=otm.IID(k))


def test_by_hand():
    """One token in the program has nobody to meet there: order 2, 0, 1; laws .49 + 2·.7·.3, .01 +
    2·.1·.2 and .04.
    """
    pair = problem([0.1, 0.2, 0.7], [0.1, 0.1, 0.8], 2)
    rule = otm.prepare(otm.Tournament(1), pair)
    np.testing.assert_allclose(rule.law, [0.05, 0.04, 0.91], atol=1e-15)
    assert otm.acceptance(otm.Tournament(1), pair, by="rule") == pytest.approx(0.89, abs=1e-15)
    # Two tokens: 2 leaves some of its matches with 0, whose law may grow to .1 from .05.
    assert otm.acceptance(otm.Tournament(2), pair, by="rule") == pytest.approx(0.94, abs=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_two_drafts_and_all_tokens_are_optimal(seed):
    rng = np.random.default_rng([41, seed])
    num_tokens = int(rng.integers(1, 9))
    draft, target = rng.dirichlet(np.full(num_tokens, 0.5), size=2)
    pair = otm.Problem(draft=draft, target=target, law=otm.IID(2))
    # HiGHS ends within 1e-7 of the optimum of a program whose right sides were scaled by 2^20.
    assert otm.acceptance(otm.Tournament(MOST_TOKENS), pair, by="rule") == pytest.approx(
        otm.optimal_acceptance(pair), abs=1e-9
    )


@pytest.mark.parametrize("tokens", [1, 2, 5])
def test_the_winner_has_the_law_that_is_said(tokens):
    """Every sequence of drafts, match by match: the law of the last winner, ties and zeros
    included.
    """
    draft, target = [0.4, 0.0, 0.2, 0.2, 0.2], [0.1, 0.3, 0.2, 0.2, 0.2]
    rule = otm.prepare(otm.Tournament(tokens), problem(draft, target, 3))
    law = np.zeros(5)
    for drafts in itertools.product(range(5), repeat=3):
        weights = rule.selection(rule.problem, np.array([drafts]))[0]
        assert weights.sum() == pytest.approx(1.0, abs=1e-15)
        np.add.at(law, list(drafts), np.prod([draft[x] for x in drafts]) * weights)
    np.testing.assert_allclose(law, rule.law, atol=1e-15)


def test_matches():
    """Equal tokens keep the champion; tokens outside the program lose to those before them."""
    match = Match.of(np.full(4, 0.25), np.full(4, 0.25), np.array([0.1, 0.2, 0.3, 0.4]), 2)
    champions, challengers = np.array([0, 1, 3, 0, 3]), np.array([0, 0, 0, 3, 3])
    np.testing.assert_allclose(match.keeps(champions, challengers), [1, 1, 1, 0, 1])
    assert match.keeps(np.array([3]), np.array([2]))[0] + match.keeps(np.array([2]), np.array([3]))[
        0
    ] == pytest.approx(1.0)


def test_a_second_draft_can_do_harm():
    """Equal models, one token in the program: it wins every match, and is selected with 3/4 where
    1/2 is wanted.
    """
    for k, accepted in ((1, 1.0), (2, 0.75)):
        found = otm.acceptance(otm.Tournament(1), problem([0.5, 0.5], [0.5, 0.5], k), by="rule")
        assert found == pytest.approx(accepted, abs=1e-15)
