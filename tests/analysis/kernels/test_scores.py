"""Refined scores by bins: the enumerated law is the target's to the last bits, whatever the grid;
they accept what the library's do; a step does what its laws say.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import chi2

import otm
from analysis.kernels.grid import ScoreGrid
from analysis.kernels.scores import refined_scores
from otm.errors import InvalidParameter
from otm.sequence import (
    DraftSelection,
    RefinedScores,
    expected_step,
    sequence_law,
)
from tests.analysis.kernels.drafted import GRIDS, Drafted
from tests.analysis.kernels.steps import texts_differ
from tests.sequence.toys import random_models, smooth_models


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("shape", [(3, 2, 2), (2, 3, 2), (3, 3, 1), (2, 1, 3)])
def test_lossless_by_enumeration(grid: str, shape: tuple[int, int, int]) -> None:
    """Smooth models and irregular ones: zeros, ties, point masses, disjoint supports."""
    num_tokens, k, length = shape
    for draft, target in (
        smooth_models(num_tokens, length, 5),
        random_models(num_tokens, length, np.random.default_rng(k)),
    ):
        law, _ = Drafted(draft, target, k, length).enumerated(ScoreGrid.of(k, "cpu", **GRIDS[grid]))
        wanted = sequence_law(target, context=[], length=length + 1)
        assert 0.5 * np.abs(law - wanted).sum() <= 1e-13


def test_as_many_tokens_as_the_library_s() -> None:
    """Within half a hundredth of a token of it, where the optimal verifier vertex by vertex loses
    a tenth: bins and fixed cells cost that little.
    """
    refined, by_vertex, ours = 0.0, 0.0, 0.0
    for seed in range(4):
        models = smooth_models(3, 2, seed)
        draft, target = models
        refined += expected_step(
            RefinedScores(2, 2), draft=draft, target=target, context=[]
        ).block_efficiency
        by_vertex += expected_step(
            DraftSelection(2, 2, otm.Optimal()), draft=draft, target=target, context=[]
        ).block_efficiency
        ours += Drafted(draft, target, 2, 2).enumerated(ScoreGrid.of(2, "cpu"))[1]
    assert ours == pytest.approx(refined, abs=4 * 0.005)
    assert ours >= by_vertex + 0.8 * (refined - by_vertex)


def test_steps_have_the_target_s_law() -> None:
    """20,000 steps in float32, completed by the target: χ² of 27 texts at 10⁻⁶. What a step returns
    are the drafts of one of its sequences and a token.
    """
    draft, target = smooth_models(3, 2, 1)
    all_, rng, size = Drafted(draft, target, 2, 2), np.random.default_rng(0), 20_000
    chosen = torch.from_numpy(rng.choice(len(all_.mass), size, p=all_.mass))
    candidates = all_.candidates[chosen]
    found = refined_scores(
        candidates,
        all_.paths[:1].expand(size, -1, -1),
        all_.q[chosen].float(),
        all_.p[chosen].float(),
        torch.rand((size, 5), generator=torch.Generator().manual_seed(1)),
        torch.rand(size, generator=torch.Generator().manual_seed(2)),
        ScoreGrid.of(2, "cpu", octaves=2, per_octave=2),
    )
    kept = found.nodes[:, 1:] > 0
    drafted = candidates.gather(1, found.nodes.clamp(min=0))[:, 1:]
    assert drafted[kept].equal(found.tokens[:, :-1][kept])
    assert texts_differ(found, target, rng) <= chi2.isf(1e-6, 26)


def test_rounding_moves_few_boundaries() -> None:
    """float32 rows: scores, tests and draws are boundaries known to a relative 10⁻⁶ or so; of 2,000
    steps hardly any meets one.
    """
    all_, rng = Drafted(*smooth_models(3, 2, 1), 2, 2), np.random.default_rng(0)
    grid = ScoreGrid.of(2, "cpu")
    chosen = torch.from_numpy(rng.choice(len(all_.mass), 2000, p=all_.mass))
    uniforms, final = torch.from_numpy(rng.random((2000, 5))), torch.from_numpy(rng.random(2000))
    whole = (all_.candidates[chosen], all_.paths[:1].expand(2000, -1, -1))
    laws = (all_.q[chosen], all_.p[chosen], uniforms, final)
    exact = refined_scores(*whole, *laws, grid)
    rounded = refined_scores(*whole, *(one.float() for one in laws), grid)
    assert (exact.tokens != rounded.tokens).any(dim=1).sum() <= 2


def test_bins_of_powers_of_two_only() -> None:
    with pytest.raises(InvalidParameter, match="power of 2"):
        ScoreGrid.of(2, "cpu", per_octave=6)
