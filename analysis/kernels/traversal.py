"""Traversal verification of drafted trees, from the leaves to the root.

The rule is that of `otm.sequence.TraversalVerification`, which says why it is lossless: a vertex is
given up only after all that hangs below it. So vertices are left in post-order, which links tell
beforehand, and whatever is decided, one comes after the other. A vertex that is left changes what
is kept of its parent, whose rows are all that is read. On arrival no row is: down a line of first
children, weights are those of its first vertex times ratios q/p of the models.
"""

from __future__ import annotations

import dataclasses

import torch

from .step import Tensor, Verified, drafted_by, draw, entries, possible, rows, written


def traversal(
    candidates: Tensor,
    next_token: Tensor,
    next_sibling: Tensor,
    target: Tensor,
    draft: Tensor | None,
    uniforms: Tensor,
    final: Tensor,
    *,
    depth: int,
    distinct: bool = True,
) -> Verified:
    """Accept the first vertex in post-order that passes, with the path to it, else the root.

    A vertex passes with u < w. A child x arrives with min(1, w q(x)/p(x)). Once it is left, w is
    Z/(Z + 1 − w) with Z = Σ (w q − p)₊, q that excess over its sum, and p has lost x.

    Args:
        candidates, target, draft, uniforms, final: as `analysis.kernels.step` has them.
        next_token, next_sibling: `(B, n)` int64, each node's first child and the sibling drawn
            after it; −1 where there is none.
        depth: D, the levels of the tree.
        distinct: whether p loses x; if not, siblings are independent.
    """
    walk = _Walk.of(candidates, next_token, next_sibling)
    token = candidates.clamp(min=0)
    q = target.clone()
    p: Tensor | None = None
    if draft is None:
        drawn = torch.ones_like(uniforms)
    else:
        p = drafted_by(draft, token, target).clone()
        drawn = entries(p, walk.parent.clamp(max=p.shape[1] - 1), token)
    wanted = entries(target, walk.parent, token)
    most, gain = walk.along_lines(_ratio(wanted, drawn), depth)
    first, after = torch.ones_like(most), torch.full_like(most, torch.nan)
    changed = torch.zeros_like(candidates, dtype=torch.bool)
    at = walk.lowest[:, :1]
    sound = torch.ones_like(at, dtype=torch.bool)

    def weight(node: Tensor) -> Tensor:
        arrived = torch.minimum(
            most.gather(1, node), gain.gather(1, node) * first.gather(1, walk.top.gather(1, node))
        )
        return torch.where(changed.gather(1, node), after.gather(1, node), arrived)

    for _ in range(candidates.shape[1] - 1):
        own, above = weight(at), walk.parent.gather(1, at)
        sound = sound & (own.isfinite() | (at == 0))
        left = (at > 0) & (uniforms.gather(1, (at - 1).clamp(min=0)) >= own)
        x, wanted = token.gather(1, at), rows(q, above)[:, 0]
        if p is None:
            drawn = torch.zeros_like(wanted).scatter_(1, x, 1.0)
        else:
            drawn = rows(p, above)[:, 0]
        held = weight(above)
        excess = (held * wanted).sub_(drawn).relu_()
        room = excess.sum(dim=-1, keepdim=True)
        held = torch.where(held < 1.0, room / (room + 1.0 - held), 1.0 + 0.0 * room)
        # without any excess the models agree, and only rounding left the child
        wanted = torch.where(left & (room != 0.0), excess.div_(room), wanted)
        _write(q, above, wanted)
        if p is not None and distinct:
            others = drawn.scatter(1, x, 0.0)
            rest = others.sum(dim=-1, keepdim=True)
            others.div_(torch.where(rest > 0.0, rest, 1.0))
            drawn = torch.where(left, others, drawn)
            _write(p, above, drawn)
        after = after.scatter(1, above, torch.where(left, held, after.gather(1, above)))
        changed = changed.scatter(1, above, changed.gather(1, above) | left)
        younger = walk.younger.gather(1, at)
        x = token.gather(1, younger)
        chance = torch.ones_like(room) if p is None else drawn.gather(1, x)
        arriving = (held * _ratio(wanted.gather(1, x), chance)).clamp(max=1.0)
        begins = left & (younger > 0)
        first = first.scatter(1, younger, torch.where(begins, arriving, first.gather(1, younger)))
        at = torch.where(left, walk.next.gather(1, at), at)
    path, kept = walk.path(at, depth)
    drafts = candidates.gather(1, path[:, 1:])
    mass = rows(q, at)[:, 0]
    return written(path, drafts, kept, draw(mass, final), mass.sum(dim=-1), sound[:, 0])


def _ratio(wanted: Tensor, drawn: Tensor) -> Tensor:
    """Return q(x)/p(x), NaN where x cannot have been drawn."""
    return torch.where(possible(drawn, wanted), wanted / drawn, torch.nan)


def _write(table: Tensor, nodes: Tensor, found: Tensor) -> None:
    """Write rows `(B, V)` to a table `(B, n, V)` at nodes `(B, 1)`."""
    height = table.shape[1]
    first = torch.arange(0, len(table) * height, height, device=nodes.device)
    table.view(-1, table.shape[-1]).index_copy_(0, nodes[:, 0] + first, found)


@dataclasses.dataclass(frozen=True)
class _Walk:
    """A tree in post-order; all `(B, n)` int64, and 0, the root, where there is none.

    Attributes:
        parent: of each node.
        younger: the sibling that was drafted after it.
        next: the node that is left after it.
        lowest: the first node of its subtree that is left.
        top: where its line of first children begins.
    """

    parent: Tensor
    younger: Tensor
    next: Tensor
    lowest: Tensor
    top: Tensor

    @classmethod
    def of(cls, candidates: Tensor, next_token: Tensor, next_sibling: Tensor) -> _Walk:
        """Follow the links; −1 as a candidate ends the list of its siblings."""
        place = torch.arange(candidates.shape[1], device=candidates.device).expand_as(candidates)

        def ends(pointer: Tensor) -> Tensor:
            for _ in range(candidates.shape[1].bit_length()):
                pointer = pointer.gather(1, pointer)
            return pointer

        def inverse(link: Tensor) -> Tensor:
            # a column more for what is linked to nothing
            to = torch.where(link > 0, link, link.shape[1])
            wide = torch.zeros_like(torch.nn.functional.pad(link, (0, 1)))
            return wide.scatter(1, to, place)[:, :-1]

        elder, above = inverse(next_sibling), inverse(next_token)
        eldest = ends(torch.where(elder > 0, elder, place))
        parent = above.gather(1, eldest)
        live, before = (candidates >= 0) | (place == 0), elder + above
        for _ in range(candidates.shape[1].bit_length()):
            live, before = live & live.gather(1, before), before.gather(1, before)

        def linked(link: Tensor) -> Tensor:
            to = link.clamp(min=0)
            return torch.where((link > 0) & live.gather(1, to), to, 0)

        child, younger = linked(next_token), linked(next_sibling)
        lowest = ends(torch.where(child > 0, child, place))
        return cls(
            parent,
            younger,
            torch.where(younger > 0, lowest.gather(1, younger), parent),
            lowest,
            ends(torch.where(eldest == place, parent, place)),
        )

    def along_lines(self, ratio: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        """Return by what weights are bounded on arrival, and the factor from the line's top."""
        most = gain = torch.ones_like(ratio)
        inner = self.top != torch.arange(ratio.shape[1], device=ratio.device)
        for _ in range(depth):
            most = torch.where(inner, (ratio * most.gather(1, self.parent)).clamp(max=1.0), 1.0)
            gain = torch.where(inner, ratio * gain.gather(1, self.parent), 1.0)
        return most, gain

    def path(self, end: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        """Return the nodes `(B, D + 1)` from the root to an end `(B, 1)`, and how many drafts."""
        upwards = [end]
        for _ in range(depth):
            upwards.append(self.parent.gather(1, upwards[-1]))
        way = torch.cat(upwards, dim=1)
        kept = (way > 0).sum(dim=1)
        place = torch.arange(depth + 1, device=end.device)
        return way.gather(1, (kept[:, None] - place).clamp(min=0)), kept
