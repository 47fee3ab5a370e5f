"""Broken decoding steps: the drafter and the verifier are right by themselves, and wrong together.

A step drafts γ = 1 token and verifies it: `step(draft, target, rng)`, with `next(tokens)` of each
model the law after the tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np

SKIPPED = 0


def race(weights: Any, noise: Any) -> int:
    """Return argmax w/E: a draw by weight where the noise is exponential and fresh."""
    return int(np.argmax(weights / noise))


def step(draft: Any, target: Any, rng: Any) -> list[int]:
    """Draft with exponential noise, verify, recover with fresh noise: correct."""
    p, q = draft.next([]), target.next([])
    x = race(p, rng.exponential(size=len(p)))
    if rng.random() * p[x] < q[x]:
        return [x, race(target.next([x]), rng.exponential(size=len(p)))]
    return [race(np.maximum(q - p, 0.0), rng.exponential(size=len(p)))]


def shared_noise(draft: Any, target: Any, rng: Any) -> list[int]:
    """Recover with the noise that drew the draft."""
    p, q = draft.next([]), target.next([])
    noise = rng.exponential(size=len(p))
    x = race(p, noise)
    if rng.random() * p[x] < q[x]:
        return [x]
    return [race(np.maximum(q - p, 0.0), noise)]


def key_as_uniform(draft: Any, target: Any, rng: Any) -> list[int]:
    """Accept with the uniform behind the draft's Gumbel key."""
    p, q = draft.next([]), target.next([])
    keys = rng.random(len(p))
    x = race(p, -np.log(keys))
    if keys[x] * p[x] < q[x]:
        return [x]
    return [race(np.maximum(q - p, 0.0), rng.exponential(size=len(p)))]


def skip_after_a_look(draft: Any, target: Any, rng: Any) -> list[int]:
    """Do without verification where the draft is a token that is cheap to decode: otherwise emit
    the target's own sample.
    """
    p, q = draft.next([]), target.next([])
    x = int(rng.choice(len(p), p=p))
    if x == SKIPPED:
        return [int(rng.choice(len(q), p=q))]
    if rng.random() * p[x] < q[x]:
        return [x]
    return [int(rng.choice(len(q), p=np.maximum(q - p, 0.0) / np.maximum(q - p, 0.0).sum()))]


def capped_ranks(draft: Any, target: Any, rng: Any) -> list[int]:
    """Take the better of two drafts by min(1, q/p), the first where both reach 1, and verify it by
    the law of a strict order.
    """
    p, q = draft.next([]), target.next([])
    drafts = rng.choice(len(p), size=2, p=p).tolist()
    ratio = np.minimum(1.0, q / p)
    x = max(drafts, key=ratio.__getitem__)
    order = np.argsort(ratio, kind="stable")
    upto = np.cumsum(p[order])
    selected = np.empty(len(p))
    selected[order] = upto**2 - (upto - p[order]) ** 2
    if rng.random() * selected[x] < q[x]:
        return [x]
    rest = np.maximum(q - selected, 0.0)
    return [int(rng.choice(len(q), p=rest / rest.sum()))]


def reseeded_coin(draft: Any, target: Any, rng: Any) -> list[int]:
    """Seed the generator of the coin again at every position, with one seed for the step."""
    seed = int(rng.integers(2**31))
    tokens: list[int] = []
    for _ in range(2):
        p, q = draft.next(tokens), target.next(tokens)
        x = int(rng.choice(len(p), p=p))
        if not np.random.default_rng(seed).random() * p[x] < q[x]:
            rest = np.maximum(q - p, 0.0)
            return [*tokens, int(rng.choice(len(q), p=rest / rest.sum()))]
        tokens.append(x)
    return tokens


def bonus_from_the_wrong_row(draft: Any, target: Any, rng: Any) -> list[int]:
    """Draw the bonus token from the law before the draft."""
    tokens = step(draft, target, rng)
    if len(tokens) == 1:
        return tokens
    q = target.next([])
    return [tokens[0], int(rng.choice(len(q), p=q))]


def stale_row(draft: Any, target: Any, rng: Any) -> list[int]:
    """Leave the row of a rejected draft in the cache, and go on after it."""
    p, q = draft.next([]), target.next([])
    x = int(rng.choice(len(p), p=p))
    if rng.random() * p[x] < q[x]:
        return [x]
    rest = np.maximum(q - p, 0.0)
    y = int(rng.choice(len(q), p=rest / rest.sum()))
    after = target.next([x])
    return [y, int(rng.choice(len(after), p=after))]


def draft_law_in_another_order(draft: Any, target: Any, rng: Any) -> list[int]:
    """Verify against the draft's law as the dictionary of its vocabulary lists it, not by id."""
    p, q = draft.next([]), target.next([])
    x = int(rng.choice(len(p), p=p))
    listed = p[::-1]
    if rng.random() * listed[x] < q[x]:
        return [x]
    rest = np.maximum(q - listed, 0.0)
    return [int(rng.choice(len(q), p=rest / rest.sum()))]
