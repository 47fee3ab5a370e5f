"""Block K-SEQ of K drafted sequences per request: the first that keeps a token as a block.

The rule is that of `otm.sequence.BlockKSeq`, which says why it is lossless at γ*. For any γ from
there on a sequence passes, beginning with y, with probability min(p, q/γ), and goes on by the
target's law; they sum to β, so that one of K passes by c min(p, q/γ), c = (1 − (1 − β)^K)/β ≤ γ.
What is left of q is drawn from where none does: q − c min(p, q/γ), (q − γ* p)₊ at γ*.
"""

from __future__ import annotations

import torch

from .chain import Chain
from .step import Tensor, Verified
from .vocabulary import TorchRows

_HALVINGS = 26
"""Halvings of [1, K]; the upper end is taken, lossless as γ* is: 2⁻²⁶ K above it costs as little
acceptance."""


def block_kseq(
    candidates: Tensor,
    paths: Tensor,
    target: Tensor,
    draft: Tensor,
    uniforms: Tensor,
    final: Tensor,
) -> Verified:
    """Verify K i.i.d. sequences in turn as blocks that begin with weight 1/γ*.

    Args:
        candidates: `(B, n)` int64, the nodes' tokens, node 0 the root; −1 where there is no draft.
        paths: `(B, K, L)` int64, the nodes of each sequence. A sequence may end early, with −1 as
            candidate, where a rule for its own tokens ends it, or one for all sequences.
        target: `(B, n, V)` float32 or float64, the target's next-token probabilities after each
            node.
        draft: `(B, m, V')` of the target's type, V' ≤ V, the probabilities by which the children
            of nodes 0..m − 1 were drawn.
        uniforms: `(B, n)` float32 or float64 in [0, 1); column i − 1 tests node i.
        final: `(B,)` float32 or float64 in [0, 1), draws the token after the accepted drafts.
    """
    both = TorchRows(target, draft, candidates)
    gamma, share = division(both.draft[:, 0], target[:, 0], paths.shape[1])
    start = 1.0 / gamma
    kept, weight = torch.zeros_like(candidates[:, 0]), start
    sound = torch.ones_like(kept, dtype=torch.bool)
    chosen = torch.nn.functional.pad(paths[:, 0], (1, 0))
    for path in paths.unbind(dim=1):
        way = torch.nn.functional.pad(path, (1, 0))
        tested = torch.nn.functional.pad(uniforms.gather(1, path - 1), (0, 1))
        here, passing, fine = Chain.of(candidates, way, both).longest_passing(tested, start)
        open_ = kept == 0
        sound = sound & (fine | open_.logical_not())
        chosen = torch.where(open_[:, None], way, chosen)
        weight = torch.where(open_, passing, weight)
        kept = torch.where(open_, here, kept)
    share = torch.where(kept > 0, 1.0, share)
    return Chain.of(candidates, chosen, both).ended(kept, weight, final, sound, share)


def division(draft: Tensor, target: Tensor, num_drafts: int) -> tuple[Tensor, Tensor]:
    """Return γ, at least and nearly γ*, and c/γ, `(B,)` each in float64.

    Args:
        draft, target: `(B, V)` float32 or float64, the rows p and q.
        num_drafts: K.
    """
    p, q = draft.double(), target.double()
    low = torch.ones_like(p[:, :1])
    high = num_drafts * low

    def passing(gamma: Tensor) -> tuple[Tensor, Tensor]:
        each = torch.minimum(p, q / gamma).sum(dim=-1, keepdim=True)
        return each, 1.0 - (1.0 - each) ** num_drafts

    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        each, any_ = passing(middle)
        above = any_ > middle * each
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    each, any_ = passing(high)
    # a NaN in a row stays one
    share = torch.where(each == 0.0, 1.0, any_ / (high * each))
    return (high + 0.0 * each)[:, 0], share.clamp(max=1.0)[:, 0]
