"""Broken verifiers of a block of drafted tokens: faults that one position alone does not show.

`p` is `(γ, V)`, `q` is `(γ + 1, V)`, its last row the law after the whole block; the output is 1 to
γ + 1 tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from evidence.corpus.one_token import draw


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


def argmax_bonus(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[list[int], int]:
    """Take the likeliest token after a block that is accepted whole."""
    tokens, accepted = chain(p, q, drafts, uniforms)
    return (
        ([*drafts, int(q[-1].argmax())], accepted)
        if accepted == len(drafts)
        else (tokens, accepted)
    )


def greedy_but_for_the_bonus(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[list[int], int]:
    """Compare drafts with the target's likeliest tokens, and sample after the last one only."""
    likeliest = q.argmax(axis=1).tolist()
    for i, x in enumerate(drafts):
        if x != likeliest[i]:
            return likeliest[: i + 1], i
    return [*drafts, draw(q[-1], uniforms[-1])], len(drafts)


def hierarchy(
    p: Any, q: Any, drafts: Any, uniforms: Any, *, capped: bool = True
) -> tuple[list[int], int]:
    """Keep a prefix by its likelihood ratio, divided by the largest of the ratios up to it: correct
    (Zhou et al. 2026). Not `capped`, the whole block is kept by a ratio that is not divided.
    """
    ratio, most, shares = 1.0, 1.0, []
    for i, x in enumerate(drafts):
        shares.append(ratio / most)
        ratio *= q[i, x] / p[i, x]
        whole = ratio / most if capped else ratio
        most = max(most, ratio)
    if uniforms[0] < whole:
        return [*drafts, draw(q[-1], uniforms[-1])], len(drafts)
    i = len(drafts) - 1
    while i and not uniforms[i] * np.maximum(p[i] - shares[i] * q[i], 0.0).sum() < (
        np.maximum(shares[i] * q[i] - p[i], 0.0).sum()
    ):
        i -= 1
    return [*drafts[:i], draw(np.maximum(shares[i] * q[i] - p[i], 0.0), uniforms[-1])], i


def uncapped_last_ratio(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[list[int], int]:
    """Keep the whole block by its likelihood ratio, part of which an earlier position has used."""
    return hierarchy(p, q, drafts, uniforms, capped=False)
