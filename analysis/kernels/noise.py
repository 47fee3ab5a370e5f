"""The tree on shared noise in torch: noise rows, growth, matching, for a batch of requests.

Nothing here asks the host: shapes depend on arguments alone, what there is less of is masked. The
numbers are those of `otm.sequence.SharedNoise` and `otm.sequence.NoiseTree`, which say what they
mean. Per step, with B requests, N nodes, L levels:

    noise = noise_rows(seeds, positions + levels, num_tokens)       (B, L + 1, V), once for both
    nodes = root_only(len(seeds), N, device)
    for level in range(L):
        frontier = nodes.frontier(level, W)                         whom to ask the draft model
        log_p = draft model at the frontier, temperature and filters done       (B, W, V)
        nodes = nodes.extended(frontier, log_p, noise[:, level], scale, level)
    log_q = target at the root and all nodes under nodes.ancestors()            (B, N + 1, V)
    step = nodes.matched(log_q, noise)                              a `Verified`

The sampler of an engine that matches changes in one place: argmax(log_q + noise), with noise of the
seed and of the position, counted from the beginning of the text, not from that of the step.
"""

from __future__ import annotations

import dataclasses

import torch

from .step import Shard, Tensor, Verified

_ROUNDS = 10
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_WEYL = 0x9E3779B9, 0xBB67AE85
_LOW = 0xFFFFFFFF


def noise_rows(seeds: Tensor, positions: Tensor, num_tokens: int) -> Tensor:
    """Return standard Gumbel noise `(..., V)` by seed and position, in float64.

    Args:
        seeds: int64 `(...)`, the 64 bits of a seed; those from 2⁶³ on as negative numbers.
        positions: int64 `(...)`, broadcast against the seeds.
        num_tokens: V.
    """
    return -(-uniform_rows(seeds, positions, num_tokens).log()).log()


def uniform_rows(seeds: Tensor, positions: Tensor, number: int, *, stream: int = 0) -> Tensor:
    """Return uniforms `(..., number)` in (0, 1) by seed, position and stream, in float64.

    Args:
        seeds: int64 `(...)`, the 64 bits of a seed; those from 2⁶³ on as negative numbers.
        positions: int64 `(...)`, broadcast against the seeds.
        number: uniforms in a row.
        stream: rows of other streams are independent; that of noise is 0.
    """
    seed, position = torch.broadcast_tensors(seeds[..., None], positions[..., None])
    pairs = torch.arange((number + 1) // 2, device=seeds.device)
    c0 = pairs.expand((*seed.shape[:-1], len(pairs)))
    c1, c2, c3 = position & _LOW, _high(position), torch.full_like(position, stream)
    k0, k1 = seed & _LOW, _high(seed)
    for _ in range(_ROUNDS):
        # Products of two words fill 64 bits: int64 keeps them all, as it wraps.
        first, second = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            _high(second) ^ c1 ^ k0,
            second & _LOW,
            _high(first) ^ c3 ^ k1,
            first & _LOW,
        )
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    # (w div 2¹² + ½)/2⁵² of w = low + 2³²·high: 20 bits of the low word remain.
    whole = torch.stack([(c0 >> 12) | (c1 << 20), (c2 >> 12) | (c3 << 20)], dim=-1)
    return (whole.flatten(-2)[..., :number].double() + 0.5) * 2.0**-52


def _high(words: Tensor) -> Tensor:
    """Return the upper 32 of 64 bits, whatever the sign."""
    return (words >> 32) & _LOW


@dataclasses.dataclass(frozen=True)
class Frontier:
    """The nodes of a level at which the draft model is evaluated.

    Attributes:
        nodes: `(B, W)` int64, places in the table, 0 the root.
        live: `(B, W)` bool, whether there is one.
    """

    nodes: Tensor
    live: Tensor


@dataclasses.dataclass(frozen=True)
class Nodes:
    """The trees of a batch: the root at place 0, then the drafts by falling belief.

    Attributes:
        belief: `(B, N + 1)` logarithm of the drafter's belief in the path; −∞ for no node.
        token: `(B, N + 1)` int64; −1 for the root and for no node.
        parent: `(B, N + 1)` int64, the parent's place, always smaller; 0 for the root.
        level: `(B, N + 1)` int64, drafts on the way; 0 for the root.
    """

    belief: Tensor
    token: Tensor
    parent: Tensor
    level: Tensor

    def frontier(self, level: int, width: int) -> Frontier:
        """Return the W nodes of a level with the largest beliefs.

        Args:
            level: the level, from 0 for the root.
            width: W.
        """
        here = torch.where(self.level == level, self.belief, -torch.inf)
        belief, nodes = here.sort(dim=-1, descending=True, stable=True)
        return Frontier(nodes[:, :width], belief[:, :width] > -torch.inf)

    def extended(
        self, frontier: Frontier, log_p: Tensor, noise: Tensor, scale: float | Tensor, level: int
    ) -> Nodes:
        """Return the best N drafts among these nodes and all children of the frontier.

        Args:
            frontier: of `level`.
            log_p: `(B, W, V)` of any floating type, the draft model's log-probabilities there, −∞
                where filtered; any finite values where the frontier is not live.
            noise: `(B, V)` float64, of the position after the frontier.
            scale: s > 0, a number or `(B, 1, 1)` float64.
            level: the frontier's.
        """
        size, width = self.belief.shape[1] - 1, frontier.nodes.shape[1]
        behind = torch.log_softmax((log_p.double() + noise[:, None]) / scale, dim=-1)
        above = torch.where(frontier.live, self.belief.gather(1, frontier.nodes), -torch.inf)
        reach = min(size, log_p.shape[-1])
        # Stable sorts: of equal beliefs the smaller token and the node found first come first, so
        # that a parent stays before its children.
        found, token = (behind + above[..., None]).sort(dim=-1, descending=True, stable=True)
        found, token = found[..., :reach].flatten(1), token[..., :reach].flatten(1)
        parent = frontier.nodes[..., None].expand(-1, -1, reach).reshape(-1, width * reach)
        order = found.sort(dim=-1, descending=True, stable=True).indices
        new = (
            found.gather(1, order),
            token.gather(1, order),
            parent.gather(1, order),
            torch.full_like(parent, level + 1),
        )
        old = (self.belief, self.token, self.parent, self.level)
        both = [torch.cat([a, b], dim=1) for a, b in zip(old, new, strict=True)]
        kept = both[0].sort(dim=-1, descending=True, stable=True).indices[:, : size + 1]
        belief, token, parent, depth = (part.gather(1, kept) for part in both)
        # Where a node stood, and where it stands: parents are old nodes and have moved.
        place = torch.zeros_like(both[1]).scatter(
            1, kept, torch.arange(size + 1, device=kept.device).expand_as(kept)
        )
        live = belief > -torch.inf
        return Nodes(
            belief,
            torch.where(live, token, -1),
            torch.where(live, place.gather(1, parent), 0),
            torch.where(live, depth, 0),
        )

    def ancestors(self, depth: int) -> Tensor:
        """Return the attention mask `(B, N + 1, N + 1)` by which nodes see own paths.

        Args:
            depth: the largest number of levels.
        """
        place = torch.arange(self.parent.shape[1], device=self.parent.device)
        seen = place[:, None] == place
        mask, above = seen.expand(len(self.parent), -1, -1), self.parent
        for _ in range(depth):
            mask = mask | (above[..., None] == place)
            above = self.parent.gather(1, above)
        return mask

    def matched(self, log_q: Tensor, noise: Tensor, *, shard: Shard | None = None) -> Verified:
        """Return the tokens of the target that one call determines.

        Args:
            log_q: `(B, N + 1, V)` of any floating type, the target's log-probabilities at the root
                and all nodes.
            noise: `(B, L + 1, V)` float64, of the positions after the root.
            shard: the tokens of both; all if None.
        """
        depth = noise.shape[1] - 1
        levels = [(log_q + noise[:, level, None]).max(dim=-1) for level in range(depth + 1)]
        own = self.level[:, None].clamp(max=depth)
        best, sample = (
            torch.stack(part, dim=1).gather(1, own)[:, 0] for part in zip(*levels, strict=True)
        )
        if shard is not None:
            best, sample = shard.best(best, sample)
        return self.followed(best, sample, depth)

    def followed(self, best: Tensor, sample: Tensor, depth: int) -> Verified:
        """Return the text along the target's samples after all nodes.

        Args:
            best: `(B, N + 1)` float64, the score of each sample; the request is refused where it
                is no number.
            sample: `(B, N + 1)` int64, the target's sample after each node.
            depth: L.
        """
        place = torch.arange(self.parent.shape[1], device=self.parent.device)
        at = torch.zeros_like(self.parent[:, :1])
        going = torch.ones_like(at, dtype=torch.bool)
        path, tokens, sound = list[Tensor](), list[Tensor](), going
        for _ in range(depth + 1):
            token = sample.gather(1, at)
            path.append(torch.where(going, at, -1))
            tokens.append(torch.where(going, token, -1))
            sound = sound & (best.gather(1, at).isfinite() | going.logical_not())
            child = (self.parent == at) & (self.token == token) & (place > 0)
            going = going & child.any(dim=1, keepdim=True)
            at = child.long().argmax(dim=1, keepdim=True)
        text = torch.cat(tokens, dim=1)
        found = Verified(text, torch.cat(path, dim=1), (text >= 0).sum(dim=1))
        return found.where(sound[:, 0])


def root_only(batch: int, size: int, device: torch.device | str) -> Nodes:
    """Return trees without drafts, with room for N.

    Args:
        batch: B.
        size: N.
        device: where they are grown.
    """
    numbers = torch.full((batch, size + 1), -1, dtype=torch.int64, device=device)
    place = torch.arange(size + 1, device=device)
    belief = torch.where(place == 0, 0.0, -torch.inf).double().expand(batch, -1)
    return Nodes(belief, numbers, torch.zeros_like(numbers), torch.zeros_like(numbers))
