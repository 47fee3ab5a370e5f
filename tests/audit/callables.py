"""Verifiers from the papers, and with faults, as a user would pass them to an audit."""

from __future__ import annotations

from typing import Any

import numpy as np


def draw(mass: Any, u: Any) -> int:
    return int(np.searchsorted(np.cumsum(mass) / np.sum(mass), u, side="right"))


def maximal(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    """Single-draft rejection, from the paper."""
    x = int(drafts[0])
    if uniforms[0] * p[x] < q[x]:
        return x, True
    return draw(np.maximum(q - p, 0.0), uniforms[1]), False


def recursive(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    """Recursive rejection of i.i.d. drafts, from the paper."""
    r = np.array(q)
    for i, x in enumerate(drafts):
        if uniforms[i] * p[x] < r[x]:
            return int(x), True
        r = np.maximum(r - p, 0.0)
        r = r / r.sum()
    return draw(r, uniforms[-1]), False


def one_uniform(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    """Recursive rejection that compares one uniform at every accept step."""
    return recursive(
        p, q, drafts, np.array([*[uniforms[0]] * len(drafts), uniforms[-1]], dtype=uniforms.dtype)
    )


def as_floats(verify: Any) -> Any:
    """The same code behind a conversion to plain floats, as tensor code has it: a black box."""
    return lambda p, q, drafts, uniforms: verify(
        p, q, drafts, np.asarray(uniforms, dtype=np.float64)
    )


def chain(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[list[int], int]:
    """Speculative decoding of one chain, from the paper."""
    for i, x in enumerate(drafts):
        if not uniforms[i] * p[i, x] < q[i, x]:
            return [*drafts[:i], draw(np.maximum(q[i] - p[i], 0.0), uniforms[-1])], i
    return [*drafts, draw(q[-1], uniforms[-1])], len(drafts)


def textbook(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[list[int], int]:
    """A listing that adds the bonus token whenever γ tokens are there: also after a rejection of
    the last draft.
    """
    tokens: list[int] = []
    for i, x in enumerate(drafts):
        if uniforms[i] * p[i, x] < q[i, x]:
            tokens.append(int(x))
        else:
            tokens.append(draw(np.maximum(q[i] - p[i], 0.0), uniforms[len(drafts)]))
            break
    if len(tokens) == len(drafts):
        tokens.append(draw(q[-1], uniforms[len(drafts) + 1]))
    return tokens, len(tokens)


def block(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[list[int], int]:
    """Block verification (Sun et al. 2024): accept a prefix as a whole."""
    gamma, weight, weights, heights = len(drafts), 1.0, [1.0], []
    for i, x in enumerate(drafts):
        weight = min(1.0, weight * q[i, x] / p[i, x])
        weights.append(weight)
        if i + 1 < gamma:
            excess = np.maximum(weight * q[i + 1] - p[i + 1], 0.0).sum()
            heights.append(excess / (excess + 1 - weight) if excess + 1 - weight > 0 else 1.0)
    heights.append(weight)
    keep = max([i + 1 for i in range(gamma) if uniforms[i] <= heights[i]], default=0)
    rest = q[gamma] if keep == gamma else np.maximum(weights[keep] * q[keep] - p[keep], 0.0)
    return [*drafts[:keep], draw(rest, uniforms[-1])], keep


def one_uniform_for_all_positions(p: Any, q: Any, drafts: Any, uniforms: Any) -> Any:
    return chain(p, q, drafts, [uniforms[0]] * len(drafts) + [uniforms[-1]])


def off_by_one(p: Any, q: Any, drafts: Any, uniforms: Any) -> Any:
    """Reads the target one position late, where there is one."""
    return chain(p, np.concatenate([q[1:], q[-1:]]), drafts, uniforms)


def no_bonus(p: Any, q: Any, drafts: Any, uniforms: Any) -> Any:
    tokens, accepted = chain(p, q, drafts, uniforms)
    return np.array([*tokens[: len(drafts)], -1]), accepted
