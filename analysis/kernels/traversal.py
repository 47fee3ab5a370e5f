"""Traversal verification of drafted trees, from the leaves to the root.

The rule is that of `otm.sequence.TraversalVerification`, which says why it is lossless: a vertex is
given up only after all that hangs below it. So vertices are left in post-order, which links tell
beforehand, and whatever is decided, one comes after the other. On arrival no row is read: down a
line of first children, weights are those of its first vertex times ratios q/p of the models.

No row is written ("What a vertex keeps" in docs/theory.md): a parent's q is (q − c p)₊ over its sum
Z once children were left, 0 at these, as a child of weight 1 never is left; and its p has the mass
R off these. One more that is left adds Z/(w R) to c.
"""

from __future__ import annotations

import dataclasses

import torch

from .step import Tensor, Verified, can_be_drawn, decided
from .vocabulary import Excess, Over, TorchRows

_LEAST, _MOST = 1e-150, 1e150
"""Weights, masses and ratios q/p beyond which decide nothing: products of two are numbers still."""

_NORMAL = torch.finfo(torch.float64).tiny


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
    over: Over = TorchRows,
) -> Verified:
    """Accept the path to the first vertex in post-order that passes, or the root alone.

    A vertex passes with u < w. A child x arrives with min(1, w q(x)/p(x)). Once it is left, w is
    Z/(Z + 1 − w) with Z = Σ (w q − p)₊, q that excess over its sum, and p has lost x.

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
        depth: D, the levels of the tree.
        distinct: whether p loses x; if not, siblings are independent.
        over: makes the rows: `TorchRows`, or others of `analysis.kernels.vocabulary.Rows`.
    """
    walk = _Walk.of(candidates, next_token, next_sibling)
    sure, token = draft is None, candidates.clamp(min=0)
    losing = distinct and not sure
    both = over(target, torch.zeros_like(target[:, :1]) if sure else draft, token)
    wanted, drawn = (one.double() for one in both.entries(walk.parent, token))
    if sure:
        drawn = torch.ones_like(drawn)
    most, gain = walk.along_lines(_ratio(wanted, drawn), depth)
    first = mass = rest = torch.ones_like(most)
    after, taken = torch.full_like(most, torch.nan), 0.0 * mass
    changed = gone = torch.zeros_like(candidates, dtype=torch.bool)
    place = torch.arange(candidates.shape[1], device=candidates.device)
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
        held, z, c, r = weight(above), *(one.gather(1, above) for one in (mass, taken, rest))
        # what siblings leave of p may be tiny, and is then all that the next one is drawn from
        more = c if sure else c + z / (held.clamp(min=_LEAST) * r).clamp(min=_NORMAL)
        rested = (z - wanted.gather(1, at)).clamp(min=0.0) if sure else both.left(above, more)
        room = held * rested / z
        held = torch.where(held < 1.0, room / (room + 1.0 - held), 1.0 + 0.0 * room)
        # without any excess the models agree, and only rounding left the child; a NaN moves on
        moved = left & (torch.minimum(room, rested) <= _LEAST).logical_not()
        z, c = torch.where(moved, rested, z), torch.where(moved, more, c)
        gone = gone | (left & (place == at))
        elder = gone & (walk.parent == above)
        r = both.rest(above, token, elder) if losing else r
        after, taken, mass, rest = (
            table.scatter(1, above, torch.where(left, found, table.gather(1, above)))
            for table, found in ((after, held), (taken, c), (mass, z), (rest, r))
        )
        changed = changed.scatter(1, above, changed.gather(1, above) | left)
        younger = walk.younger.gather(1, at)
        # a token that was left has nothing more
        twin = elder & (token == token.gather(1, younger))
        q, p = (
            torch.where(lost & twin.any(dim=1, keepdim=True), 0.0, one.gather(1, younger))
            for lost, one in ((sure, wanted), (losing, drawn))
        )
        wanted, drawn = wanted.scatter(1, younger, q), drawn.scatter(1, younger, p)
        ratio = _ratio((q - c * p).clamp(min=0.0) * r / z, p)
        begins = left & (younger > 0)
        arriving = (held * ratio).clamp(max=1.0)
        first = first.scatter(1, younger, torch.where(begins, arriving, first.gather(1, younger)))
        at = torch.where(left, walk.next.gather(1, at), at)
    path, kept = walk.path(at, depth)
    if sure:
        ended = both.without(at, token, gone & (walk.parent == at))
    else:
        ended = Excess.after(at, taken.gather(1, at))
    drafts = candidates.gather(1, path[:, 1:])
    return decided(path, drafts, kept, *both.draw(ended, final), sound[:, 0])


def _ratio(wanted: Tensor, drawn: Tensor) -> Tensor:
    """Return q(x)/p(x), NaN where x cannot have been drawn."""
    return torch.where(can_be_drawn(drawn, wanted), wanted / drawn, torch.nan).clamp(max=_MOST)


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
        """Build the post-order from links; a candidate of −1 ends the list of siblings."""
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
        """Return the bounds of weights on arrival, and the factors from the top of each line."""
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
