"""Refined scores of K drafted sequences per request, by bins of q/p.

The scheme and its proof are those of `otm.sequence.RefinedScores`: every sequence has a score, the
law of the score is split among the next tokens, the largest score wins, the winner is verified as
a block against the law of winners. Any split is lossless whose parts add up to the law. Here the
sums over tokens that it takes are sums over bins of q/p, so that rows are read a few times and
never sorted, and all that follows them is small.

At a vertex with weight F the levels a = clip(F q/p, c, d) that accept most are found up to a bin.
Between floor and cap a token's level is linear in its own q/p, so sums of p and q over the bin tell
all of it; a bin that floor or cap falls into has one level. Tokens follow one of the two of a few
*marks* that are around their level, at random with the right mean. What shares the scores are the
marks, by nested parts: a part is a run of marks with the run of scores that has the same mass. Of
every mark's law a share 1 − ω is spread evenly over the part, with ω the part falls in two where
the wanted levels come closest to all that the scores allow, and so on, once for every mark.
"""

from __future__ import annotations

import dataclasses

import torch

from .chain import Chain
from .grid import ScoreGrid
from .step import Tensor, Verified, draw, rows
from .vocabulary import Over, Rows, Selected, TorchRows

_TINY = 1e-14
"""Masses that sums up to 1 in float64 hardly tell from 0."""


@dataclasses.dataclass(frozen=True)
class Split:
    """How the law of the score at a vertex is split among the next tokens.

    Attributes:
        mark: `(…, bins)` int64, the lower of the marks that tokens of a bin follow.
        base, slope: `(…, bins)`, base + slope·q/p is the probability of the upper one.
        parts: `(3, …, M, M/2 + 1)`, of each mark: the mass of the scores below both ends, and how
            much of the mark's law is spread over the part.
        level: `(2, …, bins)`, its first plus its second times q/p is a token's level: how often it
            is the winner's for once that it is drafted.
    """

    mark: Tensor
    base: Tensor
    slope: Tensor
    parts: Tensor
    level: Tensor

    @classmethod
    def of(
        cls, law: Tensor, weight: Tensor, drafted: Tensor, wanted: Tensor, grid: ScoreGrid
    ) -> Split:
        """Split a law of the score for the flat clip of F q/p.

        Args:
            law: `(…, C)`.
            weight: `(…)`, F.
            drafted, wanted: `(…, bins)` p and q in each bin.
            grid: as made.
        """
        scores = _from_zero(torch.stack([law, law * grid.gain]))
        least, most, cut, linear = _levels(scores, weight[..., None], drafted, wanted, grid)
        marks = _marks(least, most, cut, torch.where(linear, drafted, 0.0), grid.groups)
        mark = torch.searchsorted(marks, least, right=True).sub_(1).clamp_(0, marks.shape[-1] - 2)
        below, gap = marks.gather(-1, mark), marks.diff(dim=-1).gather(-1, mark)
        scale = torch.where(gap > _TINY, 1.0 / gap, 0.0)
        slope = torch.where(linear, weight[..., None] * scale, 0.0)
        base = (torch.where(linear, 0.0, least) - below) * scale
        upper = torch.minimum((base * drafted + slope * wanted).clamp(min=0.0), drafted)
        follow = torch.zeros_like(marks).scatter_add(-1, mark, drafted - upper)
        follow = follow.scatter_add(-1, mark + 1, upper)
        z, sought = _from_zero(torch.stack([follow, follow * marks]))
        lowest = _interpolated(z, scores)
        # levels are no further apart than the scores allow
        parts, mean = _nested(torch.stack([z, lowest, torch.maximum(sought, lowest)]))
        at, step = mean.gather(-1, mark), mean.diff(dim=-1).gather(-1, mark)
        level = torch.stack([at + base * step, slope * step])
        level = level / (level[0] * drafted + level[1] * wanted).sum(dim=-1, keepdim=True)
        return cls(mark, base, slope, parts, level)

    def law(self, before: Tensor, bin_: Tensor, ratio: Tensor) -> Tensor:
        """Return the law of the score `(…, C)` given the next token.

        Args:
            before: `(…, C)` the law that is split.
            bin_, ratio: `(…)` the token's bin and q/p.
        """
        mark, base, slope = (
            part.gather(-1, bin_[..., None]) for part in (self.mark, self.base, self.slope)
        )
        upper = (base + torch.where(slope > 0.0, slope * ratio[..., None], 0.0)).clamp(0.0, 1.0)
        both = torch.cat([mark, mark + 1], dim=-1)[..., None]
        chance = torch.cat([1.0 - upper, upper], dim=-1)[..., None]
        wide = both.expand(3, *both.shape[:-1], self.parts.shape[-1])
        low, high, share = self.parts.gather(-2, wide)
        dense = (chance * share / (high - low).clamp(min=_TINY)).flatten(-2)[..., None]
        low, high = (end.flatten(-2)[..., None] for end in (low, high))
        cells = _from_zero(before)[..., None, :]
        spread = torch.minimum(torch.maximum(cells, low), high).diff(dim=-1)
        found = (dense * spread).sum(dim=-2)
        total = found.sum(dim=-1, keepdim=True)
        # a token too unlikely to have a width of scores shares all of them
        return torch.where(total > 0.0, found / total, before)


def _levels(
    scores: Tensor, weight: Tensor, drafted: Tensor, wanted: Tensor, grid: ScoreGrid
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the least and the largest level `(…, bins)` in each bin, the first bin `(…, 1)` above
    the cut, and whether tokens of a bin `(…, bins)` have levels of their own.

    Args:
        scores: `(2, …, C + 1)`, mass and moment of the scores below the edges of the cells.
        weight: `(…, 1)`, F.
        drafted, wanted: `(…, bins)`.
        grid: as made.
    """
    least, most = weight * grid.edges[:-1], weight * grid.edges[1:]
    mass = weight * wanted
    z, sought = _from_zero(torch.stack([drafted, mass]))
    held = _interpolated(z, scores)
    cut = (sought - held).argmin(dim=-1, keepdim=True)
    lower, had = held.gather(-1, cut), sought.gather(-1, cut)
    # every edge bounds the floor from above and the cap from below, the right ones with equality
    edge = torch.arange(z.shape[-1], device=z.device)
    lifted = (lower - (had - sought)) / z
    floor = torch.where((edge <= cut) & (z > _TINY), lifted, torch.inf).amin(dim=-1, keepdim=True)
    rest = z[..., -1:] - z
    lowered = (held[..., -1:] - lower - (sought - had)) / rest
    cap = torch.where((edge >= cut) & (rest > _TINY), lowered, 0.0).amax(dim=-1, keepdim=True)
    under = edge[:-1] < cut
    linear = torch.where(under, least >= floor, most <= cap) & (edge[:-1] < len(edge) - 2)
    mean = torch.where(drafted > 0.0, mass / drafted, least)
    level = torch.where(under, torch.maximum(mean, floor), torch.minimum(mean, cap)).clamp(min=0.0)
    return (
        torch.where(linear, least, level),
        torch.where(linear, most, level),
        cut,
        linear,
    )


def _marks(least: Tensor, most: Tensor, cut: Tensor, free: Tensor, groups: int) -> Tensor:
    """Return ascending marks `(…, 2 (groups + 1))`: the ends on either side of the cut, and levels
    that part the free mass in between into groups.
    """
    mass, last = _from_zero(free), least.shape[-1] - 1
    middle, whole = mass.gather(-1, cut), mass[..., -1:]
    part = torch.arange(1, groups, device=least.device) / groups
    sought = torch.cat([middle * part, middle + (whole - middle) * part], dim=-1)
    inner = torch.searchsorted(mass, sought, right=True).sub_(1)
    from_ = torch.cat([inner, torch.zeros_like(cut), cut], dim=-1).clamp(0, last)
    to = torch.cat([cut - 1, torch.full_like(cut, last)], dim=-1).clamp(min=0)
    return torch.cat([least.gather(-1, from_), most.gather(-1, to)], dim=-1).sort(dim=-1).values


def _nested(curves: Tensor) -> tuple[Tensor, Tensor]:
    """Return the parts of each mark, `(3, …, M, M/2 + 1)`, and its mean level.

    Args:
        curves: `(3, …, M + 1)` along the marks: their mass, the moment of the lowest scores of
            that mass, and the moment that they want, not less.
    """
    place = torch.arange(curves.shape[-1] - 1, device=curves.device)
    first = torch.zeros_like(curves[0, ..., 1:], dtype=torch.int64)
    end = first + len(place)
    left = torch.ones_like(curves[0, ..., 1:])
    factor, mean = left, torch.zeros_like(left)
    at, scores, wanted = curves[..., :-1]
    parts = []
    # one side of the cut has half of the marks
    for remaining in reversed(range(len(place) // 2 + 1)):
        ends = torch.cat([first, end], dim=-1)
        from_, to = curves.gather(-1, ends.expand(3, *ends.shape)).chunk(2, dim=-1)
        (z0, scores0, wanted0), (z1, scores1, wanted1) = from_, to
        width = (z1 - z0).clamp(min=_TINY)
        run = (at - z0) / width
        lack = factor * (wanted0 + run * (wanted1 - wanted0) - wanted)
        room = scores0 + run * (scores1 - scores0) - scores
        inside = (place > first) & (lack > _TINY) & (room > _TINY)
        found = torch.where(inside, lack / room, 0.0)
        most = torch.zeros_like(left).scatter_reduce(-1, first, found, "amax").gather(-1, first)
        share = most.clamp(max=1.0) if remaining else torch.zeros_like(left)
        parts.append(torch.stack([z0, z1, left * (1.0 - share)]))
        mean = mean + parts[-1][2] * (scores1 - scores0) / width
        split = torch.where(inside & (found == most), place, len(place))
        split = torch.full_like(first, len(place)).scatter_reduce(-1, first, split, "amin")
        split = split.gather(-1, first)
        first = torch.where(place >= split, split, first)
        end = torch.where(place < split, torch.minimum(end, split), end)
        factor = factor / torch.where(share > 0.0, share, 1.0)
        left = left * share
    return torch.stack(parts, dim=-1), mean


def refined_scores(
    candidates: Tensor,
    paths: Tensor,
    target: Tensor,
    draft: Tensor,
    uniforms: Tensor,
    final: Tensor,
    grid: ScoreGrid,
    *,
    over: Over = TorchRows,
) -> Verified:
    """Give each of K i.i.d. sequences a score, and verify the one with the largest as a block.

    Args:
        candidates, target, draft, uniforms, final: as `analysis.kernels.step` has them; the last
            column of uniforms draws the winner.
        paths: `(B, K, L)` int64, the nodes of each sequence. A sequence may end early, with −1 as
            candidate, where a rule for its own tokens ends it, or one for all sequences.
        grid: for K sequences.
        over: who reads the rows (`analysis.kernels.vocabulary`).
    """
    both = over(target, draft, candidates)
    found = Scored.of(candidates, paths, both, grid)
    chosen = draw(found.wins, uniforms[:, -1])[:, None]
    path = paths.gather(1, chosen[..., None].expand(-1, -1, paths.shape[2]))[:, 0]
    way = torch.nn.functional.pad(path, (1, 0))
    tested = torch.nn.functional.pad(uniforms.gather(1, path - 1), (0, 1))
    chain = Chain.of(candidates, way, both, found.selected(chosen, grid))
    return chain.as_block(tested, final).where(found.sound)


@dataclasses.dataclass(frozen=True)
class Scored:
    """What the scores of all sequences come to.

    Attributes:
        wins: `(B, K)`, the probability that a sequence's score is the largest.
        levels: `(2, B, K, L, bins)`, along each of them.
        sound: `(B,)`, whether all of them are numbers.
    """

    wins: Tensor
    levels: Tensor
    sound: Tensor

    @classmethod
    def of(cls, candidates: Tensor, paths: Tensor, both: Rows, grid: ScoreGrid) -> Scored:
        """Refine the scores along all sequences, level by level."""
        size, k, length = paths.shape
        above = torch.nn.functional.pad(paths[..., :-1], (1, 0)).flatten(1)
        tokens = candidates.gather(1, paths.flatten(1))
        q, p = both.entries(above, tokens.clamp(min=0))
        ratio = torch.where(p > 0.0, q.double() / p, 0.0 * q).view(size, k, length)
        bin_ = grid.bins(q, p).view(size, k, length)
        alive = (tokens >= 0).view(size, k, length).long().cumprod(dim=-1).bool()
        drafted, wanted = (
            rows(one, above).view(size, k, length, -1) for one in both.bin_sums(grid)
        )
        law = grid.mass.expand(size, k, -1)
        weight = torch.ones_like(law[..., 0])
        levels = []
        for i in range(length):
            split = Split.of(law, weight, drafted[:, :, i], wanted[:, :, i], grid)
            levels.append(split.level)
            refined = split.law(law, bin_[..., i], ratio[..., i])
            live = alive[..., i]
            bound = torch.minimum(weight * ratio[..., i], (refined * grid.gain).sum(dim=-1))
            law = torch.where(live[..., None], refined, law)
            weight = torch.where(live, bound, weight)
        wins = win_probabilities(law, torch.ones_like(alive[..., 0]), grid)
        sound = (wins.isfinite() & weight.isfinite()).all(dim=-1)
        return cls(wins, torch.stack(levels, dim=-2), sound)

    def selected(self, sequence: Tensor, grid: ScoreGrid) -> Selected:
        """Return the law of the winner's next tokens along a sequence `(B, 1)`."""
        by = sequence[..., None, None].expand(-1, -1, *self.levels.shape[3:])
        return Selected(torch.stack([one.gather(1, by)[:, 0] for one in self.levels]), grid)


def win_probabilities(laws: Tensor, live: Tensor, grid: ScoreGrid) -> Tensor:
    """Return the probability `(B, K)` that each live score is the largest of those.

    Args:
        laws: `(B, K, C)`.
        live: `(B, K)`, whether there is such a score; at least one.
        grid: for at least as many.
    """
    taking_part = live[..., None, None]
    lower = _from_zero(laws)[..., :-1, None] + laws[..., None] * grid.nodes
    lower = torch.where(taking_part, lower, 1.0)
    one = torch.ones_like(lower[:, :1])
    before = torch.cat([one, lower[:, :-1]], dim=1).cumprod(dim=1)
    after = torch.cat([one, lower.flip(1)[:, :-1]], dim=1).cumprod(dim=1).flip(1)
    found: Tensor = ((before * after) @ grid.weights * laws).sum(dim=-1)
    return torch.where(live, found, 0.0)


def _from_zero(parts: Tensor) -> Tensor:
    """Return running sums along the last axis, with the empty one before them."""
    return torch.nn.functional.pad(parts.cumsum(dim=-1), (1, 0))


def _interpolated(at: Tensor, curve: Tensor) -> Tensor:
    """Return a piecewise linear function, given by ascending places and its values `(2, …, n)`."""
    right = torch.searchsorted(curve[0], at, right=True).clamp_(1, curve.shape[-1] - 1)
    ends = torch.cat([right - 1, right], dim=-1)
    (x0, y0), (x1, y1) = curve.gather(-1, ends.expand(2, *ends.shape)).chunk(2, dim=-1)
    found: Tensor = y0 + ((at - x0) / (x1 - x0).clamp(min=_TINY)).clamp(0.0, 1.0) * (y1 - y0)
    return found
