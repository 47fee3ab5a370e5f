"""Pairs that cannot be; completions: admissible, and they reach the ends."""

import pytest

import otm
from otm import partial
from otm.partial import PartialPair, TopTokens
from tests.partial.oracles import (
    LEVELS,
    SOLVER,
    _instances,
    curve,
    dense,
    highest_overlap,
    intervals,
    spread,
)


def test_ends_are_attained_by_admissible_completions():
    for _, _, pair in _instances(30, seed=1):
        lowest, highest = (
            dense(*spread(pair, c, pair.num_tokens)) for c in (pair.furthest, pair.closest)
        )
        for name, interval in intervals(pair).items():
            kind, *k = name.split()
            if kind == "race" or (kind == "recursive" and k != ["1"]):
                assert not interval.is_tight
                continue
            assert interval.is_tight
            ends = (
                (lowest[name], highest[name])
                if kind in ("overlap", "optimum", "threshold", "kseq", "recursive")
                else (
                    highest[name],
                    lowest[name],
                )
            )
            # The completion may be off its own end by rounding and by the slack that the end was
            # moved.
            for end, value in zip((interval.lower, interval.upper), ends, strict=True):
                assert end == value or abs(end - value) <= interval.slack + 1e-9 * abs(value), (
                    name,
                    interval,
                    ends,
                )


def test_closest_curve_is_highest_at_every_level_at_once():
    for _, _, pair in _instances(25, seed=3):
        for level in LEVELS[1:6]:
            assert curve(pair.closest, level) == pytest.approx(
                highest_overlap(pair, pair.num_tokens, level), abs=SOLVER
            )


HALF = TopTokens(tokens=[0, 1], probabilities=[0.5, 0.25])
WIDE = TopTokens(tokens=[[0, 1]], probabilities=[[0.5, 0.25]])
FAR = TopTokens(tokens=[2, 3], probabilities=[0.5, 0.5])


@pytest.mark.parametrize(
    ("target", "more", "error", "message"),
    [
        (WIDE, {}, otm.errors.ShapeMismatch, "same leading axes"),
        (HALF, {"num_tokens": 1}, otm.errors.InvalidParameter, "exceed every listed"),
        (HALF, {"num_tokens": 2}, otm.errors.InvalidDistribution, "cannot hold its tail"),
        ([0.5, 0.5], {}, otm.errors.InvalidParameter, "TopTokens.of"),
        (FAR, {"num_tokens": 3}, otm.errors.InvalidParameter, "exceed every listed"),
    ],
    ids=["axes", "one token", "two tokens", "a list", "three tokens"],
)
def test_pairs_that_cannot_be(target, more, error, message):
    with pytest.raises(error, match=message):
        PartialPair(draft=HALF, target=target, **more)


@pytest.mark.parametrize("bad", [[], [0], 0, "2", [1.5]], ids=str)
def test_numbers_of_drafts_that_cannot_be(bad):
    with pytest.raises(otm.errors.InvalidParameter):
        partial.optimal_acceptance(PartialPair(draft=HALF, target=HALF), k=bad)
