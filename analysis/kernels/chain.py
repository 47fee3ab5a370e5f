"""One drafted sequence per request: token by token, or verified as a block.

Node i + 1 follows node i; −1 ends a sequence early. The rules are those of
`otm.sequence.SpeculativeSampling` and `otm.sequence.BlockVerification`, which say why they are
lossless. What takes one of several sequences verifies it here too.
"""

from __future__ import annotations

import dataclasses

import torch

from .step import Tensor, Verified, drafted_by, entries, possible, rows, written


def token_by_token(
    candidates: Tensor, target: Tensor, draft: Tensor | None, uniforms: Tensor, final: Tensor
) -> Verified:
    """Keep drafts up to the first with u ≥ q(x)/p(x), and draw from (q − p)₊ there.

    Args: as `analysis.kernels.step` has them.
    """
    chain = Chain.of(candidates, target, draft)
    passed = (uniforms[:, :-1] * chain.drawn < chain.wanted) & chain.live
    kept = passed.long().cumprod(dim=-1).sum(dim=-1)
    place = torch.arange(passed.shape[1], device=kept.device)
    untried = chain.live.logical_not() | (place > kept[:, None])
    sound = (possible(chain.drawn, chain.wanted) | untried).all(dim=-1)
    return chain.ended(kept, torch.ones_like(final), final, sound)


def block(
    candidates: Tensor, target: Tensor, draft: Tensor | None, uniforms: Tensor, final: Tensor
) -> Verified:
    """Keep the longest prefix i with u_i < Z_i/(Z_i + 1 − w_i), and draw from (w_i q − p)₊ there.

    w_i = min(1, w_{i−1} q(x_i)/p(x_i)), Z_i = Σ (w_i q − p)₊; the whole sequence passes with w.

    Args: as `analysis.kernels.step` has them.
    """
    chain = Chain.of(candidates, target, draft)
    kept, weight, sound = chain.longest_passing(uniforms, torch.ones_like(final))
    return chain.ended(kept, weight, final, sound)


@dataclasses.dataclass(frozen=True)
class Chain:
    """The sequences, and what both models say of their tokens.

    Attributes:
        drafts: `(B, γ)`.
        live: `(B, γ)`, whether there is a draft.
        end: `(B,)`, how many there are.
        target, draft: the rows.
        wanted, drawn: `(B, γ)`, q(x) and p(x).
    """

    drafts: Tensor
    live: Tensor
    end: Tensor
    target: Tensor
    draft: Tensor
    wanted: Tensor
    drawn: Tensor

    @classmethod
    def of(cls, candidates: Tensor, target: Tensor, draft: Tensor | None) -> Chain:
        """Look the drafts up."""
        drafts = candidates[:, 1:]
        live = (drafts >= 0).long().cumprod(dim=-1)
        p = drafted_by(draft, drafts, target)
        place = torch.arange(drafts.shape[1], device=drafts.device).expand_as(drafts)
        tokens = drafts.clamp(min=0)
        wanted, drawn = entries(target, place, tokens), entries(p, place, tokens)
        return cls(drafts, live.bool(), live.sum(dim=-1), target, p, wanted, drawn)

    def longest_passing(self, uniforms: Tensor, start: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return how many drafts the longest prefix has that passes, w there, and what is sound.

        Args:
            uniforms: `(B, γ + 1)`.
            start: `(B,)`, w of the empty prefix, which passes where no other does.
        """
        ratio = torch.where(self.live & (self.drawn > 0.0), self.wanted / self.drawn, 0.0)
        weights = [start]
        for next_ in ratio.unbind(dim=1):
            weights.append((weights[-1] * next_).clamp_(max=1.0))
        passing = torch.stack(weights, dim=1)
        weight = passing[:, 1:]
        inner = slice(1, ratio.shape[1])
        excess = (weight[:, :-1, None] * self.target[:, inner]).sub_(self.draft[:, inner]).relu_()
        room = torch.nn.functional.pad(excess.sum(dim=-1), (0, 1))
        place = torch.arange(1, ratio.shape[1] + 1, device=weight.device)
        below = torch.where(weight < 1.0, room / (room + 1.0 - weight), 1.0 + 0.0 * room)
        chance = torch.where(place < self.end[:, None], below, weight)
        passed = (uniforms[:, :-1] < chance) & self.live
        kept = torch.where(passed, place, 0).amax(dim=-1)
        sound = chance.isfinite() & possible(self.drawn, self.wanted)
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
            kept: `(B,)`.
            weight: `(B,)`, w.
            final, sound: `(B,)`.
            share: `(B,)`, c in [0, 1]; 1 if None.
        """
        following = rows(self.target, kept[:, None])[:, 0]
        at = kept.clamp(max=self.drafts.shape[1] - 1)
        drawn = rows(self.draft, at[:, None])[:, 0]
        taken = torch.where((kept < self.end)[:, None], drawn, 0.0)
        mass = weight[:, None] * following
        used = torch.minimum(taken, mass)
        mass = mass - (used if share is None else share[:, None] * used)
        # without any excess the models agree, and only rounding rejected what follows
        mass = torch.where((mass.sum(dim=-1) == 0.0)[:, None], following, mass)
        path = torch.arange(self.target.shape[1], device=kept.device).expand(len(kept), -1)
        return written(path, self.drafts, kept, mass, final, sound)
