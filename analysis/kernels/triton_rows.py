"""Rows and races read by Triton, where each program reads a chunk of a row once.

    block(candidates, target, draft, uniforms, final, over=TritonRows)

Three passes are all that verification asks of the vocabulary (`vocabulary`): sums of bins, added by
atomics, totals of chunks, and the token in one of them; levels of winners are looked up on the way.
The fourth draws the noise that a race needs where it needs it, so that no row of noise is written.
With `TRITON_INTERPRET=1` in the environment they run on the CPU, slowly.
"""

from typing import Any, final

import torch
import triton
import triton.language as tl

from .grid import ScoreGrid
from .step import Shard, Tensor
from .vocabulary import Excess, Rows

_BLOCK = 1024
_CHUNK = 4 * _BLOCK
"""Tokens that a program reads in all, `_BLOCK` at once."""

_ROUNDS = tl.constexpr(10)


@triton.jit
def _masses(
    target: Any,
    draft: Any,
    levels: Any,
    slopes: Any,
    weight: Any,
    share: Any,
    scale: Any,
    token: Any,
    num_tokens: Any,
    lowest: Any,
    last: Any,
    SHIFT: tl.constexpr,
    ALONE: tl.constexpr,
    SELECTED: tl.constexpr,
) -> Any:
    """Return w q − c min(s, w q) of tokens, 0 beyond the last."""
    inside = token < num_tokens
    q = tl.load(target + token, mask=inside, other=0.0)
    mass = weight.to(q.dtype) * q
    if not ALONE:
        # where c is 0, nothing of the draft's row is read
        drafted = inside & (tl.broadcast_to(share, token.shape) > 0.0)
        law = scale.to(q.dtype) * tl.load(draft + token, mask=drafted, other=0.0)
        if SELECTED:
            bin_ = _bins(q, law, lowest, last, SHIFT)
            constant = tl.load(levels + bin_, mask=drafted, other=0.0)
            slope = tl.load(slopes + bin_, mask=drafted, other=0.0)
            law = tl.maximum(constant * law + slope * q, 0.0, tl.PropagateNan.ALL)
        mass -= share.to(q.dtype) * tl.minimum(law, mass, tl.PropagateNan.ALL)
    return mass


@triton.jit
def _bins(q: Any, p: Any, lowest: Any, last: Any, SHIFT: tl.constexpr) -> Any:
    """Return the bins of q/p, as `ScoreGrid.bins` does."""
    divisor = tl.where(p > 0.0, p, 1.0)
    # a quotient that is rounded otherwise than torch's has another bin at a bin's end
    ratio = tl.div_rn(q, divisor) if q.dtype == tl.float32 else q / divisor
    # a NaN has the last bin, too
    ratio = tl.where((p > 0.0) & (ratio <= 1e30), ratio, 1e30)
    found = (tl.cast(ratio.to(tl.float32), tl.int32, bitcast=True) >> SHIFT) - lowest
    return tl.minimum(tl.maximum(found, 0), last)


@triton.jit
def _sum_bins(
    target: Any,
    draft: Any,
    nodes: Any,
    drafted: Any,
    wanted: Any,
    number: Any,
    height: Any,
    drafted_height: Any,
    num_tokens: Any,
    lowest: Any,
    last: Any,
    SHIFT: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
) -> None:
    """Add a chunk of a row to the sums of bins."""
    row = tl.program_id(0)
    request, node = (row // number).to(tl.int64), tl.load(nodes + row)
    target += (request * height + node) * num_tokens
    draft += (request * drafted_height + node) * num_tokens
    for start in range(0, CHUNK, BLOCK):
        token = tl.program_id(1) * CHUNK + start + tl.arange(0, BLOCK)
        inside = token < num_tokens
        q = tl.load(target + token, mask=inside, other=0.0)
        p = tl.load(draft + token, mask=inside, other=0.0)
        place = row * (last + 1) + _bins(q, p, lowest, last, SHIFT)
        tl.atomic_add(drafted + place, p, mask=inside & (p != 0.0))
        tl.atomic_add(wanted + place, q, mask=inside & (q != 0.0))


@triton.jit
def _sum_chunks(
    target: Any,
    draft: Any,
    nodes: Any,
    weights: Any,
    shares: Any,
    scales: Any,
    levels: Any,
    slopes: Any,
    totals: Any,
    number: Any,
    height: Any,
    drafted_height: Any,
    num_tokens: Any,
    lowest: Any,
    last: Any,
    SHIFT: tl.constexpr,
    ALONE: tl.constexpr,
    SELECTED: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
) -> None:
    """Write the mass of a chunk of a row."""
    row, chunk = tl.program_id(0), tl.program_id(1)
    request, node = (row // number).to(tl.int64), tl.load(nodes + row)
    target += (request * height + node) * num_tokens
    draft += (request * drafted_height + tl.minimum(node, drafted_height - 1)) * num_tokens
    weight, share, scale = tl.load(weights + row), tl.load(shares + row), tl.load(scales + row)
    levels += row * (last + 1)
    slopes += row * (last + 1)
    found = tl.zeros((BLOCK,), totals.dtype.element_ty)
    for start in range(0, CHUNK, BLOCK):
        token = chunk * CHUNK + start + tl.arange(0, BLOCK)
        found += _masses(
            target, draft, levels, slopes, weight, share, scale, token, num_tokens, lowest, last,
            SHIFT, ALONE, SELECTED,
        )  # fmt: skip
    tl.store(totals + row * tl.num_programs(1) + chunk, tl.sum(found))


@triton.jit
def _search(
    target: Any,
    draft: Any,
    nodes: Any,
    weights: Any,
    shares: Any,
    scales: Any,
    levels: Any,
    slopes: Any,
    chunks: Any,
    seeks: Any,
    tokens: Any,
    height: Any,
    drafted_height: Any,
    num_tokens: Any,
    lowest: Any,
    last: Any,
    SHIFT: tl.constexpr,
    SELECTED: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
) -> None:
    """Write the first token of a chunk at which the running mass exceeds the sought mass."""
    row = tl.program_id(0)
    request, node = row.to(tl.int64), tl.load(nodes + row)
    target += (request * height + node) * num_tokens
    draft += (request * drafted_height + tl.minimum(node, drafted_height - 1)) * num_tokens
    weight, share, scale = tl.load(weights + row), tl.load(shares + row), tl.load(scales + row)
    levels += row * (last + 1)
    slopes += row * (last + 1)
    chunk, sought = tl.load(chunks + row), tl.load(seeks + row)
    found, before, end = num_tokens, sought * 0.0, tl.zeros((), tl.int32)
    for start in range(0, CHUNK, BLOCK):
        token = chunk.to(tl.int32) * CHUNK + start + tl.arange(0, BLOCK)
        mass = _masses(
            target, draft, levels, slopes, weight, share, scale, token, num_tokens, lowest, last,
            SHIFT, False, SELECTED,
        )  # fmt: skip
        running = before + tl.cumsum(mass)
        passed = (running > sought) & (mass > 0.0)
        found = tl.minimum(found, tl.min(tl.where(passed, token, num_tokens)))
        end = tl.maximum(end, tl.max(tl.where(mass > 0.0, token, 0)))
        before += tl.sum(mass)
    tl.store(tokens + row, tl.where(found < num_tokens, found, end).to(tl.int64))


@triton.jit
def _race(
    laws: Any,
    seeds: Any,
    positions: Any,
    best: Any,
    winner: Any,
    first: Any,
    num_tokens: Any,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
) -> None:
    """Write the largest log q + g of a chunk of a row, and the token of that value."""
    row, chunk = tl.program_id(0), tl.program_id(1)
    seed, position = tl.load(seeds + row), tl.load(positions + row)
    laws += row.to(tl.int64) * num_tokens
    most, token = tl.full((), float("-inf"), tl.float64), tl.zeros((), tl.int32)
    for start in range(0, CHUNK, BLOCK):
        # a block of noise is for a pair of tokens, the first of them even
        pair = first // 2 + (chunk * CHUNK + start + tl.arange(0, BLOCK)) // 2
        place = 2 * pair + tl.arange(0, BLOCK) % 2 - first
        words = pair.to(tl.uint32), position.to(tl.uint32), (position >> 32).to(tl.uint32)
        low, high, low2, high2 = tl.philox(
            seed.to(tl.uint64), words[0], words[1], words[2], 0, _ROUNDS
        )
        even = tl.arange(0, BLOCK) % 2 == 0
        low = tl.where(even, low, low2).to(tl.uint32).to(tl.int64)
        high = tl.where(even, high, high2).to(tl.uint32).to(tl.int64)
        uniform = (((low >> 12) | (high << 20)).to(tl.float64) + 0.5) * 2.220446049250313e-16
        inside = (place >= 0) & (place < num_tokens)
        law = tl.load(laws + place, mask=inside, other=float("-inf")).to(tl.float64)
        score = law - tl.log(-tl.log(uniform))
        # the largest of several leaves NaN out: nothing is larger than what stands for one
        here = tl.max(tl.where(law == law, score, float("inf")))
        at = tl.min(tl.where(score == here, place, num_tokens - 1))
        token = tl.where(here > most, at, token)
        most = tl.maximum(most, here)
    tl.store(best + row * tl.num_programs(1) + chunk, most)
    tl.store(winner + row * tl.num_programs(1) + chunk, token.to(tl.int64))


@final
class TritonRows(Rows):
    """Rows read by Triton, chunk by chunk at once, with the same sums as torch up to rounding."""

    def _bin_sums(self, grid: ScoreGrid, nodes: Tensor | None) -> Tensor:
        size, height, num_tokens = self.draft.shape
        if nodes is None:
            nodes = torch.arange(height, device=self.draft.device).expand(size, -1)
        number = nodes.shape[1]
        sums = self.draft.new_zeros((2, size, number, len(grid.edges) - 1))
        _sum_bins[size * number, triton.cdiv(num_tokens, _CHUNK)](
            self.target,
            self.draft,
            nodes.contiguous(),
            *sums,
            number,
            self.target.shape[1],
            height,
            num_tokens,
            grid.lowest,
            sums.shape[-1] - 1,
            SHIFT=grid.shift,
            BLOCK=_BLOCK,
            CHUNK=_CHUNK,
        )
        return sums

    def _totals(self, excess: Excess) -> Tensor:
        size, number = excess.nodes.shape
        chunks = triton.cdiv(self.target.shape[-1], _CHUNK)
        totals = self.target.new_empty((size, number, chunks))
        given, grid, more = self._given(excess)
        _sum_chunks[size * number, chunks](
            *given, totals, number, *grid, ALONE=excess.alone, **more
        )
        return totals

    def _both_totals(self, excess: Excess) -> Tensor:
        whole = Excess(excess.nodes, torch.ones_like(excess.weight), alone=True)
        return torch.stack([self._totals(excess), self._totals(whole)])[:, :, 0]

    def _find(self, excess: Excess, chunk: Tensor, sought: Tensor) -> Tensor:
        tokens = torch.empty_like(chunk[:, 0])
        given, grid, more = self._given(excess)
        sought = sought.to(self.target.dtype).contiguous()
        _search[(len(tokens),)](*given, chunk.contiguous(), sought, tokens, *grid, **more)
        return tokens

    def _given(self, excess: Excess) -> tuple[tuple[Any, ...], tuple[Any, ...], dict[str, Any]]:
        """Return the arguments that both mass kernels read, in order."""
        selected = excess.selected
        share, scale = (
            torch.ones_like(excess.weight) if one is None else one
            for one in (excess.share, excess.scale)
        )
        # what is not read is any tensor
        levels = self.target, self.target
        grid, last = (0, 0), 0
        if selected is not None:
            levels = tuple(selected.levels.to(self.target.dtype).contiguous())
            grid, last = (selected.grid.lowest, selected.grid.shift), levels[0].shape[-1] - 1
        sizes = self.target.shape[1], self.draft.shape[1], self.target.shape[2], grid[0], last
        rows = excess.nodes, excess.weight, share, scale
        more = {"SHIFT": grid[1], "SELECTED": selected is not None}
        more |= {"BLOCK": _BLOCK, "CHUNK": _CHUNK}
        given = self.target, self.draft, *(one.contiguous() for one in rows), *levels
        return given, sizes, more


def winners(
    log_q: Tensor, seeds: Tensor, positions: Tensor, *, shard: Shard | None = None
) -> tuple[Tensor, Tensor]:
    """Return max (log q + g) and the winning token, `(…)` each, g the noise of `noise.noise_rows`.

    Args:
        log_q: `(…, V)` of any floating type.
        seeds, positions: `(…)` int64.
        shard: the tokens of these rows; all if None.
    """
    laws = log_q.reshape(-1, log_q.shape[-1]).contiguous()
    of_rows = (torch.broadcast_to(one, log_q.shape[:-1]).reshape(-1) for one in (seeds, positions))
    first = 0 if shard is None else shard.first
    # from an odd first token on, pairs begin one token earlier
    chunks = triton.cdiv(laws.shape[1] + first % 2, _CHUNK)
    best = torch.empty((len(laws), chunks), dtype=torch.float64, device=laws.device)
    token = torch.empty_like(best, dtype=torch.int64)
    _race[len(laws), chunks](
        laws, *of_rows, best, token, first, laws.shape[1], BLOCK=_BLOCK, CHUNK=_CHUNK
    )
    best, chunk = best.max(dim=-1, keepdim=True)
    found = best[:, 0], token.gather(1, chunk)[:, 0]
    if shard is not None:
        found = shard.best(*found)
    return found[0].view(log_q.shape[:-1]), found[1].view(log_q.shape[:-1])
