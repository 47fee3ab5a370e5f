"""Operations of a step on rows as long as the vocabulary: entries, sums of bins, masses, a token.

All else that is decided is small and written once, by `chain`, `scores` and the like. The
rows themselves are read here, by torch (`TorchRows`), or by Triton (`triton_rows`), and a
vocabulary may lie on several devices: each has some of its tokens (`Shard`), what they add up to is
added over the devices, and nothing else travels.

    total = Σ (w q − c min(s, w q))     at a row, s a multiple of the draft's law or that of winners
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import final

import torch

from .grid import ScoreGrid
from .step import Shard, Tensor, drafted_by, entries, find, rows

_LARGEST = 1e38
"""A number of float32; a multiple of p that is larger divides q instead."""

_CHUNK = 2**20
"""Probabilities that are worked on at once: bounds the memory besides the rows."""

_BINNED = 2**17
"""The same where bins are summed: their numbers and sums then stay in a cache."""

RUN = 1024
"""Tokens of a run; sums over runs lead to the run in which a token is sought."""


@dataclasses.dataclass(frozen=True)
class Selected:
    """The law of winners at rows, c p + d q by bins of q/p.

    Attributes:
        levels: `(2, B, k, bins)` float64, c and d.
        grid: of the bins.
    """

    levels: Tensor
    grid: ScoreGrid

    def at(self, target: Tensor, draft: Tensor) -> Tensor:
        """Return the winners' probabilities of entries with masses q and p, `(B, k, …)`.

        Args:
            target, draft: `(B, k, …)` float32 or float64, q and p.
        """
        index = self.grid.bins(target, draft).view(*draft.shape[:2], -1)
        constant, slope = (
            one.to(draft.dtype).gather(-1, index).view_as(draft) for one in self.levels
        )
        found: Tensor = constant.mul_(draft).add_(slope.mul_(target))
        return found.clamp_(min=0.0)

    def some(self, places: slice) -> Selected:
        """Return the law at some of the rows."""
        return Selected(self.levels[:, :, places], self.grid)

    def one(self, place: Tensor) -> Selected:
        """Return the law at one row of each request.

        Args:
            place: `(B, 1)` int64, the row's place among the k.
        """
        by = place[None, ..., None].expand(2, -1, -1, self.levels.shape[-1])
        return Selected(self.levels.gather(2, by), self.grid)


@dataclasses.dataclass(frozen=True)
class Excess:
    """The masses w q − c min(s, w q) at k rows of each request.

    Attributes:
        nodes: `(B, k)` int64.
        weight: `(B, k)` float32 or float64, w.
        share: `(B, k)`, c in [0, 1]; s is not read where it is 0; 1 if None.
        selected: s, at the same rows; the draft's law p if None.
        scale: `(B, k)`, by which p is multiplied; 1 if None.
        alone: whether c is 0 everywhere.
        same: the nodes, where all requests have the same run of them; saves torch a copy.
    """

    nodes: Tensor
    weight: Tensor
    share: Tensor | None = None
    selected: Selected | None = None
    scale: Tensor | None = None
    alone: bool = False
    same: range | None = None

    @classmethod
    def after(cls, nodes: Tensor, taken: Tensor) -> Excess:
        """Return masses in the ratio of (q − c p)₊, q where c = 0.

        Args:
            nodes: `(B, k)` int64.
            taken: `(B, k)` float32 or float64, c ≥ 0.
        """
        scale = taken.clamp(max=_LARGEST)
        weight = torch.where(taken == scale, 1.0, scale / taken)
        return cls(nodes, weight, (taken != 0.0).to(weight.dtype), scale=scale)

    def some(self, places: slice) -> Excess:
        """Return the masses at some of the rows."""
        return Excess(
            self.nodes[:, places],
            self.weight[:, places],
            None if self.share is None else self.share[:, places],
            None if self.selected is None else self.selected.some(places),
            None if self.scale is None else self.scale[:, places],
            self.alone,
            None if self.same is None else self.same[places],
        )


class Rows(abc.ABC):
    """The rows of both models, or a shard of the rows.

    Args:
        target: `(B, n, V)` float32 or float64.
        draft: `(B, m, V')` of the same type, or None where drafts are sure.
        sure: `(B, m)` int64, the sure drafts.
        shard: the tokens of these rows; all if None.
    """

    def __init__(
        self, target: Tensor, draft: Tensor | None, sure: Tensor, *, shard: Shard | None = None
    ) -> None:
        self.shard = shard
        self.first = 0 if shard is None else shard.first
        self.target = target.detach().contiguous()
        self.draft = drafted_by(draft, sure - self.first, target).detach().contiguous()

    @abc.abstractmethod
    def _bin_sums(self, grid: ScoreGrid, nodes: Tensor | None) -> Tensor:
        """Return Σ p and Σ q in each bin, `(2, B, k, bins)`."""

    @abc.abstractmethod
    def _totals(self, excess: Excess) -> Tensor:
        """Return the mass of each chunk of these tokens, `(B, k, chunks)`."""

    @abc.abstractmethod
    def _both_totals(self, excess: Excess) -> Tensor:
        """Return the chunks' masses, and the masses of q alone, `(2, B, chunks)`, of one row."""

    @abc.abstractmethod
    def _find(self, excess: Excess, chunk: Tensor, sought: Tensor) -> Tensor:
        """Return the token `(B,)` at which a chunk's running mass exceeds a number, both `(B, 1)`,
        of one row; the last with mass if there is none.
        """

    def entries(self, nodes: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return q and p `(B, k)` of tokens at nodes, p from the last row of the draft at most.

        Args:
            nodes, tokens: `(B, k)` int64.
        """
        place = (tokens - self.first).clamp(0, self.target.shape[-1] - 1)
        drafted = entries(self.draft, self.drafted(nodes), place)
        found = entries(self.target, nodes, place), drafted
        if self.shard is None:
            return found
        both = torch.where(place + self.first == tokens, torch.stack(found), 0.0)
        self.shard.all_reduce(both)
        return both[0], both[1]

    def bin_sums(self, grid: ScoreGrid, nodes: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return Σ p and Σ q of each bin, over Σ p in float64, `(B, k, bins)` twice.

        Args:
            grid: of the bins.
            nodes: `(B, k)` int64; all of the draft's if None.
        """
        sums = self._bin_sums(grid, nodes)
        if self.shard is not None:
            self.shard.all_reduce(sums)
        drafted, wanted = sums.double()
        # the last bin holds what is never drafted, too
        wanted = torch.cat([wanted[..., :-1], grid.edges[-1] * drafted[..., -1:]], dim=-1)
        whole = drafted.sum(dim=-1, keepdim=True)
        return drafted / whole, wanted / whole

    def total(self, excess: Excess) -> Tensor:
        """Return the mass at each row, `(B, k)`.

        Args:
            excess: `(B, k)` rows.
        """
        found = self._totals(excess).sum(dim=-1)
        if self.shard is not None:
            self.shard.all_reduce(found)
        return found

    def left(self, nodes: Tensor, taken: Tensor) -> Tensor:
        """Return Σ (q − c p)₊ for c > 0, `(B, k)`.

        Args:
            nodes: `(B, k)` int64.
            taken: `(B, k)` float32 or float64, c.
        """
        after = Excess.after(nodes, taken)
        return self.total(dataclasses.replace(after, share=None)) / after.weight

    def rest(self, nodes: Tensor, tokens: Tensor, gone: Tensor) -> Tensor:
        """Return Σ p over all tokens that are not gone, `(B, 1)`.

        It is summed over these, as it may be tiny.

        Args:
            nodes: `(B, 1)` int64.
            tokens: `(B, n)` int64.
            gone: `(B, n)` bool, which of the tokens are gone.
        """
        row = torch.nn.functional.pad(rows(self.draft, self.drafted(nodes))[:, 0], (0, 1))
        found = row.scatter_(1, self._own(tokens, gone), 0.0).sum(dim=1, keepdim=True)
        if self.shard is not None:
            self.shard.all_reduce(found)
        return found

    def without(self, nodes: Tensor, tokens: Tensor, gone: Tensor) -> Excess:
        """Return masses of q without some tokens, written to the draft's rows, one of zeros each.

        Args:
            nodes: `(B, 1)` int64.
            tokens: `(B, n)` int64.
            gone: `(B, n)` bool, which of the tokens are gone.
        """
        row = torch.nn.functional.pad(self.draft[:, 0], (0, 1))
        self.draft = row.scatter_(1, self._own(tokens, gone), 1.0)[:, None, :-1].contiguous()
        return Excess(nodes, torch.ones_like(row[:, :1]))

    def _own(self, tokens: Tensor, gone: Tensor) -> Tensor:
        """Return the places of the gone tokens in these rows, for others the place past the end."""
        own = tokens - self.first
        inside = gone & (own >= 0) & (own < self.target.shape[-1])
        return torch.where(inside, own, self.target.shape[-1])

    def drafted(self, nodes: Tensor) -> Tensor:
        """Clip nodes to the last node with a row of the draft.

        Args:
            nodes: `(B, k)` int64.
        """
        return nodes.clamp(max=self.draft.shape[1] - 1)

    def draw(self, excess: Excess, final: Tensor) -> tuple[Tensor, Tensor]:
        """Draw a token `(B,)` by the masses of one row, from q where all are 0, and return the sum.

        Args:
            excess: `(B, 1)` rows.
            final: `(B,)` float32 or float64 in [0, 1).
        """
        both = self._both_totals(excess)
        parts = both.sum(dim=-1)[..., None]
        if self.shard is not None:
            parts = self.shard.side_by_side(parts[..., 0])
        # without any excess the models agree, and only rounding rejected what follows
        none = parts[0].sum(dim=-1, keepdim=True) == 0.0
        share = none.logical_not() if excess.share is None else excess.share.masked_fill(none, 0.0)
        weight = excess.weight.masked_fill(none, 1.0)
        excess = Excess(excess.nodes, weight, share, excess.selected, excess.scale)
        chunks, parts = torch.where(none, both[1], both[0]), torch.where(none, parts[1], parts[0])
        total = parts.sum(dim=-1, keepdim=True)
        rank, sought = _place(parts, (final[:, None] * total).to(total.dtype))
        token = self._find(excess, *_place(chunks, sought))
        if self.shard is not None:
            token = torch.where(rank[:, 0] == self.shard.rank, token + self.first, 0)
            self.shard.all_reduce(token)
        return token, total[:, 0]


def _place(parts: Tensor, sought: Tensor) -> tuple[Tensor, Tensor]:
    """Return the part of `(B, m)` in which a running mass lies, and the distance into the part."""
    if parts.shape[1] == 1:
        return torch.zeros_like(sought, dtype=torch.int64), sought
    running = parts.cumsum(dim=-1)
    place = find(parts, running, sought)
    return place, sought - (running.gather(1, place) - parts.gather(1, place))


Over = Callable[[Tensor, Tensor | None, Tensor], Rows]
"""Makes rows: `TorchRows`, say, or a `functools.partial` of it for a shard."""


@final
class TorchRows(Rows):
    """Rows read by torch, in a few passes over parts that fit into a cache."""

    def _bin_sums(self, grid: ScoreGrid, nodes: Tensor | None) -> Tensor:
        size, height, num_tokens = self.draft.shape
        number = height if nodes is None else nodes.shape[1]
        step = max(1, _BINNED // (size * num_tokens))
        # bins as they are numbered by bits: what is below the first is never reached
        sums = self.draft.new_zeros((2, size, number, grid.lowest + len(grid.edges) - 1))
        for start in range(0, number, step):
            some = slice(start, min(start + step, number))
            q, p = (
                one[:, some] if nodes is None else rows(one, nodes[:, some])
                for one in (self.target, self.draft)
            )
            index = grid.leading_bits(q, p).long()
            for one, masses in zip(sums[:, :, some], (p, q), strict=True):
                one.scatter_add_(-1, index, masses)
        return sums[..., grid.lowest :]

    def _totals(self, excess: Excess) -> Tensor:
        size, number = excess.nodes.shape
        step = max(1, _CHUNK // (size * self.target.shape[-1]))
        parts = [
            _masses(excess.some(slice(start, start + step)), *self._at(excess, start, step)).sum(
                dim=-1, keepdim=True
            )
            for start in range(0, number, step)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def _both_totals(self, excess: Excess) -> Tensor:
        q, p = self._at(excess, 0, 1)
        return torch.stack([_sums(_masses(excess, q, p)), _sums(q)])[:, :, 0]

    def _find(self, excess: Excess, chunk: Tensor, sought: Tensor) -> Tensor:
        return find_in_run(self, excess, chunk, sought)

    def _at(self, excess: Excess, start: int, step: int) -> tuple[Tensor, Tensor]:
        """Return q and p, `(B, k, V)`, at some of an excess's rows."""
        if excess.same is not None:
            same = excess.same[start : start + step]
            return self.target[:, same.start : same.stop], self.draft[:, same.start : same.stop]
        nodes = excess.nodes[:, start : start + step]
        return rows(self.target, nodes), rows(self.draft, self.drafted(nodes))


def find_in_run(read: Rows, excess: Excess, run: Tensor, sought: Tensor) -> Tensor:
    """Return the token `(B,)` at which a run's running mass exceeds a number, int64.

    Args:
        read: the rows.
        excess: `(B, 1)` rows, whose masses are summed.
        run: `(B, 1)` int64, the number of the run.
        sought: `(B, 1)` float32 or float64, the number.
    """
    place = torch.arange(min(RUN, read.target.shape[-1]), device=run.device)
    token = run * RUN + place
    inside = token.clamp(max=read.target.shape[-1] - 1)
    q = entries(read.target, excess.nodes, inside)[:, None]
    p = entries(read.draft, read.drafted(excess.nodes), inside)[:, None]
    mass = _masses(excess, q, p)[:, 0].masked_fill_(token != inside, 0.0)
    return find(mass, mass.cumsum(dim=-1), sought)[:, 0] + run[:, 0] * RUN


def _sums(masses: Tensor) -> Tensor:
    """Return the sums `(B, k, chunks)` of runs of `RUN` of masses `(B, k, V)`."""
    whole = masses.shape[-1] // RUN * RUN
    if not whole:
        return masses.sum(dim=-1, keepdim=True)
    runs: Tensor = masses[..., :whole].unflatten(-1, (-1, RUN)).sum(dim=-1)
    if whole == masses.shape[-1]:
        return runs
    return torch.cat([runs, masses[..., whole:].sum(dim=-1, keepdim=True)], dim=-1)


def _masses(excess: Excess, q: Tensor, p: Tensor) -> Tensor:
    """Return the masses `(B, k, …)` of an excess at entries with masses q and p."""
    mass = q * excess.weight[..., None].to(q.dtype)
    if excess.alone:
        return mass
    law = p if excess.selected is None else excess.selected.at(q, p)
    if excess.scale is not None:
        law = law * excess.scale[..., None].to(law.dtype)
    if excess.share is None:
        over: Tensor = mass.sub_(law).relu_()
        return over
    # where c is 0, nothing of the draft's row is read
    share = excess.share[..., None].to(q.dtype)
    taken = torch.minimum(torch.where(share > 0.0, law, 0.0), mass)
    kept: Tensor = mass.addcmul_(taken, share, value=-1)
    return kept
