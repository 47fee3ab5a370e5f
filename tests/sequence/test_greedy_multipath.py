"""Greedy multi-path block verification: hand values, the formula in fractions, any K, and the ties
that a public version breaks.
"""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from otm.sequence import GreedyMultipath, ZerothOrder, best_step, expected_step, step_law
from otm.sequence.greedy_multipath import RankedTokens, selected_law
from tests.sequence.toys import asked


def by_the_formula(draft, odds, count):
    """[(A + y + z)^K − (A + y)^K]/[(A + u)^K − A^K] with u = 1, as printed; tokens in ascending
    order of rank.
    """
    below = [odds + mass for mass in itertools.accumulate(draft, initial=Fraction(0))]
    whole = (odds + 1) ** count - odds**count
    return [(high**count - low**count) / whole for low, high in itertools.pairwise(below)]


@pytest.mark.parametrize("count", [1, 2, 4, 257])
@pytest.mark.parametrize("odds", [0.0, 2.0**-60, 0.375, 2.0**12, 2.0**80])
def test_the_selected_law_is_the_formula_in_fractions(odds, count):
    """Dyadic masses: the fractions are the floats. Every entry is right to some units in the last
    place, the tiny ones too.
    """
    draft = np.array([2.0**-40, 0.25, 2.0**-30, 0.5, 0.25 - 2.0**-30 - 2.0**-40])
    lower, higher = np.cumsum(draft) - draft, np.cumsum(draft[::-1])[::-1] - draft
    found = selected_law(draft, lower=lower, higher=higher, odds=odds, count=count)
    exact = by_the_formula([Fraction(float(x)) for x in draft], Fraction(odds), count)
    # A factor e^{−t} is right to t units, t = K·|log|; entries below e^{−60} are asked for their
    # size only.
    np.testing.assert_allclose(found, [float(each) for each in exact], rtol=1e-13, atol=1e-26)


def test_a_token_that_is_not_drafted_is_not_selected():
    ranked = RankedTokens.of(np.array([0.5, 0.0, 0.5]), np.array([0.0, 0.75, 0.25]), 0.0, 2)
    np.testing.assert_allclose(ranked.selected, [0.25, 0.0, 0.75], atol=1e-16)
    assert ranked.odds(0) == 0.0
    assert ranked.odds(2) == 1.0  # half of a sequence's mass is below the other half


def test_expected_tokens_are_the_block_weights_of_the_selected_sequence():
    """1 + Σ_i E[w_i], w_i = min(1, w_{i−1} q/s), in fractions over all pairs of sequences of two
    tokens.
    """
    # token 0 ranks higher, against the order of their numbers
    draft, target = [Fraction(1, 4), Fraction(3, 4)], [Fraction(3, 4), Fraction(1, 4)]
    chosen = Counter()
    for one, other in itertools.product(itertools.product((0, 1), repeat=2), repeat=2):
        chosen[min(one, other)] += math.prod(draft[x] for x in (*one, *other))
    first = [chosen[x, 0] + chosen[x, 1] for x in (0, 1)]
    total = Fraction(1)
    for (x, y), mass in chosen.items():
        weight = min(Fraction(1), target[x] / first[x])
        total += mass * (weight + min(Fraction(1), weight * target[y] * first[x] / mass))
    models = asked((ZerothOrder([0.25, 0.75]), ZerothOrder([0.75, 0.25])))
    found = step_law(GreedyMultipath(2, 2), **models).block_efficiency
    # the best that any lossless verification of these drafts decodes
    assert total == Fraction(555, 256) and found == pytest.approx(float(total), abs=1e-15)
    assert best_step(GreedyMultipath(2, 2), **models).value == pytest.approx(555 / 256, abs=1e-9)


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_more_sequences_can_lose(count):
    """Equal models: one draft is always kept, of two the higher-ranked is kept with 1/4 + 1/2, of K
    with (1/2)^K + 1/2.
    """
    found = expected_step(GreedyMultipath(count, 1), **asked((ZerothOrder([0.5, 0.5]),) * 2))
    assert found.block_efficiency == pytest.approx(1.5 + 0.5**count, abs=1e-14)


def test_a_long_improbable_block_of_many_sequences():
    """64 sequences of 60 tokens: joint masses around 1e−60 to the 64th power. Counts stay sums of
    probabilities.
    """
    rng = np.random.default_rng(4)
    draft, target = rng.dirichlet(np.ones(50)), rng.dirichlet(np.ones(50))
    odds = 0.0
    for _ in range(60):
        ranked = RankedTokens.of(draft, target, odds, 64)
        assert ranked.selected.sum() == pytest.approx(1.0, abs=1e-13)
        assert (ranked.selected >= 0).all()
        odds = ranked.odds(int(rng.integers(50)))
    # beyond α = 10^100 the rest of the draft is unskewed
    np.testing.assert_allclose(ranked.selected, draft, rtol=1e-10)


def test_equal_ratios_are_ranked_by_the_tokens_numbers():
    """Beyond 16 tokens NumPy's own sort does not keep the order of equals."""
    draft, twice = np.full(60, 1 / 60), np.arange(60) % 3 == 0
    ranked = RankedTokens.of(draft, (1.0 + twice) / 80, 0.0, 2)
    order = [*np.flatnonzero(~twice), *np.flatnonzero(twice)]
    assert ranked.place[order].tolist() == list(range(60))
