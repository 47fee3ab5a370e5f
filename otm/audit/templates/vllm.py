"""A rejection sampler with the flattened arrays of vLLM: ``otm audit FILE.py``.

`from_rejection_sampler` turns a function of vLLM's kind into what is audited: γ + 1 tokens jointly,
in batches whose rows differ. The bonus token is drawn by the caller, from the last row of the
target, as there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from otm.audit import BlockBatchCandidate


def from_rejection_sampler(
    sampler: Callable[..., Any], *, name: str, tensors: bool = False
) -> BlockBatchCandidate:
    """Return a rejection sampler as a kernel of blocks.

    Args:
        sampler: sampler(draft_token_ids (B·γ,), num_draft_tokens [γ] * B, max_spec_len,
            cu_num_draft_tokens (B,), draft_probs (B·γ, V), target_probs (B·γ, V), bonus_token_ids
            (B, 1), seed) -> (B, γ + 1), −1 after the end of a row.
        name: for the report.
        tensors: whether it takes tensors of torch, float32, instead of arrays.
    """

    def verify(draft: Any, target: Any, drafts: Any, rng: np.random.Generator) -> Any:
        size, gamma, num_tokens = draft.shape
        bonus = (
            target[:, -1].cumsum(axis=1)
            > rng.random((size, 1)) * target[:, -1].sum(axis=1, keepdims=True)
        ).argmax(axis=1)
        flat = (
            draft.reshape(-1, num_tokens),
            target[:, :-1].reshape(-1, num_tokens),
            bonus[:, None],
        )
        ids, ends = drafts.reshape(-1), gamma * np.arange(1, size + 1)
        seed = int(rng.integers(2**31))
        if not tensors:
            return sampler(ids, [gamma] * size, gamma, ends, *flat, seed)
        import torch  # noqa: PLC0415

        p, q = (torch.from_numpy(np.ascontiguousarray(laws)).float() for laws in flat[:2])
        ids, ends, bonus = (
            torch.from_numpy(np.ascontiguousarray(numbers)) for numbers in (ids, ends, flat[2])
        )
        return sampler(ids, [gamma] * size, gamma, ends, p, q, bonus, seed).cpu().numpy()

    return BlockBatchCandidate(verify, name=name)


def sampler(
    ids: Any,
    lengths: list[int],
    longest: int,
    ends: Any,
    draft: Any,
    target: Any,
    bonus: Any,
    seed: int,
) -> np.ndarray[Any, Any]:
    """Put the sampler here; this one is speculative sampling, its recovered token by a race."""
    rng = np.random.default_rng(seed)
    found = np.full((len(lengths), longest + 1), -1)
    recovered = (np.maximum(target - draft, 0.0) / rng.exponential(size=target.shape)).argmax(
        axis=1
    )
    kept = rng.random(len(ids)) * draft[np.arange(len(ids)), ids] < target[np.arange(len(ids)), ids]
    for row, (end, length) in enumerate(zip(ends, lengths, strict=True)):
        for i, place in enumerate(range(end - length, end)):
            found[row, i] = ids[place] if kept[place] else recovered[place]
            if not kept[place]:
                break
        else:
            found[row, length] = bonus[row, 0]
    return found


candidate = from_rejection_sampler(sampler, name="vllm")
