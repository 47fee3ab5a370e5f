"""Two clocks against schedules that are followed event by event."""

import math

import numpy as np
import pytest

from otm.engines import chain_speedup, distributed_speedup, parallel_speedup

ROUNDS = 20_000


@pytest.mark.parametrize(("a", "length", "c"), [(0.8, 4, 0.1), (0.9, 3, 0.6), (0.5, 2, 0.3)])
@pytest.mark.parametrize("hit", [None, 0.7])
def test_a_followed_schedule(a, length, c, hit):
    rng = np.random.default_rng(4)
    kept = np.cumprod(rng.random((ROUNDS, length)) < a, axis=1).sum(axis=1)
    if hit is None:  # behind a whole block the drafter has gone on: the correction is missing there
        there, tokens = kept == length, np.minimum(kept + 1, length)
    else:
        there, tokens = rng.random(ROUNDS) < hit, kept + 1
    target = drafter = length * c  # when the first drafts are there
    for ready in there:
        end = target + 1.0  # verification begins when the target is free and the drafts are there
        drafter = target + length * c if ready else end + length * c
        target = max(end, drafter)
    # tokens and durations of rounds are independent of other rounds, and bounded by length + 1
    deviation = 5 * (length + 1) * (1 + length * c) / np.sqrt(ROUNDS)
    found = parallel_speedup(a, length=length, cost_ratio=c, hit=hit)
    assert tokens.sum() / target == pytest.approx(found, abs=deviation)


@pytest.mark.parametrize("c", [0.0, 0.1, 0.5])
def test_ends(c):
    """Nothing foreseen is the sequential chain, everything hides the faster clock."""
    never, always = (parallel_speedup(0.7, length=4, cost_ratio=c, hit=h) for h in (0.0, 1.0))
    assert never == pytest.approx(chain_speedup(0.7, length=4, cost_ratio=c), rel=1e-15)
    free = chain_speedup(0.7, length=4, cost_ratio=0.0)
    assert always == pytest.approx(free / max(1.0, 4 * c), rel=1e-15)


def test_many_targets():
    """A rejection waits for a call, and comes after 7/3 accepted drafts on average, each of which
    takes c: (7/3 + 1)/(7/3 · c + 1) tokens a call.
    """
    assert distributed_speedup(0.7, cost_ratio=0.2) == pytest.approx((7 / 3 + 1) / (1.4 / 3 + 1))
    assert distributed_speedup(1.0, cost_ratio=0.0) == math.inf
