"""Lists of likely tokens: rounded, sampled, and those that describe no distribution."""

import math

import numpy as np
import pytest

import otm
from otm import partial
from otm.partial import PartialPair, TopTokens
from tests.partial.oracles import (
    ROUNDING,
    SOLVER,
    _iid,
    assert_inside,
    curve,
    highest_overlap,
    lowest_overlap,
    overlap_of,
)


def test_a_sampled_token_below_the_cap():
    # Engines add the sampled token to the list. The cap is then the least of the others, and where
    # tails are crowded the lower end is a bound that need not be attained. V = 7, both tails flat.
    rng = np.random.default_rng(10)
    outcomes = {True: 0, False: 0}
    for _ in range(60):
        p, q = rng.dirichlet(np.full(7, 4.0)), rng.dirichlet(np.full(7, 4.0))
        tops = []
        for mass in (p, q):
            order = np.argsort(-mass)
            listed = np.append(order[:2], rng.choice(order[2:]))
            tops.append(
                TopTokens(
                    tokens=listed,
                    probabilities=mass[listed],
                    tail=1 - mass[listed].sum(),
                    cap=mass[order[1]],
                )
            )
        pair = PartialPair(draft=tops[0], target=tops[1], num_tokens=7)
        assert_inside(pair, p, q)
        exact, found = lowest_overlap(pair, 7, 1.0), overlap_of(pair)
        assert found.lower <= exact + ROUNDING
        outcomes[bool(found.lower_is_attained)] += 1
        if found.lower_is_attained:
            assert found.lower == pytest.approx(exact, abs=ROUNDING)
        assert curve(pair.closest, 1.3) == pytest.approx(highest_overlap(pair, 7, 1.3), abs=SOLVER)
    assert min(outcomes.values()) >= 10, outcomes


@pytest.mark.parametrize("digits", [2, 4, 6])
def test_rounded_log_probabilities(digits):
    rng = np.random.default_rng(11)
    rounding, outside = 0.5 * 10.0**-digits, 0
    for _ in range(30):
        p, q = rng.dirichlet(np.full(6, 1.0)), rng.dirichlet(np.full(6, 1.0))
        pairs = []
        for bound in (rounding, 0.0):
            tops = []
            for mass, m in ((p, 6), (q, 5)):
                top = TopTokens.of(mass, m=m)
                logs = (
                    np.round(np.log(top.probabilities), digits)
                    if bound
                    else np.log(top.probabilities)
                )
                tops.append(
                    TopTokens(tokens=top.tokens, probabilities=np.exp(logs), rounding=bound)
                )
            pairs.append(PartialPair(draft=tops[0], target=tops[1], num_tokens=6))
        assert_inside(pairs[0], p, q)
        # Power: taken at face value, the rounded lists often exclude the truth.
        ends, true = (
            partial.optimal_acceptance(pairs[0], k=[4]),
            otm.optimal_acceptance(_iid(p, q, 4)),
        )
        bare = ends.lower[0] + ends.slack[0], ends.upper[0] - ends.slack[0]
        outside += not bare[0] - ROUNDING <= true <= bare[1] + ROUNDING
        assert ends.slack[0] <= 5 * 1.2 * math.exp(rounding) * math.expm1(rounding) * 3 + ROUNDING
    assert outside >= 5, outside


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tokens": [0, 0], "probabilities": [0.5, 0.25]}, "token 0 twice"),
        ({"tokens": [0, 1], "probabilities": [0.75, 0.5]}, "sum to 1 within"),
        ({"tokens": [0, 1], "probabilities": [0.5, float("nan")]}, "finite and non-negative"),
        ({"tokens": [0, 1], "probabilities": [-1.0, -2.0]}, "Exponentiate"),
        ({"tokens": [0, -1], "probabilities": [0.5, 0.25]}, "Padding"),
        ({"tokens": [0, -2], "probabilities": [0.5, 0.25]}, "at least 0, or −1"),
        ({"tokens": [0.0, 1.0], "probabilities": [0.5, 0.25]}, "must be integers"),
        ({"tokens": [0], "probabilities": [0.5, 0.25]}, "share one shape"),
        ({"tokens": [0, 1], "probabilities": [0.5, 0.25], "tail": 0.5}, "sum to 1 within"),
        ({"tokens": [0, 1], "probabilities": [0.5, 0.0]}, "caps each of them at 0"),
        ({"tokens": [0, 1], "probabilities": [0.5, 0.25], "tail": [0.25]}, "one value per row"),
        ({"tokens": [0, 1], "probabilities": [0.5, 0.25], "rounding": 0.5}, "rounding"),
        ({"tokens": [], "probabilities": []}, "m ≥ 1"),
        (
            {"tokens": [0, 1], "probabilities": np.array([0.5, 0.25], dtype=np.float16)},
            "float32 or float64",
        ),
    ],
)
def test_lists_that_describe_no_distribution(fields, message):
    with pytest.raises(otm.OtmError, match=message):
        TopTokens(**fields)


def test_a_tail_that_rounding_hides_is_not_taken_for_nothing():
    """A list that sums to 1 in float64 may hide a tail of 1e-17: the relative entropy is then
    large, not infinite.
    """
    whole, half = (
        TopTokens(tokens=[0], probabilities=[1.0]),
        TopTokens(tokens=[0, 1], probabilities=[0.5, 0.5]),
    )
    ends = partial.divergences(PartialPair(draft=whole, target=half)).kl_target_draft
    truth = 0.5 * np.log(0.5) + 0.5 * np.log(0.5 / 1e-18)  # p = (1 − 1e-18, 1e-18)
    assert ends.lower <= truth <= ends.upper
    assert not ends.is_tight
    # Nothing is hidden where every token is listed, or where the caller says so.
    listed = TopTokens(tokens=[0, 1], probabilities=[1.0, 0.0])
    assert (
        partial.divergences(
            PartialPair(draft=listed, target=half, num_tokens=2)
        ).kl_target_draft.lower
        == np.inf
    )
    told, other = (
        TopTokens(tokens=[0], probabilities=[1.0], tail=0.0),
        TopTokens(tokens=[0, 1], probabilities=[0.5, 0.5], tail=0.0),
    )
    assert (
        partial.divergences(PartialPair(draft=told, target=other)).kl_target_draft.lower == np.inf
    )
