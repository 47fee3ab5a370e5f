"""Verify drafted blocks in torch, any batch size: what the textbook listing sets out to do.

Rows are independent: each stops at its own first rejection, takes its own replacement, and gets a
bonus token only if all of its drafts were accepted. No Python loop over rows or positions, no
synchronisation with the host.
"""

from __future__ import annotations

import torch

from ..errors import AnalysisError


def verify_blocks(
    *, draft: torch.Tensor, target: torch.Tensor, drafts: torch.Tensor, uniforms: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Verify drafted blocks by speculative sampling, row by row.

    Draft i is kept while u_i·p_i(x_i) < q_i(x_i). The token at the first failure j is drawn from
    (q_j − p_j)₊ with the last uniform, or from q_γ if there is none.

    Args:
        draft: p `(B, γ, V)`, the laws that the drafts were drawn from.
        target: q `(B, γ+1, V)`, the laws after the context and after each draft.
        drafts: x `(B, γ)`, integer tokens.
        uniforms: `(B, γ+1)`, independent and uniform on [0, 1).

    Returns:
        Tokens `(B, γ+1)`, −1 after the end of a row's output; and the number of accepted drafts
        `(B,)`, which counts neither the replacement nor the bonus token: row b has `accepted[b] +
        1` tokens.

    Raises:
        AnalysisError: if the shapes do not fit.

    Cost: O(B·γ + B·V) after the inputs are read; one pass over one row of each law per block.
    Reference: Leviathan et al. 2023, Algorithm 1; Chen et al. 2023, Algorithm 2.
    """
    batch, gamma = _check_shapes(draft, target, drafts, uniforms)
    index = drafts.long()
    chosen = [law[:, :gamma].gather(-1, index[..., None])[..., 0] for law in (draft, target)]
    # Strict, so that a token of target probability 0 is never kept, not even by a uniform that is
    # exactly 0.
    kept = uniforms[:, :gamma] * chosen[0] < chosen[1]
    accepted = kept.long().cumprod(dim=-1).sum(dim=-1)
    token = _draw(_replacement_weights(draft, target, accepted), uniforms[:, gamma:])
    position = torch.arange(gamma + 1, device=index.device).expand(batch, -1)
    stop = accepted[:, None]
    nothing = index.new_full((batch, 1), -1)
    tokens = torch.where(
        position < stop,
        torch.cat([index, nothing], dim=-1),
        torch.where(position == stop, token, nothing),
    )
    return tokens, accepted


def _check_shapes(
    draft: torch.Tensor, target: torch.Tensor, drafts: torch.Tensor, uniforms: torch.Tensor
) -> tuple[int, int]:
    batch, gamma = drafts.shape if drafts.ndim == 2 else (0, 0)
    num_tokens = draft.shape[-1]
    wanted = {
        "draft": (batch, gamma, num_tokens),
        "target": (batch, gamma + 1, num_tokens),
        "uniforms": (batch, gamma + 1),
    }
    given = {
        "draft": tuple(draft.shape),
        "target": tuple(target.shape),
        "uniforms": tuple(uniforms.shape),
    }
    if wanted != given or gamma < 1:
        raise AnalysisError(
            "Blocks need drafts (B, γ) with γ ≥ 1, draft (B, γ, V), target (B, γ+1, V) and "
            "uniforms (B, γ+1); got drafts "
            f"{tuple(drafts.shape)} with {given}. Pass the target's row after the last draft as "
            "well."
        )
    return batch, gamma


def _replacement_weights(
    draft: torch.Tensor, target: torch.Tensor, accepted: torch.Tensor
) -> torch.Tensor:
    """Return (q − p)₊ at each row's stop `(B, V)`, with p = 0 after the last draft."""
    gamma, num_tokens = draft.shape[1:]
    row = accepted[:, None, None].expand(-1, 1, num_tokens)
    wanted = target.gather(1, row)[:, 0]
    drafted = draft.gather(1, row.clamp_max(gamma - 1))[:, 0]
    drafted = torch.where((accepted < gamma)[:, None], drafted, torch.zeros_like(drafted))
    weights = (wanted - drafted).clamp_min(0.0)
    # p = q up to rounding can reject by its last bit and leave no residual; q is then the
    # residual's limit.
    return torch.where(weights.sum(dim=-1, keepdim=True) > 0, weights, wanted)


def _draw(weights: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """Return a token `(B, 1)` of positive weight, by inversion."""
    cumulative = weights.cumsum(dim=-1)
    total = cumulative[:, -1:].contiguous()
    found = torch.searchsorted(cumulative, uniform.contiguous() * total, right=True)
    # Where rounding takes the product up to the total, the last token with weight is meant, not the
    # last of the vocabulary.
    last = torch.searchsorted(cumulative, total, right=False)
    return torch.minimum(found, last)
