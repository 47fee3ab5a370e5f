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
from collections.abc import Sequence

import torch

from .chain import Chain
from .grid import ScoreGrid
from .step import Tensor, Verified, draw, rows
from .vocabulary import Over, Rows, Selected, TorchRows

_TINY = 1e-14
"""Masses that sums up to 1 in float64 hardly tell from 0."""

_MOST = 1e300
"""Largest q/p, which a subnormal p would make infinite."""

_NOTHING, _NO_LEVEL = 1e-300, 1e100
"""A stand-in for such a mass in a denominator, and a level that only the stand-in can make."""


@dataclasses.dataclass(frozen=True)
class Bins:
    """Sums over the bins of q/p at vertices, as far as no score enters.

    Attributes:
        masses: `(2, …, bins)`, p and q in each.
        running: `(2, …, bins + 1)`, what is below each edge.
        mean: `(…, bins)`, q/p of each bin as a whole.
        under, over: `(…, bins + 1)`, the mass of p below and above each edge, where that is next to
            nothing a number by which nothing is bounded.
    """

    masses: Tensor
    running: Tensor
    mean: Tensor
    under: Tensor
    over: Tensor

    @classmethod
    def of(cls, drafted: Tensor, wanted: Tensor, grid: ScoreGrid) -> Bins:
        """Return the sums over bins from the masses of p and q in each bin.

        Args:
            drafted, wanted: `(…, bins)` float64, the masses of p and q.
            grid: as made.
        """
        masses = torch.stack([drafted, wanted])
        running = _from_zero(masses)
        below = running[0]
        above = below[..., -1:] - below
        return cls(
            masses,
            running,
            torch.where(drafted > 0.0, wanted / drafted, grid.edges[:-1]),
            torch.where(below > _TINY, below, _NOTHING),
            torch.where(above > _TINY, above, torch.inf),
        )

    def by_level(self) -> list[Bins]:
        """Return the bins of each level, where levels are the axis before the last."""
        parts = (one.movedim(-2, 0).contiguous() for one in vars(self).values())
        return [Bins(*level) for level in zip(*parts, strict=True)]


@dataclasses.dataclass(frozen=True)
class Split:
    """The split of the law of the score at vertices among the next tokens.

    Attributes:
        mark: `(…, bins)` int64, the lower of the marks that tokens of a bin follow.
        base, slope: `(…, bins)`, base + slope·q/p is the probability of the upper one.
        mean: `(…, M)`, the mean gain of each mark's scores.
        cells: `(…, C + 1)`, the law that is split, below each edge of its cells.
        parts: `(3, …, M/2 + 1, M)`, of each mark: the mass of the scores below both ends, and how
            much of the mark's law is spread over the part.
    """

    mark: Tensor
    base: Tensor
    slope: Tensor
    mean: Tensor
    cells: Tensor
    parts: Tensor

    @classmethod
    def of(cls, law: Tensor, weight: Tensor, bins: Bins, grid: ScoreGrid) -> Split:
        """Split a law of the score for the flat clip of F q/p.

        Args:
            law: `(…, C)` float64.
            weight: `(…, 1)` float64, F.
            bins: of the vertices.
            grid: as made.
        """
        scores = _from_zero(torch.stack([law, law * grid.gain]))
        least, most, cut, linear = _levels(scores, weight, bins, grid)
        drafted, wanted = bins.masses
        marks = _marks(least, most, cut, torch.where(linear, drafted, 0.0), grid)
        mark = torch.searchsorted(marks, least, right=True).sub_(1).clamp_(0, marks.shape[-1] - 2)
        gap = marks.diff(dim=-1)
        scale = torch.where(gap > _TINY, 1.0 / gap, 0.0).gather(-1, mark)
        slope = torch.where(linear, weight * scale, 0.0)
        base = (torch.where(linear, 0.0, least) - marks.gather(-1, mark)) * scale
        upper = torch.addcmul(base * drafted, slope, wanted).clamp_(min=0.0)
        upper = torch.minimum(upper, drafted)
        follow = torch.zeros_like(marks).scatter_add_(-1, mark, drafted - upper)
        follow = follow.scatter_add_(-1, mark + 1, upper)
        z, sought = _from_zero(torch.stack([follow, follow * marks]))
        lowest = _gained(z, scores, grid)
        # levels are no further apart than the scores allow
        curves = torch.stack([z, lowest, torch.maximum(sought, lowest)])
        parts, mean = _nested(curves, grid.inside)
        return cls(mark, base, slope, mean, scores[0], parts)

    def law(self, before: Tensor, bin_: Tensor, ratio: Tensor) -> Tensor:
        """Return the law of the score `(…, C)` given the next token.

        Args:
            before: `(…, C)` float64, the law that is split.
            bin_: `(…, 1)` int64, the token's bin.
            ratio: `(…, 1)` float64, the token's q/p, a number.
        """
        mark, base, slope = (part.gather(-1, bin_) for part in (self.mark, self.base, self.slope))
        upper = torch.addcmul(base, slope, ratio).clamp_(0.0, 1.0)
        both = torch.cat([mark, mark + 1], dim=-1)[..., None, :]
        chance = torch.cat([1.0 - upper, upper], dim=-1)[..., None, :]
        low, high, share = self.parts.gather(-1, both.expand(*self.parts.shape[:-1], 2))
        dense = (chance * share / (high - low).clamp_(min=_TINY)).flatten(-2)
        low, high = (end.flatten(-2)[..., None] for end in (low, high))
        spread = torch.minimum(torch.maximum(self.cells[..., None, :], low), high)
        found = (dense[..., None] * spread).sum(dim=-2).diff(dim=-1).clamp_(min=0.0)
        total = found.sum(dim=-1, keepdim=True)
        # a token too unlikely to have a width of scores shares all of them
        return torch.where(total > 0.0, found / total, before)


def winning_levels(splits: Sequence[Split], masses: Tensor) -> Tensor:
    """Return the levels of the winner's law along L vertices, `(2, …, L, bins)`.

    The winner's next token has the law c p + d q, with c and d the two levels of its bin of q/p.

    Args:
        splits: of each vertex.
        masses: `(2, …, L, bins)` float64, p and q in each bin.
    """
    mark, base, slope, mean = (
        torch.stack(one, dim=-2)
        for one in zip(*((x.mark, x.base, x.slope, x.mean) for x in splits), strict=True)
    )
    step = mean.diff(dim=-1).gather(-1, mark)
    first = torch.addcmul(mean.gather(-1, mark), base, step)
    level = torch.stack([first, slope * step])
    return level / (level * masses).sum(dim=(0, -1), keepdim=True)


def _levels(
    scores: Tensor, weight: Tensor, bins: Bins, grid: ScoreGrid
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the range of levels in each bin, the cut, and the bins in which levels are linear.

    The least and the largest level are `(…, bins)`, the cut is `(…, 1)`, the first bin above it;
    tokens of a linear bin `(…, bins)` have levels of their own.

    Args:
        scores: `(2, …, C + 1)`, mass and moment of the scores below the edges of the cells.
        weight: `(…, 1)`, F.
        bins: of the vertices.
        grid: as made.
    """
    edges = weight * grid.edges
    least, most = edges[..., :-1], edges[..., 1:]
    sought = weight * bins.running[1]
    lack, cut = (sought - _gained(bins.running[0], scores, grid)).min(dim=-1, keepdim=True)
    # every edge bounds the floor from above and the cap from below, the right ones with equality
    above = grid.place >= cut
    lifted = (sought - lack) / bins.under
    lowered = (scores[1, ..., -1:] + lack - sought) / bins.over
    floor = torch.where(grid.place <= cut, lifted, torch.inf).amin(dim=-1, keepdim=True)
    cap = torch.where(above, lowered, 0.0).amax(dim=-1, keepdim=True)
    # of sharp models a side of the cut may hold next to nothing, and nothing then bounds its levels
    floor = torch.where(floor < _NO_LEVEL, floor, 0.0)
    cap = torch.where(cap > 0.0, cap, torch.inf)
    above = above[..., :-1]
    linear = torch.where(above, most <= cap, least >= floor) & grid.bounded
    mean = weight * bins.mean
    level = torch.where(above, torch.minimum(mean, cap), torch.maximum(mean, floor)).clamp_(min=0.0)
    return (
        torch.where(linear, least, level),
        torch.where(linear, most, level),
        cut,
        linear,
    )


def _marks(least: Tensor, most: Tensor, cut: Tensor, free: Tensor, grid: ScoreGrid) -> Tensor:
    """Return ascending marks `(…, 2 (groups + 1))`: ends and inner levels below and above the cut.

    The inner levels divide the free mass between the ends into groups.
    """
    mass = _from_zero(free)
    middle, last = mass.gather(-1, cut), least.shape[-1] - 1
    whole = torch.lerp(middle, mass[..., -1:], grid.quantiles)
    sought = torch.cat([middle * grid.quantiles, whole], dim=-1)
    inner = torch.searchsorted(mass, sought, right=True).sub_(1)
    from_ = torch.cat([inner, cut], dim=-1).clamp_(0, last)
    to = (cut - 1).clamp_(min=0)
    marks = least[..., :1], least.gather(-1, from_), most.gather(-1, to), most[..., -1:]
    return torch.cat(marks, dim=-1).sort(dim=-1).values


def _nested(curves: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
    """Return the nested parts of each mark, `(3, …, M/2 + 1, M)`, and the mean level of each mark.

    Args:
        curves: `(3, …, M + 1)` along the marks: their mass, the moment of the lowest scores of
            that mass, and the moment that is sought, not less.
        inside: `(M + 1, M + 1, M + 1)`, whether the third lies between the first and the second.
    """
    size = curves.shape[-1]
    # of the run from a to b, at every c in it: what spreading its scores evenly gives too much, and
    # what the lowest ones would take away; the largest quotient is where the run falls in two
    run = curves[..., None, :] - curves[..., None]
    width, gained = run[0], run[1:]
    even = gained / width.clamp(min=_TINY)
    spare = width[..., None, :] * even[..., None] - gained[..., None, :]
    room, lack = spare
    falls = (torch.minimum(room, lack) > _TINY) & inside
    most, split = torch.where(falls, lack / room, 0.0).flatten(-3, -2).max(dim=-1)
    place = torch.arange(size - 1, device=curves.device)
    first = torch.zeros_like(split[..., : size - 1])
    end = first + (size - 1)
    factor = torch.ones_like(most[..., : size - 1])
    runs: list[Tensor] = []
    shares: list[Tensor] = []
    # one side of the cut has half of the marks
    for _ in range((size - 1) // 2):
        runs.append(first * size + end)
        shares.append((factor * most.gather(-1, runs[-1])).clamp_(max=1.0))
        where = split.gather(-1, runs[-1])
        after = place >= where
        first, end = torch.where(after, where, first), torch.where(after, end, where)
        factor = factor / shares[-1].clamp(min=_TINY)
    runs.append(first * size + end)
    every = torch.stack(runs, dim=-2)
    left = torch.nn.functional.pad(torch.stack(shares, dim=-2), (0, 0, 1, 1))
    left[..., 0, :] = 1.0
    reached = left[..., :-1, :].cumprod(dim=-2)
    spread = reached * (1.0 - left[..., 1:, :])
    at = curves[0][..., None, :].expand(*every.shape[:-1], size)
    ends = at.gather(-1, every // size), at.gather(-1, every % size)
    level = even[0].flatten(-2)[..., None, :].expand(*every.shape[:-1], size * size)
    mean = (spread * level.gather(-1, every)).sum(dim=-2)
    return torch.stack([*ends, spread]), mean


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
        candidates: `(B, n)` int64, the nodes' tokens, node 0 the root; −1 where there is no draft.
        paths: `(B, K, L)` int64, the nodes of each sequence. A sequence may end early, with −1 as
            candidate, where a rule for its own tokens ends it, or one for all sequences.
        target: `(B, n, V)` float32 or float64, the target's next-token probabilities after each
            node.
        draft: `(B, m, V')` of the target's type, V' ≤ V, the probabilities by which the children
            of nodes 0..m − 1 were drawn.
        uniforms: `(B, n)` float32 or float64 in [0, 1); column i − 1 tests node i, the last
            draws the winner.
        final: `(B,)` float32 or float64 in [0, 1), draws the token after the accepted drafts.
        grid: for K sequences.
        over: makes the rows: `TorchRows`, or others of `analysis.kernels.vocabulary.Rows`.
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
    """The scores of all sequences: the chance of each to win, and the law of the winner.

    Attributes:
        wins: `(B, K)`, the probability that a sequence's score is the largest.
        levels: `(2, B, K, L, bins)`, of the winner's law along each sequence.
        sound: `(B,)`, whether all of them are numbers.
    """

    wins: Tensor
    levels: Tensor
    sound: Tensor

    @classmethod
    def of(cls, candidates: Tensor, paths: Tensor, both: Rows, grid: ScoreGrid) -> Scored:
        """Refine the scores along all sequences, level by level.

        Args:
            candidates: `(B, n)` int64, the nodes' tokens; −1 where there is no draft.
            paths: `(B, K, L)` int64, the nodes of each sequence.
            both: the rows of both models.
            grid: for K sequences.
        """
        size, k, length = paths.shape
        above = torch.nn.functional.pad(paths[..., :-1], (1, 0)).flatten(1)
        tokens = candidates.gather(1, paths.flatten(1))
        q, p = both.entries(above, tokens.clamp(min=0))
        shape = size, k, length, 1
        ratio, bin_ = ratios(q, p).view(shape).unbind(2), grid.bins(q, p).view(shape).unbind(2)
        alive = (tokens >= 0).view(shape).cumprod(dim=2).bool().unbind(2)
        p_sums, q_sums = (rows(one, above).view(size, k, length, -1) for one in both.bin_sums(grid))
        bins = Bins.of(p_sums, q_sums, grid)
        law = grid.mass.expand(size, k, -1)
        weight = torch.ones_like(law[..., :1])
        splits = []
        for i, vertices in enumerate(bins.by_level()):
            splits.append(Split.of(law, weight, vertices, grid))
            refined = splits[-1].law(law, bin_[i], ratio[i])
            gain = (refined * grid.gain).sum(dim=-1, keepdim=True)
            law = torch.where(alive[i], refined, law)
            weight = torch.where(alive[i], torch.minimum(weight * ratio[i], gain), weight)
        wins = win_probabilities(law, torch.ones_like(alive[0][..., 0]), grid)
        sound = (wins + weight[..., 0]).isfinite().all(dim=-1)
        return cls(wins, winning_levels(splits, bins.masses), sound)

    def selected(self, sequence: Tensor, grid: ScoreGrid) -> Selected:
        """Return the law of the winner's next tokens along a sequence.

        Args:
            sequence: `(B, 1)` int64, the number of the sequence.
            grid: for K sequences.
        """
        by = sequence[..., None, None].expand(-1, -1, *self.levels.shape[3:])
        return Selected(torch.stack([one.gather(1, by)[:, 0] for one in self.levels]), grid)


def win_probabilities(laws: Tensor, live: Tensor, grid: ScoreGrid) -> Tensor:
    """Return the probability of each live score to be the largest, `(B, K)`.

    Args:
        laws: `(B, K, C)` float64.
        live: `(B, K)` bool, whether there is such a score; at least one.
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
    """Return running sums along the last axis, begun with 0."""
    return torch.nn.functional.pad(parts.cumsum(dim=-1), (1, 0))


def _gained(at: Tensor, scores: Tensor, grid: ScoreGrid) -> Tensor:
    """Return the moment of the lowest scores of masses `(…, m)`.

    Args:
        at: the masses.
        scores: `(2, …, C + 1)`, mass and moment below the edges of the cells.
        grid: whose gain is the moment's slope in each cell.
    """
    cell = torch.searchsorted(scores[0], at, right=True).sub_(1).clamp_(0, scores.shape[-1] - 2)
    mass, moment = scores.gather(-1, cell.expand(2, *cell.shape))
    gain = grid.gain.expand(*cell.shape[:-1], -1).gather(-1, cell)
    return torch.addcmul(moment, at - mass, gain)


def ratios(target: Tensor, draft: Tensor) -> Tensor:
    """Return q/p of drafts in float64, a number for any p > 0, else NaN.

    Args:
        target, draft: `(…)` float32 or float64, q and p of the drafts.
    """
    return torch.where(draft > 0.0, target.double() / draft, torch.nan).clamp_(max=_MOST)
