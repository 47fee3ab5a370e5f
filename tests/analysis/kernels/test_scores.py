"""Refined scores by bins: the enumerated law is the target's to the last bits, whatever the grid;
they accept what the library's do; a step does what its laws say, and so does the optimal verifier
vertex by vertex.
"""

import numpy as np
import pytest
from scipy.special import softmax

import otm
from analysis.kernels.grid import ScoreGrid
from analysis.kernels.scores import refined_scores
from analysis.kernels.vertices import optimal_by_vertex
from otm.errors import InvalidParameter
from otm.sequence import (
    DraftSelection,
    RefinedScores,
    TableModel,
    expected_step,
    sequence_law,
)
from tests.analysis.kernels.drafted import GRIDS, Drafted
from tests.sequence.toys import contexts, random_models, smooth_models


def sharp_models(num_tokens, depth):
    """After every token but the last both models are sure of the first, up to tails of e⁻⁴⁰."""
    rng = np.random.default_rng(1)

    def row(context, shift):
        if not context or context[-1] == num_tokens - 1:
            return rng.dirichlet(np.ones(num_tokens))
        logits = -40.0 - np.arange(num_tokens) - shift * rng.random(num_tokens)
        logits[0] = 0.0
        return softmax(logits)

    every = contexts(num_tokens, depth)
    return [TableModel({c: row(c, shift) for c in every}) for shift in (0.0, 0.5)]


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("shape", [(3, 2, 2), (2, 3, 2), (2, 1, 3)])
def test_lossless_by_enumeration(grid, shape):
    """Smooth models, irregular ones (zeros, ties, point masses, disjoint supports), sharp ones."""
    num_tokens, k, length = shape
    for draft, target in (
        smooth_models(num_tokens, length, 5),
        random_models(num_tokens, length, np.random.default_rng(k)),
        sharp_models(num_tokens, length),
    ):
        law, _ = Drafted(draft, target, k, length).enumerated(ScoreGrid.of(k, "cpu", **GRIDS[grid]))
        wanted = sequence_law(target, context=[], length=length + 1)
        assert 0.5 * np.abs(law - wanted).sum() <= 1e-13


def test_as_many_tokens_as_the_library_s():
    """Within half a hundredth of a token of it, where the optimal verifier vertex by vertex loses
    a tenth: bins and fixed cells cost that little.
    """
    refined, by_vertex, ours = 0.0, 0.0, 0.0
    for seed in range(4):
        draft, target = smooth_models(3, 2, seed)
        models = {"draft": draft, "target": target, "context": []}
        refined += expected_step(RefinedScores(2, 2), **models).block_efficiency
        by_vertex += expected_step(DraftSelection(2, 2, otm.Optimal()), **models).block_efficiency
        ours += Drafted(draft, target, 2, 2).enumerated(ScoreGrid.of(2, "cpu"))[1]
    assert ours == pytest.approx(refined, abs=4 * 0.005)
    assert ours >= by_vertex + 0.8 * (refined - by_vertex)


def test_steps_have_the_target_s_law():
    Drafted(*smooth_models(3, 2, 1), 2, 2).steps(
        refined_scores, 20_000, ScoreGrid.of(2, "cpu", octaves=2, per_octave=2)
    )


def test_bins_of_powers_of_two_only():
    with pytest.raises(InvalidParameter, match="power of 2"):
        ScoreGrid.of(2, "cpu", per_octave=6)


@pytest.mark.parametrize("grid", GRIDS)
def test_steps_have_the_target_s_law_and_nearly_the_library_s_tokens(grid):
    """5,000 steps completed by the target: χ² of 27 texts at 10⁻⁶, and tokens within five standard
    errors, wrong once in 10⁶; with the usual grid bins and cells cost a hundredth at most.
    """
    draft, target = smooth_models(3, 2, 1)
    size = 5_000
    found = Drafted(draft, target, 2, 2).steps(
        optimal_by_vertex, size, ScoreGrid.of(2, "cpu", **GRIDS[grid])
    )
    best = expected_step(
        DraftSelection(2, 2, otm.Optimal()), draft=draft, target=target, context=[]
    ).block_efficiency
    tokens = found.count.double()
    error = 5.0 * float(tokens.std()) / size**0.5
    lost = 0.01 if grid == "usual" else 0.2
    assert best - lost - error <= float(tokens.mean()) <= best + error
