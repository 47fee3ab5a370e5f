"""The verification of chains with the signature and the outputs of vLLM's `rejection_sample`.

Its Model Runner V2 calls one function after the target's pass. Requests of different lengths stand
one after the other, each with its last token and then its drafts::

    rejection_sample(target_logits, draft_logits, draft_sampled, cu_num_logits, pos, idx_mapping,
      expanded_idx_mapping, expanded_local_pos, temperature, seed, num_speculative_steps, ...)
      -> sampled (R, γ + 1) int64, num_sampled (R,) int32

`target_logits` `(N, V)` are processed, temperature included; `draft_logits` `(S, γ, V')`, one row
of drafts for each of S places of state, are as the model has them, and `temperature` is applied
here. None says that drafts were not drawn. −1 among `draft_sampled` ends a request's drafts.
Temperature 0 keeps drafts while they are the target's first largest logit.

Keys of noise. A block verification looks at later drafts before it ends early, so that its end
tells of them. Where the next step meets the same noise again, texts no longer have the target's law
(docs/theory.md, "Noise by position"). The uniforms of tests belong here to the seed and to the
position at which a step begins. Drafts are the engine's: their noise is keyed there by the seed and
by the draft's own position, which is right token by token, and is refused as a block unless the
caller says that it is keyed by the step as well.

Source: vllm-project/vllm, `vllm/v1/worker/gpu/spec_decode`: `rejection_sampler.py` at 01b2105, and
`rejection_sampler_utils.py` of its time, whose function has watermark keywords; of draft noise
`vllm/v1/worker/gpu/sample/gumbel.py` at 03f97cc (`_DRAFT_NOISE_SALT`) and
`autoregressive/speculator.py` at 0074614 (`sample_src_positions`). No engine was run.
"""

from __future__ import annotations

import torch

from otm.errors import Unsupported

from .chain import block, token_by_token
from .noise import uniform_rows
from .step import Tensor, check_step, drafted_by, probabilities

_STREAM = 1
"""Stream of the uniforms of tests: the noise of drafts may have the same seed."""


def rejection_sample(
    target_logits: Tensor,
    draft_logits: Tensor | None,
    draft_sampled: Tensor,
    cu_num_logits: Tensor,
    pos: Tensor,
    idx_mapping: Tensor,
    expanded_idx_mapping: Tensor,
    expanded_local_pos: Tensor,
    temperature: Tensor,
    seed: Tensor,
    num_speculative_steps: int,
    synthetic_conditional_rates: Tensor | None = None,
    use_fp64: bool = False,
    use_block_verification: bool = False,
    contexts: Tensor | None = None,
    watermarking: Tensor | None = None,
    watermarking_skip_mask: Tensor | None = None,
    watermark_key: int | None = None,
    *,
    draft_noise: str = "position",
) -> tuple[Tensor, Tensor]:
    """Verify every request's drafts, token by token or as a block.

    Args:
        target_logits: `(N, V)` of any floating type, processed, temperature included.
        draft_logits: `(S, γ, V')` of any floating type, by place of state, as the model has them;
            None if drafts were not drawn.
        draft_sampled: `(N,)` of any integer type, each request's last token and its drafts; −1
            ends them.
        cu_num_logits: `(R + 1,)` of any integer type, where requests begin, and the end.
        pos: `(N,)` of any integer type, the positions of `draft_sampled` in their texts.
        idx_mapping: `(R,)` of any integer type, each request's place of state.
        expanded_idx_mapping, expanded_local_pos: not read, they follow from the others.
        temperature: `(S,)` of any floating type.
        seed: `(S,)` int64.
        num_speculative_steps: γ.
        use_fp64: whether sums are in float64.
        use_block_verification: as a block, else token by token.
        synthetic_conditional_rates, contexts: only None.
        watermarking, watermarking_skip_mask, watermark_key: not read without contexts.
        draft_noise: what keys the noise of the drafts beside the seed: "position", as this engine
            has it, or "step", the position and that at which the step begins. Not the engine's.

    Returns:
        The tokens, −1 after the last, and their number; 0 where the request is refused.

    Raises:
        Unsupported: on synthetic rates or watermarks, and where several drafts that were drawn with
            noise by position are verified as a block.
        InvalidParameter, ShapeMismatch: from `analysis.kernels.step.check_step`.
    """
    for name, value in (
        ("synthetic_conditional_rates", synthetic_conditional_rates),
        ("contexts", contexts),
    ):
        if value is not None:
            raise Unsupported(
                f"{name} must be None: synthetic rates are lossy, and a watermark has no rule here;"
                f" got {type(value).__name__}. Leave it out."
            )
    drawn = draft_logits is not None and num_speculative_steps > 1
    if use_block_verification and drawn and draft_noise != "step":
        raise Unsupported(
            "As a block, drafts need noise that is keyed by the step as well: the next step meets "
            f"noise by position again, and is biased; got draft_noise={draft_noise!r}. "
            'Key it by the position at which the step begins, too, and pass draft_noise="step"; or '
            "verify token by token."
        )
    state, first, end = idx_mapping.long(), cu_num_logits[:-1].long(), cu_num_logits[1:].long()
    place = first[:, None] + torch.arange(num_speculative_steps + 1, device=first.device)
    live = place < end[:, None]
    # beyond its end a request has rows of others, which nothing reads
    place = torch.minimum(place, end[:, None] - 1)
    candidates = torch.where(live, draft_sampled[place].long(), -1)
    heat = temperature[state]
    target = probabilities(target_logits[place], (heat != 0.0).float())
    draft = None
    if draft_logits is not None:
        rows = draft_logits[state, :num_speculative_steps, : target.shape[-1]]
        sure = drafted_by(None, candidates[:, 1:], target)
        warm = drafted_by(probabilities(rows, heat), candidates[:, 1:], target)
        draft = torch.where(heat[:, None, None] == 0.0, sure, warm)
    if use_fp64:
        target, draft = target.double(), None if draft is None else draft.double()
    uniforms = uniform_rows(seed[state], pos[first].long(), place.shape[1] + 1, stream=_STREAM)
    given = candidates, target, draft, uniforms[:, :-1], uniforms[:, -1]
    check_step(*given)
    step = (block if use_block_verification else token_by_token)(*given)
    return step.tokens, step.count.int()
