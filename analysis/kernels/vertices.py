"""The optimal verifier of i.i.d. drafts vertex by vertex, by bins of q/p.

The scheme is that of `otm.sequence.DraftSelection` with `otm.Optimal`: the sequences that agree
with the output so far have as many drafts of the next token, each has a score that depends on its
bin, the largest wins, and is accepted with u < q/s, s the law of winners. Scores are split as in
`analysis.kernels.scores`, lossless with any grid; no refined law is carried on.

Sequences that agree so far are judged by one row of each model, that of the first node: nodes of
equal prefixes must have *equal* rows. Passes of a batch that round differently leave a draft at the
edge of a filter without mass in that row, and the request is refused. Copy the first node's row
before drafting, or take refined scores, which read each sequence's own rows.
"""

from __future__ import annotations

import dataclasses

import torch

from .grid import ScoreGrid
from .scores import Bins, Split, ratios, win_probabilities, winning_levels
from .step import Tensor, Verified, decided, draw
from .vocabulary import Excess, Over, Selected, TorchRows


def optimal_by_vertex(
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
    """Verify the next tokens of the sequences that agree so far, level by level.

    Rows of equal prefixes must be equal.

    Args:
        candidates: `(B, n)` int64, the nodes' tokens, node 0 the root; −1 where there is no draft.
        paths: `(B, K, L)` int64, the nodes of each sequence. A sequence may end early, with −1 as
            candidate, where a rule for its own tokens ends it, or one for all sequences.
        target: `(B, n, V)` float32 or float64, the target's next-token probabilities after each
            node.
        draft: `(B, m, V')` of the target's type, V' ≤ V, the probabilities by which the children
            of nodes 0..m − 1 were drawn.
        uniforms: `(B, n)` float32 or float64 in [0, 1); column i − 1 belongs to node i: on each
            level the first sequence's selects, the last one's tests.
        final: `(B,)` float32 or float64 in [0, 1), draws the token after the accepted drafts.
        grid: for K sequences.
        over: makes the rows: `TorchRows`, or others of `analysis.kernels.vocabulary.Rows`.
    """
    both = over(target, draft, candidates)
    place = torch.arange(paths.shape[2] + 1, device=paths.device)
    path = torch.zeros_like(paths[:, 0, :1]).expand(-1, len(place))
    live = torch.ones_like(paths[..., 0], dtype=torch.bool)
    kept = torch.zeros_like(path[:, 0])
    sound = torch.ones_like(kept, dtype=torch.bool)
    at, going = path[:, :1], sound
    score = grid.mass.expand(*live.shape, -1)
    edges = torch.nn.functional.pad(grid.mass.cumsum(dim=0), (1, 0))
    one = torch.ones_like(score[:, 0, 0])
    share = torch.zeros_like(one)
    winners = one.new_zeros((2, len(one), 1, len(grid.edges) - 1))
    for child in paths.unbind(dim=2):
        tokens = candidates.gather(1, child)
        live = live & (tokens >= 0) & going[:, None]
        number = live.sum(dim=1)
        going = number > 0
        # without drafts any sequence stands for none
        taking_part = live | going.logical_not()[:, None]
        gain = (edges ** number.clamp(min=1)[:, None]).diff(dim=-1) / grid.mass
        own = dataclasses.replace(grid, gain=gain)
        vertex = at.clamp(max=both.draft.shape[1] - 1)
        drafted, wanted = both.bin_sums(grid, vertex)
        bins = Bins.of(drafted[:, 0], wanted[:, 0], grid)
        split = Split.of(score[:, 0], one[:, None], bins, own)
        tokens = tokens.clamp(min=0)
        q, p = both.entries(vertex.expand_as(tokens), tokens)
        each = zip(grid.bins(q, p).split(1, 1), ratios(q, p).split(1, 1), strict=True)
        laws = [split.law(score[:, 0], *token) for token in each]
        wins = win_probabilities(torch.stack(laws, dim=1), taking_part, grid)
        first, last = (uniforms.gather(1, child[:, end, None] - 1) for end in (0, -1))
        chosen = draw(wins, first[:, 0])[:, None]
        x, node = tokens.gather(1, chosen), child.gather(1, chosen)
        levels = winning_levels([split], bins.masses[..., None, :])
        asked = q.gather(1, chosen)
        selected = Selected(levels, grid).at(asked, p.gather(1, chosen))
        passed = going & (last * selected < asked)[:, 0]
        fine = wins.isfinite().all(dim=1) & (p > 0.0).logical_or(live.logical_not()).all(dim=1)
        fine = fine & (selected.isfinite() & asked.isfinite())[:, 0]
        sound = sound & (fine | going.logical_not())
        kept = kept + passed
        path = torch.where(passed[:, None] & (place == kept[:, None]), node, path)
        at = torch.where(passed[:, None], node, at)
        rejected = going & passed.logical_not()
        share = torch.where(rejected, 1.0, share)
        winners = torch.where(rejected[:, None, None], levels, winners)
        live, going = live & (tokens == x), passed
    ended = Excess(at, one[:, None], share[:, None], Selected(winners, grid))
    after, total = both.draw(ended, final)
    return decided(path, candidates.gather(1, path[:, 1:]), kept, after, total, sound)
