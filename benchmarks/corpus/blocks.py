"""Broken verifiers of a block of drafted tokens: faults that one position alone does not show.

`p` is `(γ, V)`, `q` is `(γ + 1, V)`, its last row the law after the whole block; the output is 1 to
γ + 1 tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.corpus.one_token import draw


def chain(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[list[int], int]:
    """Verify position by position up to the first rejection: correct (Leviathan et al. 2023)."""
    for i, x in enumerate(drafts):
        if not uniforms[i] * p[i, x] < q[i, x]:
            return [*drafts[:i], draw(np.maximum(q[i] - p[i], 0.0), uniforms[-1])], i
    return [*drafts, draw(q[-1], uniforms[-1])], len(drafts)


def one_uniform_for_all_positions(
    p: Any, q: Any, drafts: Any, uniforms: Any
) -> tuple[list[int], int]:
    """Compare every position with the same uniform."""
    return chain(p, q, drafts, [uniforms[0]] * len(drafts) + [uniforms[-1]])


def target_row_ahead(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[list[int], int]:
    """Verify draft i against the target after draft i."""
    return chain(p, np.concatenate([q[1:], q[-1:]]), drafts, uniforms)


def first_draft_unverified(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[list[int], int]:
    """Start the loop at the second draft."""
    rest, accepted = chain(p[1:], q[1:], drafts[1:], uniforms[1:])
    return [drafts[0], *rest], accepted + 1


def bonus_after_rejection(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[list[int], int]:
    """Add the bonus token whenever the output has γ tokens, also where the last of them replaced a
    rejected draft.
    """
    tokens, accepted = chain(p, q, drafts, uniforms[:-1])
    if accepted == len(drafts) - 1:
        tokens = [*tokens, draw(q[-1], uniforms[-1])]
    return tokens, accepted
