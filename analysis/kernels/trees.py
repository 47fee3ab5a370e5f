"""Trees of distinct children: recursive rejection, with draft probabilities, from the root down.

The children of a node were drawn one after the other, each from what its elder siblings leave of
the node's draft law, over what is left. The rule at a node is `otm.RecursiveRejection`, the scheme
`otm.sequence.Gsd`, which say why it is lossless.

No row is written ("Residuals along a path" in docs/theory.md): after any rejections r is (q − c p)₊
over its sum Z, 0 at what was rejected, and p has the mass R off that. One more rejection adds Z/R
to c.
"""

from __future__ import annotations

import torch

from .step import Tensor, Verified, can_be_drawn, decided
from .vocabulary import Excess, Over, TorchRows


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
    over: Over = TorchRows,
) -> Verified:
    """Try the children of a node in turn, go on at the first that is accepted, else draw.

    A child x is accepted with u < r(x)/p(x), r = q at first. After a rejection r becomes (r − p)₊
    and p loses x, each over its sum. Of sure children, as trees of likeliest tokens have them, each
    is all that p has: r loses what is rejected, and the text is as if the target's own sample went
    on while it is drafted.

    Args:
        candidates: `(B, n)` int64, the nodes' tokens, node 0 the root; −1 where there is no draft.
        next_token, next_sibling: `(B, n)` int64, each node's first child and the sibling drawn
            after it; −1 where there is none.
        target: `(B, n, V)` float32 or float64, the target's next-token probabilities after each
            node.
        draft: `(B, m, V')` of the target's type, V' ≤ V, the probabilities by which the children
            of nodes 0..m − 1 were drawn; None if each draft was sure.
        uniforms: `(B, n)` float32 or float64 in [0, 1); column i − 1 tests node i.
        final: `(B,)` float32 or float64 in [0, 1), draws the token after the accepted drafts.
        depth: D, drafts that can be accepted at most.
        over: makes the rows: `TorchRows`, or others of `analysis.kernels.vocabulary.Rows`.
    """
    sure = draft is None
    both = over(target, torch.zeros_like(target[:, :1]) if sure else draft, candidates)
    place, level = (
        torch.arange(number, device=candidates.device)
        for number in (candidates.shape[1], depth + 1)
    )
    path = torch.zeros_like(candidates[:, :1]).expand(-1, depth + 1)
    kept, at, cursor = path[:, 0], path[:, :1], next_token[:, :1]
    sound = torch.ones_like(kept, dtype=torch.bool)
    tried = torch.zeros_like(candidates, dtype=torch.bool)
    one = torch.ones_like(uniforms[:, :1], dtype=torch.float64)
    taken, mass, rest = 0.0 * one, one, one
    for _ in range(candidates.shape[1] - 1):
        node = cursor.clamp(min=0)
        token = candidates.gather(1, node)
        live = (cursor >= 0) & (token >= 0) & (kept[:, None] < depth)
        again = (tried & (candidates == token)).any(dim=1, keepdim=True)
        q, p = both.entries(at, token.clamp(min=0))
        q, p = (torch.where(again, 0.0, q), one) if sure else (q, torch.where(again, 0.0, p))
        sound = sound & (can_be_drawn(p, q) | live.logical_not())[:, 0]
        asked = uniforms.gather(1, (node - 1).clamp(min=0)) * mass * p
        passed = live & (asked < (q - taken * p).clamp(min=0.0) * rest)
        failed = live & passed.logical_not()
        more = taken if sure else taken + mass / rest
        left = (mass - q).clamp(min=0.0) if sure else both.left(at, more)
        # without any excess only rounding rejected the child
        moved = failed & (left != 0.0)
        taken = torch.where(passed, 0.0, torch.where(moved, more, taken))
        mass = torch.where(passed, 1.0, torch.where(moved, left, mass))
        tried = (tried & passed.logical_not()) | (failed & (place == node))
        if not sure:
            rest = torch.where(failed, both.rest(at, candidates, tried), rest)
            rest = torch.where(passed, 1.0, rest)
        at = torch.where(passed, node, at)
        kept = kept + passed[:, 0]
        path = torch.where(passed & (level == kept[:, None]), node, path)
        onward = torch.where(passed, next_token.gather(1, node), next_sibling.gather(1, node))
        cursor = torch.where(live, onward, -1)
    ended = both.without(at, candidates, tried) if sure else Excess.after(at, taken)
    after, total = both.draw(ended, final)
    return decided(path, candidates.gather(1, path[:, 1:]), kept, after, total, sound)
