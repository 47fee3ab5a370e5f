"""Counts of one part, by hand, whichever way they are told."""

import numpy as np
import pytest

import otm
from otm.engines.positions import MAX_POSITIONS
from otm.engines.records import Tally, tally as module


def told(part):
    """What a tally holds, as lists."""
    lists = (part.survivors, part.offered, part.pairs)
    return {
        "sums": (part.steps, part.accepted, part.drafted),
        "lists": tuple(None if one is None else one.tolist() for one in lists),
    }


def test_steps_are_counted_by_what_they_accepted_and_by_what_they_drafted():
    part = Tally.of_steps([0, 2, 1, 0], [3, 2, 1, 0], name="a")
    assert told(part) == {
        "sums": (4, 3, 6),
        "lists": ([2, 1, 0], [3, 2, 1], [[0, 3], [2, 2], [1, 1], [0, 0]]),
    }
    assert (part.mean, part.unlocated, part.counted) == (1.75, 0, True)
    assert [part.offered_at(i) for i in (1, 3, 4)] == [3, 1, 0]
    assert told(Tally.of_steps([], [], name="")) == {"sums": (0, 0, 0), "lists": ([], [], [])}


def test_a_histogram_with_and_without_what_was_on_offer():
    """Ten steps: two accept none, two one and six two; of three on offer, or of two or less."""
    part = Tally.of_histogram([2, 2, 6], name="a", drafted=30)
    assert told(part) == {"sums": (10, 14, 30), "lists": ([8, 6], None, None)}
    assert part.offered_at(1) == 0
    part = Tally.of_histogram([2, 2, 6], name="a", offered=[1, 0, 5, 4])
    assert told(part) == {"sums": (10, 14, 22), "lists": ([8, 6, 0], [9, 9, 4], None)}
    # The longer of the two lists says how many positions there are.
    part = Tally.of_histogram([4, 6, 0, 0], name="a", offered=[4, 6])
    assert told(part) == {"sums": (10, 6, 6), "lists": ([6, 0, 0], [6, 0, 0], None)}
    assert Tally.of_histogram([2, 2, 6], name="a", drafted=14).drafted == 14


def test_survivors_are_levelled_within_the_rounding_of_three_decimals():
    part = Tally.of_survivors([7, 7.02, 3], steps=10, name="a")
    assert told(part) == {"sums": (10, 17, None), "lists": ([7, 7, 3], None, None)}
    part = Tally.of_survivors([10.02, 4], steps=10, name="a", accepted=20, drafted=40.0)
    assert told(part) == {"sums": (10, 20, 40), "lists": ([10, 4], None, None)}
    assert part.unlocated == 6
    # Each of three rates may have been rounded up.
    assert Tally.of_survivors([8, 6, 4], steps=10, name="a", accepted=17.95).unlocated == 0
    part = Tally.of_rates([0.8, 0.6], name="a")
    assert (part.steps, part.mean, part.counted) == (1, pytest.approx(2.4), False)
    part = Tally.of_mean(2.5, name="a")
    assert (part.mean, part.survivors, part.unlocated, part.counted) == (2.5, None, 0, False)
    assert Tally.of_mean(1.0, name="a").accepted == 0


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Tally.of_steps([1, 2], [2], name="a"), "lists 2 and 1 steps"),
        (lambda: Tally.of_steps([3], [2], name="a"), "accepts more than it drafts"),
        (lambda: Tally.of_steps([0.5], [2], name="a"), "list of integers"),
        (lambda: Tally.of_steps([-1], [2], name="a"), "list of integers"),
        (lambda: Tally.of_steps([[1]], [[2]], name="a"), "list of integers"),
        (lambda: Tally.of_steps([1], [MAX_POSITIONS + 1], name="a"), "list of integers"),
        (lambda: Tally.of_histogram([2**53 + 1], name="a"), "list of integers"),
        (lambda: Tally.of_histogram([2, 2, 6], name="a", drafted=13), "accepts 14 of 13"),
        (
            lambda: Tally.of_histogram([2, 2, 6], name="a", offered=[0, 0, 9]),
            "10 steps by what they accepted and 9 by what was on offer",
        ),
        (lambda: Tally.of_histogram([2, 2, 6], name="a", offered=[0, 5, 5]), "or accepts more"),
        (lambda: Tally.of_survivors([7, 7.03], steps=10, name="a"), "become fewer"),
        (lambda: Tally.of_survivors([10.03], steps=10, name="a"), "become fewer"),
        (lambda: Tally.of_survivors([5, -1], steps=10, name="a"), "become fewer"),
        (lambda: Tally.of_survivors([], steps=10, name="a"), "must count the steps"),
        (lambda: Tally.of_survivors([[5]], steps=10, name="a"), "must count the steps"),
        (lambda: Tally.of_survivors([np.nan], steps=10, name="a"), "must count the steps"),
        (lambda: Tally.of_survivors([5], steps=0, name="a"), "steps"),
        (
            lambda: Tally.of_survivors([8, 6, 4], steps=10, name="a", accepted=17.9),
            "at least the sum by position",
        ),
        (lambda: Tally.of_mean(0.9, name="a"), "counts the target's token"),
        (lambda: Tally.of_mean(2.0 + MAX_POSITIONS, name="a"), "counts the target's token"),
    ],
)
def test_what_are_no_counts(make, said):
    with pytest.raises(otm.errors.InvalidParameter, match=said):
        make()


def test_the_largest_counts_are_counts(monkeypatch):
    assert Tally.of_steps([0], [MAX_POSITIONS], name="").drafted == MAX_POSITIONS
    assert Tally.of_histogram([2**53], name="").steps == 2**53
    monkeypatch.setattr(module, "MAX_STEPS", 3)
    assert Tally.of_steps([1] * 3, [1] * 3, name="").steps == 3
    with pytest.raises(otm.errors.InvalidParameter, match="list of integers"):
        Tally.of_steps([1] * 4, [1] * 4, name="")
