"""Two clocks against schedules that are followed event by event."""

from __future__ import annotations

import numpy as np
import pytest

from otm.engines import chain_speedup, distributed_speedup, parallel_speedup

ROUNDS = 20_000


def accepted(a: float, length: int, rng: np.random.Generator) -> np.ndarray:
    """How many drafts of each round are kept before the first rejection."""
    return np.cumprod(rng.random((ROUNDS, length)) < a, axis=1).sum(axis=1)


@pytest.mark.parametrize(("a", "length", "c"), [(0.8, 4, 0.1), (0.9, 3, 0.6), (0.5, 2, 0.3)])
@pytest.mark.parametrize("hit", [None, 0.7])
def test_a_followed_schedule(a: float, length: int, c: float, hit: float | None) -> None:
    rng = np.random.default_rng(4)
    kept = accepted(a, length, rng)
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
    assert tokens.sum() / target == pytest.approx(
        parallel_speedup(a, length=length, cost_ratio=c, hit=hit), abs=deviation
    )


def test_ends() -> None:
    """Nothing foreseen is the sequential chain, everything hides the faster clock."""
    for c in (0.0, 0.1, 0.5):
        never = parallel_speedup(0.7, length=4, cost_ratio=c, hit=0.0)
        assert never == pytest.approx(chain_speedup(0.7, length=4, cost_ratio=c), rel=1e-15)
        always = parallel_speedup(0.7, length=4, cost_ratio=c, hit=1.0)
        free = chain_speedup(0.7, length=4, cost_ratio=0.0)
        assert always == pytest.approx(free / max(1.0, 4 * c), rel=1e-15)
    assert distributed_speedup(1.0, cost_ratio=0.0) == float("inf")


def test_many_targets_followed_draft_by_draft() -> None:
    a, c, rng = 0.7, 0.2, np.random.default_rng(5)
    runs = rng.geometric(1 - a, size=ROUNDS) - 1  # accepted drafts before each rejection
    now = 0.0
    for kept in runs:
        begins = (
            now + kept * c
        )  # the call that sees all accepted drafts starts when the last is made
        now = begins + 1.0
    found = (runs.sum() + ROUNDS) / now
    # relative deviations of the sum of geometric numbers, 5 of them
    deviation = 5 * np.sqrt(a) / (1 - a) / np.sqrt(ROUNDS)
    assert found == pytest.approx(distributed_speedup(a, cost_ratio=c), abs=deviation)
