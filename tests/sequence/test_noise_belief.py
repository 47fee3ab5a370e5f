"""Beliefs about a target that is known, and texts that no belief changes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy

from otm.errors import InvalidDistribution, InvalidParameter, ShapeMismatch
from otm.sequence import (
    NoiseBelief,
    NoiseTree,
    SharedNoise,
    fit_belief,
    fit_scale,
    generate,
    markov_pair,
    step_law,
)
from otm.sequence.shared_noise import perturbed

TRUTH = NoiseBelief((1.5, -0.1, 0.4), (0.3, 0.05, -0.5))


def drawn(belief: NoiseBelief, number: int, tokens: int = 4) -> tuple[np.ndarray, ...]:
    """Positions of depths 0 to 7 whose tokens a belief has drawn."""
    rng = np.random.default_rng(0)
    p, depths = rng.dirichlet(np.ones(tokens), size=number), np.arange(number) % 8
    g = np.array([SharedNoise(1).row(place, tokens) for place in range(number)])
    laws = [belief(int(d), row, noise) for d, row, noise in zip(depths, p, g, strict=True)]
    return p, g, depths, np.array([rng.choice(tokens, p=law) for law in laws])


def test_the_law_that_tokens_were_drawn_by_is_found() -> None:
    """Twice the number of tokens times the divergence from the truth is χ²₆ nearly."""
    p, g, depths, tokens = drawn(TRUTH, 1_500)
    found = fit_belief(p, g, depths, tokens)
    apart = [
        float(scipy.special.rel_entr(*(one(int(d), row, noise) for one in (TRUTH, found))).sum())
        for d, row, noise in zip(depths, p, g, strict=True)
    ]
    assert np.mean(apart) < scipy.stats.chi2.isf(1e-8, 6) / (2 * len(p))


def test_no_other_weights_are_likelier() -> None:
    """Each weight moved by itself, either way, on rows of more tokens than are looked at."""
    p, g, depths, tokens = drawn(NoiseBelief((1.0, 0.0, 0.0)), 300, tokens=80)
    found = fit_belief(p, g, depths, tokens)

    def loss(weights: np.ndarray) -> float:
        belief = NoiseBelief(tuple(weights[:3]), tuple(weights[3:]))
        kept = [np.argsort(-perturbed(*row))[:64] for row in zip(p, g, strict=True)]
        total = 0.0
        for d, row, noise, token, most in zip(depths, p, g, tokens, kept, strict=True):
            places = most if token in most else np.append(most[:-1], token)
            law = belief(int(d), row, noise)
            total -= math.log(law[token] / law[places].sum())
        return total

    best = np.array(found.noisy + found.plain)
    for weight, moved in enumerate(np.eye(6) * 0.05 * np.tile([1.0, 1 / 7, 1 / 4], 2)):
        assert loss(best) < min(loss(best + moved), loss(best - moved)), weight


def test_a_scale_is_a_belief() -> None:
    """And of beliefs with one weight the fitted scale is the likeliest."""
    p, g, depths, tokens = drawn(NoiseBelief((2.0, 0.0, 0.0)), 500)
    scale = float(fit_scale(perturbed(p, g), tokens).value)
    found = fit_belief(p, g, depths, tokens)
    models = markov_pair(3, similarity=0.7, rng=np.random.default_rng(1))
    pair = dict(zip(("draft", "target"), models, strict=True))
    own, same = (
        step_law(NoiseTree(3, 2, belief, cells=2), **pair, context=[0]).block_efficiency
        for belief in (scale, NoiseBelief((1 / scale, 0.0, 0.0)))
    )
    assert own == pytest.approx(same, rel=1e-12)
    likelihood = [
        sum(
            math.log(belief(int(d), row, noise)[token])
            for d, row, noise, token in zip(depths, p, g, tokens, strict=True)
        )
        for belief in (found, NoiseBelief((1 / scale, 0.0, 0.0)))
    ]
    assert likelihood[0] >= likelihood[1] - 1e-6


def test_a_text_is_that_of_seed_and_target_whatever_is_believed() -> None:
    draft, target = markov_pair(5, similarity=0.7, rng=np.random.default_rng(1))
    texts = {
        generate(
            NoiseTree(6, 3, belief),
            draft=draft,
            target=target,
            context=[0],
            num_tokens=30,
            rng=0,
            noise=SharedNoise(7),
        ).tokens
        for belief in (0.5, TRUTH, NoiseBelief((-1.0, 0.0, 0.0)), (1.0, TRUTH))
    }
    assert len(texts) == 1


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"mass": [[0.5, 0.6]]}, InvalidDistribution),
        ({"noise": [[0.0, math.nan]]}, InvalidParameter),
        ({"noise": [[0.0, math.inf]]}, InvalidParameter),
        ({"noise": [[0.0]]}, ShapeMismatch),
        ({"depths": [0, 1]}, ShapeMismatch),
        ({"tokens": [2]}, InvalidParameter),
        ({"tokens": [-1]}, InvalidParameter),
        ({"mass": [[1.0, 0.0]]}, InvalidParameter),
    ],
)
def test_bad_input(changed: dict[str, object], error: type[Exception]) -> None:
    given = {"mass": [[0.5, 0.5]], "noise": [[0.0, 1.0]], "depths": [0], "tokens": [1]}
    assert fit_belief(**given).noisy[0] > 1.0
    with pytest.raises(error):
        fit_belief(**given | changed)


@pytest.mark.parametrize("weights", [(1.0,), (1.0, 0.0, math.nan), (1e7, 0.0, 0.0), "abc", None])
def test_weights_are_three_numbers(weights: object) -> None:
    with pytest.raises((InvalidParameter, InvalidDistribution)):
        NoiseBelief(weights)
