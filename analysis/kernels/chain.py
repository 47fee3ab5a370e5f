"""One drafted sequence per request: token by token, or verified as a block.

Node i + 1 follows node i; −1 ends a sequence early. The rules are those of
`otm.sequence.SpeculativeSampling` and `otm.sequence.BlockVerification`, which say why they are
lossless. Schemes that choose one of several sequences verify the chosen one here too.
"""

from __future__ import annotations

import dataclasses

import torch

from .step import Tensor, Verified, can_be_drawn, decided
from .vocabulary import Excess, Over, Rows, Selected, TorchRows

_LEAST, _MOST = 1e-300, 1e300
"""A mass that decides only where all others are 0, and a ratio that hardly any draft exceeds."""


def token_by_token(
    candidates: Tensor,
    target: Tensor,
    draft: Tensor | None,
    uniforms: Tensor,
    final: Tensor,
    *,
    over: Over = TorchRows,
) -> Verified:
    """Keep drafts up to the first with u ≥ q(x)/p(x), and draw from (q − p)₊ there.

    Args:
        candidates: `(B, n)` int64, the nodes' tokens, node 0 the root; −1 where there is no draft.
        target: `(B, n, V)` float32 or float64, the target's next-token probabilities after each
            node.
        draft: `(B, m, V')` of the target's type, V' ≤ V, the probabilities by which the children
            of nodes 0..m − 1 were drawn; None if each draft was sure.
        uniforms: `(B, n)` float32 or float64 in [0, 1); column i − 1 tests node i.
        final: `(B,)` float32 or float64 in [0, 1), draws the token after the accepted drafts.
        over: makes the rows: `TorchRows`, or others of `analysis.kernels.vocabulary.Rows`.
    """
    chain = Chain.alone(candidates, over(target, draft, candidates[:, 1:]))
    passed = (uniforms[:, :-1] * chain.drawn < chain.wanted) & chain.live
    kept = passed.long().cumprod(dim=-1).sum(dim=-1)
    place = torch.arange(passed.shape[1], device=kept.device)
    untried = chain.live.logical_not() | (place > kept[:, None])
    sound = (can_be_drawn(chain.drawn, chain.wanted) | untried).all(dim=-1)
    return chain.ended(kept, torch.ones_like(final), final, sound)


def block(
    candidates: Tensor,
    target: Tensor,
    draft: Tensor | None,
    uniforms: Tensor,
    final: Tensor,
    *,
    over: Over = TorchRows,
) -> Verified:
    """Keep the longest prefix i with u_i < Z_i/(Z_i + 1 − w_i), and draw from (w_i q − p)₊ there.

    w_i = min(1, w_{i−1} q(x_i)/p(x_i)), Z_i = Σ (w_i q − p)₊; the whole sequence passes with w.

    Args:
        candidates: `(B, n)` int64, the nodes' tokens, node 0 the root; −1 where there is no draft.
        target: `(B, n, V)` float32 or float64, the target's next-token probabilities after each
            node.
        draft: `(B, m, V')` of the target's type, V' ≤ V, the probabilities by which the children
            of nodes 0..m − 1 were drawn; None if each draft was sure.
        uniforms: `(B, n)` float32 or float64 in [0, 1); column i − 1 tests node i.
        final: `(B,)` float32 or float64 in [0, 1), draws the token after the accepted drafts.
        over: makes the rows: `TorchRows`, or others of `analysis.kernels.vocabulary.Rows`.
    """
    chain = Chain.alone(candidates, over(target, draft, candidates[:, 1:]))
    return chain.as_block(uniforms, final)


@dataclasses.dataclass(frozen=True)
class Chain:
    """Drafted sequences, with both models' probabilities of the drafts.

    Attributes:
        rows: of both models.
        way: `(B, γ + 1)` int64, the nodes from the root.
        drafts: `(B, γ)` int64, the tokens.
        live: `(B, γ)`, whether there is a draft.
        end: `(B,)` int64, the number of drafts.
        wanted, drawn: `(B, γ)`, q(x) and p(x).
        selected: the law of winners before each draft; the draft's law if None.
        straight: whether the way is 0, 1, 2, ….
    """

    rows: Rows
    way: Tensor
    drafts: Tensor
    live: Tensor
    end: Tensor
    wanted: Tensor
    drawn: Tensor
    selected: Selected | None = None
    straight: bool = False

    @classmethod
    def of(
        cls, candidates: Tensor, way: Tensor, rows: Rows, selected: Selected | None = None
    ) -> Chain:
        """Look up the drafts along a way.

        Args:
            candidates: `(B, n)` int64, the nodes' tokens.
            way: `(B, γ + 1)` int64, the nodes from the root.
            rows: of both models.
            selected: the law of winners before each draft; the draft's law if None.
        """
        return cls._of(candidates.gather(1, way[:, 1:]), way, rows, selected, straight=False)

    @classmethod
    def alone(cls, candidates: Tensor, rows: Rows) -> Chain:
        """Look up the drafts of requests that have one sequence each.

        Args:
            candidates: `(B, γ + 1)` int64, the nodes' tokens, node 0 the root.
            rows: of both models.
        """
        way = torch.arange(candidates.shape[1], device=candidates.device).expand_as(candidates)
        return cls._of(candidates[:, 1:], way, rows, None, straight=True)

    @classmethod
    def _of(
        cls, drafts: Tensor, way: Tensor, rows: Rows, selected: Selected | None, *, straight: bool
    ) -> Chain:
        live = (drafts >= 0).cumprod(dim=-1)
        wanted, drawn = rows.entries(way[:, :-1], drafts.clamp(min=0))
        if selected is not None:
            # of a tiny p a share may be no number above 0; without any p there is no draft
            winning = selected.at(wanted, drawn).clamp_(min=torch.finfo(drawn.dtype).tiny)
            drawn = torch.where(drawn > 0.0, winning, drawn)
        end = live.sum(dim=-1)
        return cls(rows, way, drafts, live.bool(), end, wanted, drawn, selected, straight)

    def as_block(self, uniforms: Tensor, final: Tensor) -> Verified:
        """Verify the sequences by the rule of `block`.

        Args:
            uniforms: `(B, γ + 1)` float32 or float64 in [0, 1); the last column is not read.
            final: `(B,)` float32 or float64 in [0, 1), draws the last token.
        """
        kept, weight, sound = self.longest_passing(uniforms)
        return self.ended(kept, weight, final, sound)

    def longest_passing(
        self, uniforms: Tensor, start: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the length of the longest passing prefix, w there, and the sound requests.

        Args:
            uniforms: `(B, γ + 1)` float32 or float64 in [0, 1); the last column is not read.
            start: `(B,)` float64, w of the empty prefix, which passes where no other does; 1 if
                None.
        """
        # of a subnormal p the quotient is no number, and 0 times it would be none
        ratio = (self.wanted.double() / self.drawn).clamp(max=_MOST)
        weights = [torch.ones_like(ratio[:, 0]) if start is None else start]
        for next_ in ratio.unbind(dim=1):
            weights.append((weights[-1] * next_).clamp_(max=1.0))
        passing = torch.stack(weights, dim=1)
        weight = passing[:, 1:]
        inner = Excess(
            self.way[:, 1:-1],
            weight[:, :-1],
            selected=None if self.selected is None else self.selected.some(slice(1, None)),
            same=range(1, weight.shape[1]) if self.straight else None,
        )
        room = weight
        if weight.shape[1] > 1:
            room = torch.nn.functional.pad(self.rows.total(inner), (0, 1))
        place = torch.arange(1, weight.shape[1] + 1, device=weight.device)
        # at w = 1 a prefix passes without any room, too
        room = room.double() + _LEAST
        below = room / (room + (1.0 - weight))
        chance = torch.where(place < self.end[:, None], below, weight)
        passed = (uniforms[:, :-1] < chance) & self.live
        kept = (passed * place).amax(dim=-1)
        sound = (chance >= 0.0) & can_be_drawn(self.drawn, self.wanted)
        sound = (sound | self.live.logical_not()).all(dim=-1)
        return kept, passing.gather(1, kept[:, None])[:, 0], sound

    def ended(
        self,
        kept: Tensor,
        weight: Tensor,
        final: Tensor,
        sound: Tensor,
        share: Tensor | None = None,
    ) -> Verified:
        """Return the kept drafts and a token from w q − c min(p, w q), from q after the last draft.

        Args:
            kept: `(B,)` int64, the number of kept drafts.
            weight: `(B,)` float32 or float64, w.
            final: `(B,)` float32 or float64 in [0, 1), draws the token.
            sound: `(B,)` bool, whether the request can be answered.
            share: `(B,)` float32 or float64, c in [0, 1]; 1 if None.
        """
        at = kept[:, None]
        taken = torch.where(kept < self.end, 1.0 if share is None else share, 0.0)[:, None]
        selected = None
        if self.selected is not None:
            selected = self.selected.one(at.clamp(max=self.drafts.shape[1] - 1))
        excess = Excess(self.way.gather(1, at), weight[:, None], taken, selected)
        after, total = self.rows.draw(excess, final)
        return decided(self.way, self.drafts, kept, after, total, sound)
