"""How fast drafting beside verification is: two clocks instead of one."""

from __future__ import annotations

from otm.engines.chain import MAX_SECONDS, chain_expected_tokens
from otm.pmf import check_count, check_real


def parallel_speedup(
    acceptance: float, *, length: int, cost_ratio: float, hit: float | None = None
) -> float:
    """Return the expected wall-time improvement where the next drafts are made during verification.

    E[tokens]/(h max(1, γ c) + (1 − h)(1 + γ c)).

    While the target verifies γ drafts, the drafter, on a machine of its own, drafts γ more after
    outcomes that it expects. With probability h the outcome is among them, and the next target call
    waits for the slower of the two clocks alone; else it waits for γ drafts to be made anew.

    Args:
        acceptance: a, in [0, 1], of every draft, independently.
        length: γ ≥ 1 drafts.
        cost_ratio: c ≥ 0, the time of one draft step over that of one target call.
        hit: h, the probability that the drafts for what came are there (SSD's cache), where
            E[tokens] = 1 + a + … + a^γ. None where the drafter goes on behind its own γ drafts
            (PEARL): h = a^γ, and since no token of the target stands between two blocks,
            E[tokens] = 1 + … + a^{γ−1}.

    Returns:
        A factor; below 1 speculation is slower.

    Raises:
        InvalidParameter: if an argument is out of its range.

    Cost: O(1). Accuracy: 20 u. Reference: Liu et al. 2024 (PEARL, its post-verification);
        docs/theory.md, "Two clocks".

    >>> parallel_speedup(0.8, length=5, cost_ratio=0.2, hit=1.0).__round__(6)
    3.68928
    """
    a = check_real(acceptance, name="acceptance", low=0.0, high=1.0)
    gamma = check_count(length, name="length")
    c = check_real(cost_ratio, name="cost_ratio", low=0.0, high=MAX_SECONDS)
    if hit is None:
        tokens, there = chain_expected_tokens(a, length=gamma - 1), a**gamma
    else:
        tokens = chain_expected_tokens(a, length=gamma)
        there = check_real(hit, name="hit", low=0.0, high=1.0)
    drafting = gamma * c
    return float(tokens / (there * max(1.0, drafting) + (1.0 - there) * (1.0 + drafting)))


def distributed_speedup(acceptance: float, *, cost_ratio: float) -> float:
    """Return the expected wall-time improvement with as many targets as can be kept busy.

    1/(a c + 1 − a): every draft is verified as soon as it is made, each prefix on a target of its
    own, so that an accepted draft costs its drafting, and only a rejection waits for the target.

    Args:
        acceptance: a, in [0, 1], of every draft, independently.
        cost_ratio: c, in [0, 1], the time of one draft step over that of one target call.

    Returns:
        A factor of at least 1; infinity for free drafts that are never rejected.

    Raises:
        InvalidParameter: if an argument is out of its range.

    Cost: O(1). Accuracy: 20 u. Reference: Timor et al. 2024 (DSI); docs/theory.md, "Two clocks".

    >>> distributed_speedup(0.75, cost_ratio=0.2).__round__(12)  # 1/(0.15 + 0.25)
    2.5
    """
    a = check_real(acceptance, name="acceptance", low=0.0, high=1.0)
    c = check_real(cost_ratio, name="cost_ratio", low=0.0, high=1.0)
    spent = a * c + (1.0 - a)
    return 1.0 / spent if spent else float("inf")
