"""Block K-SEQ of K drafted sequences per request: the first that keeps a token as a block.

The rule is that of `otm.sequence.BlockKSeq`, which says why it is lossless.
"""

from __future__ import annotations

import torch

from .chain import Chain
from .step import Tensor, Verified, drafted_by, rows

_HALVINGS = 26
"""Of [1, K], from which the upper end is taken: any division factor from the best one on is
lossless, and what is above it by 2⁻²⁶ K costs as little."""


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
        candidates, target, draft, uniforms, final: as `analysis.kernels.step` has them.
        paths: `(B, K, L)` int64, the nodes of each sequence. A sequence may end early, with −1 as
            candidate, where a rule for its own tokens ends it, or one for all sequences.
    """
    p = drafted_by(draft, candidates, target)
    start = 1.0 / division_factor(p[:, 0], target[:, 0], paths.shape[1])
    kept, weight = torch.zeros_like(candidates[:, 0]), start
    sound = torch.ones_like(kept, dtype=torch.bool)
    chosen = torch.nn.functional.pad(paths[:, 0], (1, 0))
    for path in paths.unbind(dim=1):
        way = torch.nn.functional.pad(path, (1, 0))
        chain = Chain.of(candidates.gather(1, way), rows(target, way), rows(p, way[:, :-1]))
        tested = torch.nn.functional.pad(uniforms.gather(1, path - 1), (0, 1))
        here, passing, fine = chain.longest_passing(tested, start)
        open_ = kept == 0
        sound = sound & (fine | open_.logical_not())
        chosen = torch.where(open_[:, None], way, chosen)
        weight = torch.where(open_, passing, weight)
        kept = torch.where(open_, here, kept)
    taken = Chain.of(candidates.gather(1, chosen), rows(target, chosen), rows(p, chosen[:, :-1]))
    return taken.ended(kept, weight, final, sound).along(chosen)


def division_factor(draft: Tensor, target: Tensor, num_drafts: int) -> Tensor:
    """Return γ*, 1 − (1 − β)^K = γ* β with β = Σ min(p, q/γ*), of rows `(B, V)`, float64."""
    p, q = draft.double(), target.double()
    low = torch.ones_like(p[:, :1])
    high = num_drafts * low
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        held = torch.minimum(middle * p, q).sum(dim=-1, keepdim=True)
        above = 1.0 - (1.0 - held / middle) ** num_drafts > held
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    # a NaN in a row stays one
    return (high + 0.0 * held)[:, 0]
