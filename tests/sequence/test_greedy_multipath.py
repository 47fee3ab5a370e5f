"""Greedy multi-path block verification: hand values, the formula in fractions, any K, and the ties
that a public version breaks.
"""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from otm.sequence import (
    BlockVerification,
    GreedyMultipath,
    ZerothOrder,
    best_step,
    expected_step,
    step_law,
)
from otm.sequence.greedy_multipath import RankedTokens, selected_law
from tests.sequence.toys import distance, random_models


def by_the_formula(draft: list[Fraction], odds: Fraction, count: int) -> list[Fraction]:
    """[(A + y + z)^K − (A + y)^K]/[(A + u)^K − A^K] with u = 1, as printed; tokens in ascending
    order of rank.
    """
    found, below = [], odds
    for mass in draft:
        found.append(((below + mass) ** count - below**count) / ((odds + 1) ** count - odds**count))
        below += mass
    return found


class TestSelectedLaw:
    @pytest.mark.parametrize("count", [1, 2, 3, 4, 16, 257])
    @pytest.mark.parametrize("odds", [0.0, 2.0**-60, 0.375, 1.0, 2.0**12, 2.0**80])
    def test_equals_the_formula_in_fractions(self, odds: float, count: int) -> None:
        """Dyadic masses: the fractions are the floats. Every entry is right to some units in the
        last place, the tiny ones too.
        """
        draft = np.array([2.0**-40, 0.25, 2.0**-30, 0.5, 0.25 - 2.0**-30 - 2.0**-40])
        lower, higher = np.cumsum(draft) - draft, np.cumsum(draft[::-1])[::-1] - draft
        found = selected_law(draft, lower=lower, higher=higher, odds=odds, count=count)
        exact = by_the_formula([Fraction(float(x)) for x in draft], Fraction(odds), count)
        for value, truth in zip(found.tolist(), exact, strict=True):
            # A factor e^{−t} is right to t units, t = K·|log|; entries below e^{−60} are asked for
            # their size only.
            assert value == pytest.approx(float(truth), rel=1e-13, abs=1e-26)
        assert found.sum() == pytest.approx(1.0, abs=1e-14)

    def test_one_sequence_is_not_skewed(self) -> None:
        draft = np.random.default_rng(0).dirichlet(np.ones(9))
        found = RankedTokens.of(draft, draft[::-1].copy(), 3.0, 1).selected
        np.testing.assert_allclose(found, draft, rtol=1e-14)

    def test_a_token_that_is_not_drafted_is_not_selected(self) -> None:
        ranked = RankedTokens.of(np.array([0.5, 0.0, 0.5]), np.array([0.0, 0.75, 0.25]), 0.0, 2)
        np.testing.assert_allclose(ranked.selected, [0.25, 0.0, 0.75], atol=1e-16)
        assert ranked.odds(0) == 0.0
        assert ranked.odds(2) == 1.0  # half of a sequence's mass is below the other half


@pytest.mark.parametrize("seed", range(6))
def test_one_sequence_is_block_verification(seed: int) -> None:
    draft, target = random_models(3, 2, np.random.default_rng([8, seed]))
    models = {"draft": draft, "target": target, "context": []}
    assert (
        distance(
            step_law(GreedyMultipath(1, 2), **models), step_law(BlockVerification(2), **models)
        )
        <= 1e-14
    )


@pytest.mark.parametrize("seed", range(4))
def test_the_stem_is_drafted_once(seed: int) -> None:
    """Three shared tokens and one branch each of nothing but K = 1: a chain; the stem's vertices
    are reached as on a chain.
    """
    draft, target = random_models(2, 3, np.random.default_rng([9, seed]))
    models = {"draft": draft, "target": target, "context": []}
    whole, split = BlockVerification(3), GreedyMultipath(1, 1, stem=2)
    assert split.shape == whole.shape
    assert distance(expected_step(split, **models).law, expected_step(whole, **models).law) <= 1e-14


def test_expected_tokens_are_the_block_weights_of_the_selected_sequence() -> None:
    """1 + Σ_i E[w_i], w_i = min(1, w_{i−1} q/s), in fractions over all pairs of sequences of two
    tokens.
    """
    # token 1 ranks higher
    draft, target = (
        [Fraction(3, 4), Fraction(1, 4)],
        [Fraction(1, 4), Fraction(3, 4)],
    )
    sequences = list(itertools.product((0, 1), repeat=2))
    chosen: dict[tuple[int, ...], Fraction] = dict.fromkeys(sequences, Fraction(0))
    for one, other in itertools.product(sequences, repeat=2):
        mass = np.prod([draft[x] for x in (*one, *other)])
        chosen[max(one, other)] += mass
    first = [sum((chosen[s] for s in sequences if s[0] == x), Fraction(0)) for x in (0, 1)]
    total = Fraction(1)
    for (x, y), mass in chosen.items():
        weight = min(Fraction(1), target[x] / first[x])
        total += mass * (weight + min(Fraction(1), weight * target[y] * first[x] / mass))
    models = {
        "draft": ZerothOrder([0.75, 0.25]),
        "target": ZerothOrder([0.25, 0.75]),
        "context": [],
    }
    assert step_law(GreedyMultipath(2, 2), **models).block_efficiency == pytest.approx(
        float(total), abs=1e-15
    )
    # the best that any lossless verification of these drafts decodes
    assert total == Fraction(555, 256)
    assert best_step(GreedyMultipath(2, 2), **models).value == pytest.approx(555 / 256, abs=1e-9)


def test_more_sequences_can_lose() -> None:
    """Equal models: one draft is always kept, of two the higher-ranked is kept with 1/4 + 1/2, of K
    with (1/2)^K + 1/2.
    """
    model = ZerothOrder([0.5, 0.5])
    for count in (1, 2, 3, 8):
        found = expected_step(GreedyMultipath(count, 1), draft=model, target=model, context=[])
        assert found.block_efficiency == pytest.approx(1.5 + 0.5**count, abs=1e-14)


def test_a_long_improbable_block_of_many_sequences() -> None:
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
