"""Trees of distinct children: recursive rejection, with draft probabilities, from the root down.

The children of a node were drawn one after the other, each from what its elder siblings leave of
the node's draft law, over what is left. The rule at a node is `otm.RecursiveRejection`, the scheme
`otm.sequence.Gsd`, which say why it is lossless.
"""

from __future__ import annotations

import torch

from .step import Tensor, Verified, drafted_by, draw, possible, rows, written


def recursive_rejection(
    candidates: Tensor,
    next_token: Tensor,
    next_sibling: Tensor,
    target: Tensor,
    draft: Tensor | None,
    uniforms: Tensor,
    final: Tensor,
    *,
    depth: int,
) -> Verified:
    """Try the children of a node in turn, go on at the first that is accepted, else draw.

    A child x is accepted with u < r(x)/p(x), r = q at first. After a rejection r becomes (r − p)₊
    and p loses x, each over its sum. Of sure children, as trees of likeliest tokens have them, each
    is all that p has: r loses what is rejected, and the text is as if the target's own sample went
    on while it is drafted.

    Args:
        candidates, target, draft, uniforms, final: as `analysis.kernels.step` has them.
        next_token, next_sibling: `(B, n)` int64, each node's first child and the sibling drawn
            after it; −1 where there is none.
        depth: D, drafts that can be accepted at most.
    """
    size, nodes, _ = target.shape
    p = target if draft is None else drafted_by(draft, candidates, target)
    place = torch.arange(depth + 1, device=candidates.device)
    path = torch.zeros((size, depth + 1), dtype=torch.int64, device=candidates.device)
    kept = path[:, 0]
    sound = torch.ones_like(kept, dtype=torch.bool)
    wanted, drawn = target[:, 0], p[:, 0]
    cursor = next_token[:, :1]
    for _ in range(nodes - 1):
        node = cursor.clamp(min=0)
        token = candidates.gather(1, node)
        live = (cursor >= 0) & (token >= 0) & (kept[:, None] < depth)
        token = token.clamp(min=0)
        if draft is None:
            drawn = torch.zeros_like(wanted).scatter_(1, token, 1.0)
        chances = drawn.gather(1, token), wanted.gather(1, token)
        sound = sound & (possible(*chances) | live.logical_not())[:, 0]
        passed = uniforms.gather(1, (node - 1).clamp(min=0)) * chances[0]
        passed = (passed < chances[1]) & live
        failed = live & passed.logical_not()
        excess = (wanted - drawn).clamp_(min=0.0)
        total = excess.sum(dim=-1, keepdim=True)
        # without any excess only rounding rejected the child
        excess = torch.where(total == 0.0, wanted, excess / total)
        others = drawn.scatter(1, token, 0.0)
        rest = others.sum(dim=-1, keepdim=True)
        others = others / torch.where(rest > 0.0, rest, 1.0)
        own = rows(p, node.clamp(max=p.shape[1] - 1))[:, 0]
        wanted = torch.where(passed, rows(target, node)[:, 0], torch.where(failed, excess, wanted))
        drawn = torch.where(passed, own, torch.where(failed, others, drawn))
        kept = kept + passed[:, 0]
        path = torch.where(passed & (place == kept[:, None]), node, path)
        onward = torch.where(passed, next_token.gather(1, node), next_sibling.gather(1, node))
        cursor = torch.where(live, onward, -1)
    drafts, total = candidates.gather(1, path[:, 1:]), wanted.sum(dim=-1)
    return written(path, drafts, kept, draw(wanted, final), total, sound)
