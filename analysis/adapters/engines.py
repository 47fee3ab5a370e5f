"""Templates: an engine's verification kernel in the audit's signature.

An engine's kernel verifies a batch of rows, with randomness of its own, from tensors on its device;
the audit wants a function of (draft, target, drafts, rng). Write the lambda that calls your kernel,
and pass the result to `otm.audit.battery`, which audits all γ + 1 tokens of batches with different
rows; exactly where the kernel takes its uniforms as an argument.

vLLM (v1)::

    RejectionSampler.forward(metadata: SpecDecodeMetadata, draft_probs: Tensor | None,
                             target_logits: Tensor,
                             bonus_token_ids: Tensor, sampling_metadata: SamplingMetadata) -> Tensor

with draft_probs and target_logits flattened over requests, `(num_tokens, vocab_size)`,
bonus_token_ids `(batch_size, 1)` sampled by the caller, and the output `(batch_size, max_spec_len +
1)` padded with −1. (Newer versions take one `logits` with the bonus rows among the target's.)

FlashInfer::

    flashinfer.sampling.chain_speculative_sampling(draft_probs, draft_token_ids, target_probs,
        maybe_output_accepted_token_num=None, maybe_output_emitted_draft_token_num=None,
        deterministic=True, generator=None) -> (output_token_ids, output_accepted_token_num,
        output_emitted_draft_token_num)

with draft_probs `(batch, γ, V)`, target_probs `(batch, γ+1, V)`, output `(batch, γ+1)` padded with
−1. Older versions take `uniform_samples` `(batch, γ+1)` as third argument, and can be audited
exactly. Its "accepted" counts every position that would pass by itself, also after a rejection;
"emitted" counts those before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from otm.audit import BlockBatchCandidate, BlockCandidate

Kernel = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Generator], torch.Tensor]
"""kernel(draft (B, γ, V), draft_token_ids (B, γ), target (B, γ+1, V), generator) -> output ids (B,
γ+1), −1 padded; draft and target are probabilities, or logits.
"""


def from_probability_kernel(
    kernel: Kernel, *, name: str, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> BlockBatchCandidate:
    """Wrap a kernel of FlashInfer's kind as a candidate for `otm.audit.battery`.

    All γ + 1 tokens are audited jointly, in batches whose rows have different laws and stop at
    different places: a bonus token from the wrong row, or a row that another one stops, shows.
    `otm.audit.sampled_blocks` takes the candidate, too.

    Args:
        kernel: as `Kernel`, of probabilities.
        name: for the report.
        device, dtype: of the tensors that the kernel gets.

    Returns:
        BlockBatchCandidate.

    Example for FlashInfer::

        from_probability_kernel(
            lambda p, x, q, generator: chain_speculative_sampling(
                p, x.int(), q, generator=generator
            )[0],
            name="flashinfer",
            device="cuda",
        )
    """

    def verify(draft: Any, target: Any, drafts: Any, rng: np.random.Generator) -> Any:
        p, q = (torch.from_numpy(laws).to(device=device, dtype=dtype) for laws in (draft, target))
        generator = torch.Generator(device=device).manual_seed(int(rng.integers(2**62)))
        ids = torch.from_numpy(np.ascontiguousarray(drafts)).to(device)
        return kernel(p, ids, q, generator).cpu().numpy()

    return BlockBatchCandidate(verify, name=name)


def from_logit_kernel(
    kernel: Kernel, *, name: str, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> BlockBatchCandidate:
    """Wrap a kernel of vLLM's kind, logits to tokens, as a candidate for `otm.audit.battery`.

    Audit it with the temperature, top-k and top-p of your service inside the kernel, against a
    problem whose target is *your own* processing of the same logits: faults of processing are the
    commonest and a test at temperature 1 does not see them.

    Args:
        kernel: as `Kernel`, of logits; these are log-probabilities, −∞ where the problem's
            probability is 0.
        name, device, dtype: as for `from_probability_kernel`.

    Example for vLLM: build `SpecDecodeMetadata.make_dummy(draft_ids.tolist(), device)`, a
    `SamplingMetadata` with your settings, and bonus_token_ids sampled from the last row; flatten
    the others to `(B·γ, V)`; return the sampler's output ids.
    """
    return from_probability_kernel(
        lambda p, x, q, generator: kernel(p.log(), x, q.log(), generator),
        name=name,
        device=device,
        dtype=dtype,
    )


def from_uniform_kernel(
    kernel: Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor],
    *,
    name: str,
    device: str = "cpu",
    dtype: torch.dtype = torch.float64,
) -> BlockCandidate:
    """Wrap a kernel that takes uniforms as a block candidate for the exact modes.

    Args:
        kernel: kernel(draft_probs (1, γ, V), draft_token_ids (1, γ), target_probs (1, γ+1, V),
            uniforms (1, γ+1)) -> ids (1, γ+1).
        name, device: as for `from_probability_kernel`.
        dtype: float32 kernels need `tolerance=otm.audit.rounding_tolerance(…,
            unit_roundoff=2**-24)`.

    Returns:
        BlockCandidate for `otm.audit.sequence`; a compiled kernel is probed, torch code is traced
        if its numbers stay tensors.
    """

    def verify(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
        rows = [np.asarray(draft), np.asarray(target), np.asarray(uniforms, dtype=np.float64)]
        p, q, u = (torch.from_numpy(row).to(device=device, dtype=dtype)[None] for row in rows)
        ids = torch.from_numpy(np.asarray(drafts, dtype=np.int64)).to(device)[None]
        return kernel(p, ids, q, u)[0].cpu().numpy()

    return BlockCandidate(verify, name=name)
