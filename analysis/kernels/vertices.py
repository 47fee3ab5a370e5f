"""The optimal verifier of i.i.d. drafts vertex by vertex, by bins of q/p.

The scheme is that of `otm.sequence.DraftSelection` with `otm.Optimal`: the sequences that agree
with the output so far have as many drafts of the next token, each has a score that depends on its
bin, the largest wins, and is accepted with u < q/s, s the law of winners. Scores are split as in
`analysis.kernels.scores`, lossless with any grid; no refined law is carried on.
"""

from __future__ import annotations

import dataclasses

import torch

from .scores import ScoreGrid, Split, bin_sums, win_probabilities
from .step import Tensor, Verified, drafted_by, draw, rows, written


def optimal_by_vertex(
    candidates: Tensor,
    paths: Tensor,
    target: Tensor,
    draft: Tensor,
    uniforms: Tensor,
    final: Tensor,
    grid: ScoreGrid,
) -> Verified:
    """Verify the next tokens of the sequences that agree so far, level by level.

    Args:
        candidates, target, draft, uniforms, final: as `analysis.kernels.step` has them; of each
            level those of the first sequence's node select, those of the last one's test.
        paths: `(B, K, L)` int64, the nodes of each sequence. A sequence may end early, with −1 as
            candidate, where a rule for its own tokens ends it, or one for all sequences.
        grid: for K sequences.
    """
    p = drafted_by(draft, candidates, target)
    place = torch.arange(paths.shape[2] + 1, device=paths.device)
    path = torch.zeros_like(paths[:, 0, :1]).expand(-1, len(place))
    live = torch.ones_like(paths[..., 0], dtype=torch.bool)
    kept = torch.zeros_like(path[:, 0])
    sound = torch.ones_like(kept, dtype=torch.bool)
    at, going = path[:, :1], sound
    mass = target[:, 0]
    for child in paths.unbind(dim=2):
        tokens = candidates.gather(1, child)
        live = live & (tokens >= 0) & going[:, None]
        number = live.sum(dim=1)
        going = number > 0
        # without drafts any sequence stands for none
        taking_part = live | going.logical_not()[:, None]
        q, law = rows(target, at)[:, 0], rows(p, at.clamp(max=p.shape[1] - 1))[:, 0]
        found = _Vertex.of(q, law, number, grid)
        tokens = tokens.clamp(min=0)
        ahead, behind = q.gather(1, tokens), law.gather(1, tokens)
        laws = found.laws(ahead, behind, grid)
        wins = win_probabilities(laws, taking_part, grid)
        first, last = (uniforms.gather(1, child[:, end, None] - 1) for end in (0, -1))
        chosen = draw(wins, first[:, 0])[:, None]
        x, node = tokens.gather(1, chosen), child.gather(1, chosen)
        selected = found.selected(q, law, grid)
        chances = selected.gather(1, x), q.gather(1, x)
        passed = going & (last * chances[0] < chances[1])[:, 0]
        fine = wins.isfinite().all(dim=1) & (behind > 0.0).logical_or(live.logical_not()).all(dim=1)
        fine = fine & (chances[0].isfinite() & chances[1].isfinite())[:, 0]
        sound = sound & (fine | going.logical_not())
        excess = (q - selected).clamp_(min=0.0)
        # without any excess only rounding rejected the winner
        excess = torch.where(excess.sum(dim=-1, keepdim=True) == 0.0, q, excess)
        kept = kept + passed
        path = torch.where(passed[:, None] & (place == kept[:, None]), node, path)
        at = torch.where(passed[:, None], node, at)
        rejected = (going & passed.logical_not())[:, None]
        following = torch.where(passed[:, None], rows(target, at)[:, 0], mass)
        mass = torch.where(rejected, excess, following)
        live, going = live & (tokens == x), passed
    return written(path, candidates.gather(1, path[:, 1:]), kept, mass, final, sound)


@dataclasses.dataclass(frozen=True)
class _Vertex:
    """How scores are split among the next tokens at a vertex.

    Attributes:
        split: of the uniform score.
        score: `(B, C)`, its cells.
    """

    split: Split
    score: Tensor

    @classmethod
    def of(cls, target: Tensor, draft: Tensor, number: Tensor, grid: ScoreGrid) -> _Vertex:
        """Split for as many drafts as there are, `(B,)`, by rows `(B, V)`."""
        drafted, wanted = bin_sums(target[:, None], draft[:, None], grid)
        edges = torch.nn.functional.pad(grid.mass.cumsum(dim=0), (1, 0))
        gain = (edges ** number.clamp(min=1)[:, None]).diff(dim=-1) / grid.mass
        score = grid.mass.expand(len(number), -1)
        own = dataclasses.replace(grid, gain=gain)
        weight = torch.ones_like(score[:, 0])
        return cls(Split.of(score, weight, drafted[:, 0], wanted[:, 0], own), score)

    def laws(self, target: Tensor, draft: Tensor, grid: ScoreGrid) -> Tensor:
        """Return the laws of the score `(B, K, C)` given tokens, of q and p there `(B, K)`."""
        ratio = torch.where(draft > 0.0, target.double() / draft, 0.0 * target)
        index = grid.bins(target, draft)
        each = (
            self.split.law(self.score, one, other)
            for one, other in zip(index.unbind(dim=1), ratio.unbind(dim=1), strict=True)
        )
        return torch.stack(list(each), dim=1)

    def selected(self, target: Tensor, draft: Tensor, grid: ScoreGrid) -> Tensor:
        """Return the law `(B, V)` of the winner."""
        index = grid.bins(target, draft)
        constant, slope = (one.to(draft.dtype).gather(-1, index) for one in self.split.level)
        found: Tensor = (constant * draft + slope * target).clamp_(min=0.0)
        return found.div_(found.sum(dim=-1, keepdim=True))
