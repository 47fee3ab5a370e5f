"""Broken verifiers of one token, each a few lines, and two controls that look broken and are not.

Throughout p is the draft law that the verifier is given, q the target law that the output should
have, `drafts` the drafted tokens and `uniforms` independent uniforms. Where the fault lies in what
the verifier is given (raw instead of processed probabilities, rows of padding), the function undoes
the processing first; the constants say which.
"""

from __future__ import annotations

from typing import Any

import numpy as np

KEPT = 0.8
"""Mass that top-k or top-p kept of the raw probabilities."""

PADDING = 0.1
"""Mass that zero-filled output rows get from a softmax: logit 0 is no −∞."""

LENIENCE = 0.8
THRESHOLD = 0.5
CLAMP = 1e-8
WEIGHT = 0.75
RELAXED = 1 / 8
NUCLEUS = 0.8
RAW = np.array([0.4, 0.3, 0.2, 0.1])
UNROUNDED = (1 / 2, 3 / 10, 3 / 20, 1 / 20)
TILE = 64
UNROLLED = 4


def draw(weights: Any, uniform: Any) -> int:
    """Return a token with probability proportional to its weight, by inversion."""
    cumulative = np.cumsum(weights)
    return min(
        int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right")),
        len(cumulative) - 1,
    )


def speculative_sampling(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    """Accept the draft with probability min(1, q/p), else draw from (q − p)₊: correct (Leviathan et
    al. 2023).
    """
    x = int(drafts[0])
    if uniforms[0] * p[x] < q[x]:
        return x, True
    return draw(np.maximum(q - p, 0.0), uniforms[1]), False


def one_hot_draft(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    """Treat any draft as certain: accept with probability q, else draw from q without it. Lossless
    for every drafter.
    """
    x = int(drafts[0])
    if uniforms[0] < q[x]:
        return x, True
    return draw(np.where(np.arange(len(q)) == x, 0.0, q), uniforms[1]), False


def sample_and_match(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    """Draw from q and call the draft accepted if it is that token: lossless, since the draft is
    never used.
    """
    token = draw(q, uniforms[0])
    return token, token == int(drafts[0])


def raw_target(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    """Verify against the target before its temperature of 1/2."""
    raw = np.sqrt(q)
    return speculative_sampling(p, raw / raw.sum(), drafts, uniforms)


def temperature_twice(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    """Apply a temperature of 1/2 to a target that has been processed already."""
    colder = np.square(q)
    return speculative_sampling(p, colder / colder.sum(), drafts, uniforms)


def top_p_on_draft_only(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    """Verify against the whole target although top-p was asked for (and the draft obeyed)."""
    return speculative_sampling(p, _untruncated(q), drafts, uniforms)


def raw_draft(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    """Verify with the draft's raw probabilities although the drafts were drawn after top-k."""
    return speculative_sampling(_untruncated(p), q, drafts, uniforms)


def _untruncated(mass: Any) -> Any:
    """Undo a truncation that kept the mass `KEPT` and dropped tokens of equal probability."""
    dropped = mass == 0
    return np.where(dropped, (1.0 - KEPT) / dropped.sum(), KEPT * mass) if dropped.any() else mass


def zero_filled_padding(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    """Take the softmax over a vocabulary padded with zero rows, here the last token."""
    padded = (1.0 - PADDING) * q
    padded[-1] += PADDING
    return speculative_sampling(p, padded, drafts, uniforms)


def one_hot_ratio(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    """Accept as if the draft were certain, resample as if it were drawn from p."""
    x = int(drafts[0])
    if uniforms[0] < q[x]:
        return x, True
    return draw(np.maximum(q - p, 0.0), uniforms[1]), False


def either_of_two_samples(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    """Draw from q twice and accept a draft that either is."""
    x, samples = int(drafts[0]), [draw(q, u) for u in uniforms[:2]]
    return (x, True) if x in samples else (samples[0], False)


def accept_everything(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    """Count every draft as a match."""
    return int(drafts[0]), True


def resample_target(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    """After a rejection draw from q itself."""
    x = int(drafts[0])
    if uniforms[0] * p[x] < q[x]:
        return x, True
    return draw(q, uniforms[1]), False


def remove_drafted_token(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    """After a rejection draw from q without the drafted token."""
    x = int(drafts[0])
    if uniforms[0] * p[x] < q[x]:
        return x, True
    return draw(np.where(np.arange(len(q)) == x, 0.0, q), uniforms[1]), False


def unnormalised_residual(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    """Invert the cumulative sum of (q − p)₊ without its total, and take the last token where that
    runs out.
    """
    x = int(drafts[0])
    if uniforms[0] * p[x] < q[x]:
        return x, True
    found = np.searchsorted(np.cumsum(np.maximum(q - p, 0.0)), uniforms[1], side="right")
    return min(int(found), len(q) - 1), False


def lenient(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    """Accept with probability min(1, q/(l·p)), l = 4/5, and leave the residual as it was."""
    x = int(drafts[0])
    if uniforms[0] * (LENIENCE * p[x]) < q[x]:
        return x, True
    return draw(np.maximum(q - p, 0.0), uniforms[1]), False


def threshold_below_one(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    """Treat the draft as certain, but accept with probability min(1, q/t), t = 1/2."""
    x = int(drafts[0])
    if uniforms[0] * THRESHOLD < q[x]:
        return x, True
    return draw(np.where(np.arange(len(q)) == x, 0.0, q), uniforms[1]), False


def clamped_residual(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    """Clamp the residual at 1e-8 from below, to be safe from a sum of zero."""
    x = int(drafts[0])
    if uniforms[0] * p[x] < q[x]:
        return x, True
    return draw(np.maximum(q - p, CLAMP), uniforms[1]), False


def same_uniform_for_residual(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    """Draw the replacement with the very uniform that rejected the draft."""
    x = int(drafts[0])
    if uniforms[0] * p[x] < q[x]:
        return x, True
    return draw(np.maximum(q - p, 0.0), uniforms[0]), False


def kept_at_equality(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    """Keep the draft while u·p ≤ q: another rule where the uniform is exactly 0 and the target's
    probability is 0.
    """
    x = int(drafts[0])
    if uniforms[0] * p[x] <= q[x]:
        return x, True
    return draw(np.maximum(q - p, 0.0), uniforms[1]), False


def mixed_target(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    """Verify against w·q + (1 − w)·p, w = 3/4: a target mixed with the draft is accepted more
    often.
    """
    return speculative_sampling(p, WEIGHT * q + (1.0 - WEIGHT) * p, drafts, uniforms)


def relaxed(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    """Keep any of the target's two likeliest tokens that lies within 1/8 of the likeliest, and
    verify the others.
    """
    x = int(drafts[0])
    if q[x] >= max(np.sort(q)[-2], q.max() - RELAXED):
        return x, True
    return speculative_sampling(p, q, drafts, uniforms)


def bfloat16_drafts(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    """Verify with float32 ratios drafts that were drawn from the same law rounded to bfloat16; here
    with `UNROUNDED`.
    """
    return speculative_sampling(np.asarray(UNROUNDED), q, drafts, uniforms)


def top_p_before_temperature(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    """Keep the nucleus of the raw target `RAW` and divide by the temperature of 1/2 afterwards."""
    kept = np.where(np.cumsum(RAW) - RAW < NUCLEUS, RAW, 0.0) ** 2
    return speculative_sampling(p, kept / kept.sum(), drafts, uniforms)


def top_k_before_temperature(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    """Keep the two likeliest tokens of the raw target `RAW` and divide by the temperature of 1/2
    afterwards: they stay the same.
    """
    kept = np.where(np.arange(len(RAW)) < 2, RAW, 0.0) ** 2
    return speculative_sampling(p, kept / kept.sum(), drafts, uniforms)


def first_tile_only(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    """Draw the replacement from the first 64 tokens, and keep the draft where these have no
    residual.
    """
    x = int(drafts[0])
    residual = np.maximum(q - p, 0.0)[:TILE]
    if uniforms[0] * p[x] < q[x] or not residual.any():
        return x, True
    return draw(residual, uniforms[1]), False


def recursive_rejection(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    """Try the drafts in turn as if each were drawn from p: correct for independent drafts, and for
    no others.
    """
    residual = q
    for x, uniform in zip(drafts, uniforms, strict=False):
        if uniform * p[x] < residual[x]:
            return int(x), True
        residual = np.maximum(residual - p, 0.0)
        residual = residual / residual.sum()
    return draw(residual, uniforms[len(drafts)]), False


def one_uniform_for_all_drafts(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    """Recursive rejection that compares every draft with the same uniform."""
    again = np.asarray([uniforms[0]] * len(drafts) + [uniforms[len(drafts)]])
    return recursive_rejection(p, q, drafts, again)


def winner_as_a_draft(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    """Select the draft with the largest q/p, and verify it as if it had been drafted alone."""
    x = max((int(draft) for draft in drafts), key=lambda token: q[token] / p[token])
    return speculative_sampling(p, q, [x], uniforms)


def last_drafts_unverified(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    """Recursive rejection unrolled for four drafts: a fifth one is taken as it is."""
    residual = q
    for x, uniform in zip(drafts[:UNROLLED], uniforms, strict=False):
        if uniform * p[x] < residual[x]:
            return int(x), True
        residual = np.maximum(residual - p, 0.0)
        residual = residual / residual.sum()
    if len(drafts) > UNROLLED:
        return int(drafts[UNROLLED]), True
    return draw(residual, uniforms[len(drafts)]), False


def draft_vocabulary_only(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    """Read as many target probabilities as the draft's vocabulary has tokens."""
    size = int(np.flatnonzero(p)[-1]) + 1
    return speculative_sampling(p[:size], q[:size] / q[:size].sum(), drafts, uniforms)
