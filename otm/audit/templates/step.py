"""A decoding step that drafts by itself: ``otm audit FILE.py``.

`candidate(draft, target, rng)` drafts, verifies and returns 1 to γ + 1 tokens. The models have
`next(tokens)`, the law (V,) after the tokens of the step so far. Draw from `rng`, NumPy, `random`
or torch, from whatever the real step draws from: what drafter and verifier share (noise, a seed, a
cache) is what this audit is for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

GAMMA = 2


def candidate(draft: Any, target: Any, rng: np.random.Generator) -> list[int]:
    """Put the step here; this one is speculative sampling (Leviathan et al. 2023)."""
    drafts: list[int] = []
    for _ in range(GAMMA):
        drafts.append(_drawn(draft.next(drafts), rng))
    for i, x in enumerate(drafts):
        p, q = draft.next(drafts[:i]), target.next(drafts[:i])
        if not rng.random() * p[x] < q[x]:
            return [*drafts[:i], _drawn(np.maximum(q - p, 0.0), rng)]
    return [*drafts, _drawn(target.next(drafts), rng)]


def _drawn(weights: Any, rng: np.random.Generator) -> int:
    return int(rng.choice(len(weights), p=weights / weights.sum()))
