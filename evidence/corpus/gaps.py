"""Faults that hide between what is usually tried, and lossless code of odd shapes.

Each of `GAPS` is right wherever an audit at temperature 1, on flat laws, short blocks and large
batches looks, and wrong somewhere between. Each of `ODD` is lossless, and written in a way that may
be taken for a fault. All verdicts are those of `otm.audit.battery` as it comes.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import numpy as np

import otm
from evidence.corpus import blocks, one_token, steps, trees
from otm import audit


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """A callable, and what an audit should say of it.

    Attributes:
        name: a few words.
        candidate: what `otm.audit.battery` is handed.
        verdict: the verdict that it should come to.
    """

    name: str
    candidate: Any
    verdict: str = "not lossless"


def drawn(weights: Any, uniform: Any) -> int:
    """Return the token that a uniform picks by weight."""
    return int(np.searchsorted(np.cumsum(weights) / np.sum(weights), uniform, side="right"))


def rejection(p: Any, q: Any, drafts: Any, uniforms: Any) -> int:
    """Recursive rejection: correct."""
    rest = np.array(q)
    for x, u in zip(drafts, uniforms, strict=False):
        if u * p[x] < rest[x]:
            return int(x)
        rest = np.maximum(rest - p, 0.0)
        rest = rest / rest.sum()
    return drawn(rest, uniforms[-1])


def on_laws(verify: Callable[..., Any], heat_of: Callable[[float], float]) -> Callable[..., Any]:
    """Return a verifier of laws as one of raw logits, at what it makes of the temperature."""

    def of_logits(p: Any, q: Any, drafts: Any, uniforms: Any, temperature: float) -> Any:
        heat = heat_of(temperature)
        laws = (otm.from_logits(row, temperature=heat) for row in (p, q))
        return verify(*laws, drafts, uniforms)

    return audit.LogitCandidate(of_logits)


def with_five_drafts(p: Any, q: Any, drafts: Any, uniforms: Any) -> int:
    """Take the last of exactly five drafts where the first is rejected."""
    if len(drafts) == 5 and not uniforms[0] * p[drafts[0]] < q[drafts[0]]:
        return int(drafts[-1])
    return rejection(p, q, drafts, uniforms)


def block_of_four(p: Any, q: Any, drafts: Any, uniforms: Any) -> Any:
    """Verify the last of exactly four drafts against the row before its own."""
    if len(drafts) == 4:
        q = np.concatenate([q[:3], q[2:3], q[4:]])
    return blocks.chain(p, q, drafts, uniforms)


def beyond_five(p: Any, q: Any, drafts: Any, uniforms: Any) -> Any:
    """Accept every draft beyond the fifth."""
    sure = np.where(np.arange(len(uniforms)) >= 5, 0.0, uniforms)
    return blocks.chain(p, q, drafts, np.append(sure[:-1], uniforms[-1]))


def rows(p: Any, q: Any, drafts: Any, rng: Any) -> Any:
    """Verify one draft of each row of a batch: correct."""
    x = drafts[:, 0]
    rest = np.maximum(q - p, 0.0)
    rest = rest / rest.sum() if rest.any() else q
    other = rng.choice(len(q), size=len(x), p=rest)
    return np.where(rng.random(len(x)) * p[x] < q[x], x, other)


def last_row_kept(p: Any, q: Any, drafts: Any, rng: Any) -> Any:
    """Leave the last row of a batch unverified."""
    found = rows(p, q, drafts, rng)
    found[-1] = drafts[-1, 0]
    return found


def one_row_kept(p: Any, q: Any, drafts: Any, rng: Any) -> Any:
    """Leave a batch of one row unverified."""
    return drafts[:, 0] if len(drafts) == 1 else rows(p, q, drafts, rng)


def coin_for_all_rows(p: Any, q: Any, drafts: Any, rng: Any) -> Any:
    """Compare all rows of a batch with one uniform: each row is right by itself."""
    x = drafts[:, 0]
    rest = np.maximum(q - p, 0.0)
    rest = rest / rest.sum() if rest.any() else q
    other = rng.choice(len(q), size=len(x), p=rest)
    return np.where(rng.random() * p[x] < q[x], x, other)


def confident_target(p: Any, q: Any, drafts: Any, uniforms: Any) -> int:
    """Take the target's likeliest token at once where its probability is above .92."""
    return int(np.argmax(q)) if q.max() > 0.92 else rejection(p, q, drafts, uniforms)


def confident_draft(p: Any, q: Any, drafts: Any, uniforms: Any) -> int:
    """Take a draft of probability between .985 and .995 at once, if the target is not far off."""
    x = drafts[0]
    if 0.985 < p[x] < 0.995 and q[x] > 0.3:
        return int(x)
    return rejection(p, q, drafts, uniforms)


def slightly_confident(p: Any, q: Any, drafts: Any, uniforms: Any) -> int:
    """Add 1e-3 to the acceptance of a token of which the target is almost sure."""
    x = drafts[0]
    if uniforms[0] * p[x] < q[x] + 1e-3 * (0.9 < q[x] < 0.9995):
        return int(x)
    return drawn(np.maximum(q - p, 0.0), uniforms[-1])


def nearly_equal(p: Any, q: Any, drafts: Any, uniforms: Any) -> int:
    """Take the draft at once where the laws are equal to three digits."""
    return int(drafts[0]) if np.abs(p - q).max() < 2e-3 else rejection(p, q, drafts, uniforms)


def equal_in_float32(p: Any, q: Any, drafts: Any, uniforms: Any) -> int:
    """Take the draft at once where the laws are equal in float32."""
    if np.array_equal(np.float32(p), np.float32(q)):
        return int(drafts[0])
    return rejection(p, q, drafts, uniforms)


def padded_residual(p: Any, q: Any, drafts: Any, uniforms: Any) -> int:
    """Add 1e-8 to every entry of the residual."""
    x = drafts[0]
    if uniforms[0] * p[x] < q[x]:
        return int(x)
    return drawn(np.maximum(q - p, 0.0) + 1e-8, uniforms[-1])


def raises_on_zeros(p: Any, q: Any, drafts: Any, uniforms: Any) -> int:
    """Take logarithms of probabilities, and end where one of them is 0."""
    if not (p.all() and q.all()):
        raise FloatingPointError("logarithm of zero")
    return rejection(p, q, drafts, uniforms)


def confident_below_the_root(draft: Any, target: Any, rng: Any) -> list[int]:
    """Write the target's likeliest second token where its probability is above .95."""
    found = steps.step(draft, target, rng)
    after = target.next(found[:1])
    return [found[0], int(np.argmax(after))] if after.max() > 0.95 else found


def confident_in_a_tree(tree: Any, rng: Any) -> list[int]:
    """Keep the first child where the draft is almost sure of it."""
    first = tree.children(0)[0]
    x = int(tree.tokens[first])
    return [x] if tree.draft[0][x] > 0.98 else trees.recursive(tree, rng)


def clamped_residual(p: Any, q: Any, drafts: Any, rng: Any) -> Any:
    """Clamp the residual of a batch of blocks of one draft at 1e-3."""
    size, _, num_tokens = p.shape
    x, every = drafts[:, 0], np.arange(size)
    kept = rng.random(size) * p[every, 0, x] < q[every, 0, x]
    rest = np.maximum(q[:, 0] - p[:, 0], 1e-3)
    again = (rest / rng.exponential(size=(size, num_tokens))).argmax(axis=1)
    bonus = (q[:, 1] / rng.exponential(size=(size, num_tokens))).argmax(axis=1)
    return np.stack([np.where(kept, x, again), np.where(kept, bonus, -1)], axis=1)


def rows_of_others(p: Any, q: Any, drafts: Any, rng: Any) -> Any:
    """Verify a batch of blocks of one draft, and give each row the answer to the one before it."""
    size, _, num_tokens = p.shape
    x, every = drafts[:, 0], np.arange(size)
    kept = rng.random(size) * p[every, 0, x] < q[every, 0, x]
    rest = np.maximum(q[:, 0] - p[:, 0], 0.0)
    again = (rest / rng.exponential(size=(size, num_tokens))).argmax(axis=1)
    bonus = (q[:, 1] / rng.exponential(size=(size, num_tokens))).argmax(axis=1)
    found = np.stack([np.where(kept, x, again), np.where(kept, bonus, -1)], axis=1)
    return np.roll(found, 1, axis=0)


def residual_before_temperature(
    p: Any, q: Any, drafts: Any, uniforms: Any, temperature: float
) -> int:
    """Draw again from the residual of the laws at temperature 1."""
    hot = [otm.from_logits(row, temperature=temperature) for row in (p, q)]
    plain = [otm.from_logits(row) for row in (p, q)]
    x = drafts[0]
    if uniforms[0] * hot[0][x] < hot[1][x]:
        return int(x)
    rest = np.maximum(plain[1] - plain[0], 0.0)
    return drawn(rest if rest.any() else plain[1], uniforms[-1])


GAPS: tuple[Case, ...] = (
    Case("temperatures above 1 are 1", on_laws(rejection, lambda heat: min(heat, 1.0))),
    Case("temperatures below .5 are 0", on_laws(rejection, lambda heat: heat * (heat >= 0.5))),
    Case("residual before temperature", audit.LogitCandidate(residual_before_temperature)),
    Case("five drafts", with_five_drafts),
    Case("blocks of four", block_of_four),
    Case("drafts beyond the fifth", beyond_five),
    Case("last row of a batch", last_row_kept),
    Case("batches of one row", one_row_kept),
    Case("one coin for all rows", coin_for_all_rows),
    Case("target above .92", confident_target),
    Case("draft between .985 and .995", confident_draft),
    Case("1e-3 more for a sure target", slightly_confident),
    Case("sure below the root", confident_below_the_root),
    Case("sure draft in a tree", confident_in_a_tree),
    Case("nearly equal laws", nearly_equal),
    Case("equal in float32", equal_in_float32, "rounding"),
    Case("residual and 1e-8", padded_residual, "not exact"),
    Case("raises on zeros", raises_on_zeros, "raised"),
    Case("residual clamped at 1e-3", audit.BlockBatchCandidate(clamped_residual)),
    Case("rows of others", audit.BlockBatchCandidate(rows_of_others)),
    Case("one uniform at all positions", blocks.one_uniform_for_all_positions),
)
"""Broken verifiers, with what an audit says as it comes."""


def sorted_residual(p: Any, q: Any, drafts: Any, uniforms: Any) -> int:
    """Draw from the residual in descending order."""
    x = drafts[0]
    if uniforms[0] * p[x] < q[x]:
        return int(x)
    rest = np.maximum(q - p, 0.0)
    order = np.argsort(-rest, kind="stable")
    return int(order[drawn(rest[order], uniforms[-1])])


def complement(p: Any, q: Any, drafts: Any, uniforms: Any) -> int:
    """Use 1 − u wherever others use u."""
    return rejection(p, q, drafts, 1.0 - uniforms)


def alias_table(p: Any, q: Any, drafts: Any, uniforms: Any) -> int:
    """Draw from the residual by an alias table."""
    x = drafts[0]
    if uniforms[0] * p[x] < q[x]:
        return int(x)
    rest = np.maximum(q - p, 0.0)
    size = len(rest)
    share = (rest * size / rest.sum()).tolist()
    other = list(range(size))
    small = [i for i in range(size) if share[i] < 1]
    large = [i for i in range(size) if share[i] >= 1]
    while small and large:
        i, j = small.pop(), large[-1]
        other[i] = j
        share[j] -= 1 - share[i]
        if share[j] < 1:
            small.append(large.pop())
    place = uniforms[-1] * size
    for i in range(size):
        if place < i + 1:
            return i if i in large + small or place < i + share[i] else other[i]
    return size - 1


def target_race(p: Any, q: Any, drafts: Any, uniforms: Any) -> int:
    """Write the target's own sample, by a race."""
    return int(np.argmin(np.random.exponential(size=len(q)) / np.maximum(q, 1e-300)))  # noqa: NPY002 (audited code may use it)


def coin_again(p: Any, q: Any, drafts: Any, uniforms: Any) -> int:
    """Draw from the residual with what the rejected coin has left."""
    x = drafts[0]
    accepted = min(1.0, q[x] / p[x])
    if uniforms[0] < accepted:
        return int(x)
    return drawn(np.maximum(q - p, 0.0), (uniforms[0] - accepted) / (1.0 - accepted))


def until_one_survives(p: Any, q: Any, drafts: Any, uniforms: Any) -> int:
    """Draw from the residual by proposals of the target, until one is kept."""
    x = drafts[0]
    if uniforms[0] * p[x] < q[x]:
        return int(x)
    rng = np.random.default_rng()
    while True:
        y = int(rng.choice(len(q), p=q))
        if rng.random() * q[y] < q[y] - p[y]:
            return y


def shuffled_rows(p: Any, q: Any, drafts: Any, rng: Any) -> Any:
    """Verify the rows of a batch in a random order."""
    order = rng.permutation(len(drafts))
    found = np.empty(len(drafts), dtype=int)
    found[order] = rows(p, q, drafts[order], rng)
    return found


def seeded_by_the_uniform(p: Any, q: Any, drafts: Any, uniforms: Any) -> int:
    """Draw from a generator that a uniform seeds."""
    rng = np.random.default_rng(int(float(uniforms[0]) * 2**32))
    return rejection(p, q, drafts, rng.random(len(drafts) + 1))


def in_logarithms(p: Any, q: Any, drafts: Any, uniforms: Any) -> int:
    """Compare logarithms."""
    x = drafts[0]
    if np.log(uniforms[0]) < np.log(q[x]) - np.log(p[x]):
        return int(x)
    return drawn(np.maximum(q - p, 0.0), uniforms[-1])


def gumbel_residual(p: Any, q: Any, drafts: Any, uniforms: Any) -> int:
    """Draw from the residual by Gumbel noise."""
    x = drafts[0]
    if uniforms[0] * p[x] < q[x]:
        return int(x)
    rest = np.maximum(q - p, 0.0)
    with np.errstate(divide="ignore"):
        weights = np.log(rest)
    return int(np.argmax(weights + np.random.gumbel(size=len(rest))))  # noqa: NPY002 (audited code may use it)


def clamped_gumbel(p: Any, q: Any, drafts: Any, uniforms: Any) -> int:
    """Draw from the residual by Gumbel noise that is kept from infinity, as engines do."""
    x = drafts[0]
    if uniforms[0] * p[x] < q[x]:
        return int(x)
    rest = np.maximum(q - p, 0.0)
    noise = -np.log(np.random.random(len(rest)) + 1e-10)  # noqa: NPY002 (audited code may use it)
    return int(np.argmax(rest / noise))


def of_python(p: Any, q: Any, drafts: Any, uniforms: Any) -> int:
    """Draw from Python's `random`."""
    x = drafts[0]
    if random.random() * p[x] < q[x]:
        return int(x)
    rest = np.maximum(q - p, 0.0)
    return random.choices(range(len(q)), weights=rest.tolist())[0]


def from_the_top(p: Any, q: Any, drafts: Any, uniforms: Any) -> int:
    """Draw from the residual from its last token on."""
    x = drafts[0]
    if uniforms[0] * p[x] < q[x]:
        return int(x)
    return len(q) - 1 - drawn(np.maximum(q - p, 0.0)[::-1], uniforms[-1])


def of_torch(draft: Any, target: Any, drafts: Any, uniforms: Any) -> list[int]:
    """Verify a block on tensors, with torch's own draws."""
    import torch

    p, q = torch.as_tensor(draft), torch.as_tensor(target)
    found: list[int] = []
    for i, x in enumerate(drafts.tolist()):
        if torch.rand(()) < torch.clamp(q[i, x] / p[i, x], max=1.0):
            found.append(x)
            continue
        rest = torch.clamp(q[i] - p[i], min=0.0)
        return [*found, int(torch.multinomial(rest / rest.sum(), 1))]
    return [*found, int(torch.multinomial(q[len(drafts)], 1))]


LOSSLESS, NOTHING = "lossless", "no difference found"

ODD: tuple[Case, ...] = (
    Case("sorted residual", sorted_residual, LOSSLESS),
    Case("complement of the uniform", complement, LOSSLESS),
    Case("alias table", alias_table, LOSSLESS),
    Case("sample and match", one_token.sample_and_match, LOSSLESS),
    Case("the target's own race", target_race, LOSSLESS),
    Case("rejected coin used again", coin_again, LOSSLESS),
    Case("proposals until one survives", until_one_survives, NOTHING),
    Case("shuffled rows", shuffled_rows, NOTHING),
    Case("generator seeded by the uniform", seeded_by_the_uniform, NOTHING),
    Case("logarithms", in_logarithms, LOSSLESS),
    Case("Gumbel residual", gumbel_residual, LOSSLESS),
    Case("Gumbel noise and 1e-10", clamped_gumbel, LOSSLESS),
    Case("Python's random", of_python, LOSSLESS),
    Case("residual from the top", from_the_top, LOSSLESS),
    Case("torch block", of_torch, LOSSLESS),
    Case("chain", blocks.chain, LOSSLESS),
)
"""Lossless code of odd shapes, with what an audit says as it comes."""
