"""Every decoder's sampler on the shipped pair's distributions, calibrated: false alarms at 1e-9,
power computed.

The captured conditionals of Figure 5 (sixteen tokens or so) are turned into a chain: after an even
token both models swap two columns, so that a decoder that reads the wrong vertex's distribution is
seen.
"""

from __future__ import annotations

import numpy as np
import pytest

import otm
from figures import figure5
from otm.sequence import (
    BlockVerification,
    Decoder,
    DraftSelection,
    Ersd,
    GreedyMultipath,
    Gsd,
    LikeliestTree,
    MarkovModel,
    NoiseTree,
    PrefixTree,
    SampledTree,
    SpeculativeSampling,
    Staged,
    StochasticBeam,
    TraversalVerification,
    TreeVerification,
    completed_law,
    generate,
    sequence_law,
    step_law,
)
from otm.trees import TreeShape
from tests.contracts.alarms import alarms, power

TEXTS = 1_000
SHAPE = TreeShape([0, 0, 1, 1, 2])
DECODERS: list[Decoder] = [
    DraftSelection(3, 2),
    TreeVerification(SHAPE, otm.IID(1), otm.Optimal()),
    Gsd(SHAPE),
    Ersd(SHAPE),
    BlockVerification(2),
    TraversalVerification(SHAPE),
    GreedyMultipath(3, 2),
    LikeliestTree(5, 2),
    NoiseTree(5, 2),
    SampledTree(5, 2),
    StochasticBeam(3, 2),
    Staged(BlockVerification(1), MarkovModel(np.full((15, 15), 1 / 15)), 2),
]
ALIKE: list[Decoder] = [  # other shapes and verifiers of what goes vertex by vertex
    SpeculativeSampling(2),
    DraftSelection(2, 2, otm.RecursiveRejection()),
    PrefixTree((2, 2)),
    TreeVerification(SHAPE, otm.Greedy(1), otm.GreedyOptimal()),
]


def chain(mass: np.ndarray) -> MarkovModel:
    """After an even token the first token's probability and the fourth's are exchanged."""
    swapped = mass.copy()
    swapped[[0, 3]] = mass[[3, 0]]
    return MarkovModel(
        np.stack([swapped if token % 2 == 0 else mass for token in range(len(mass))])
    )


@pytest.fixture(scope="module")
def models() -> tuple[MarkovModel, MarkovModel]:
    record = figure5.capture()
    return chain(otm.normalise(record["draft"])), chain(otm.normalise(record["target"]))


@pytest.mark.parametrize(
    "decoder",
    [*DECODERS, *(pytest.param(one, marks=pytest.mark.long) for one in ALIKE)],
    ids=lambda d: type(d).__name__,
)
def test_decoded_text_has_the_target_s_law(
    decoder: Decoder, models: tuple[MarkovModel, MarkovModel]
) -> None:
    draft, target = models
    wanted = sequence_law(target, [1], 2)
    counts = np.zeros_like(wanted)
    rng = np.random.default_rng(11)
    for _ in range(TEXTS):
        text = generate(decoder, draft=draft, target=target, context=[1], num_tokens=2, rng=rng)
        counts[text.tokens] += 1
    assert not alarms(counts, wanted, TEXTS).any()
    assert not alarms(counts.sum(axis=0), wanted.sum(axis=0), TEXTS).any()
    assert not alarms(counts.sum(axis=1), wanted.sum(axis=1), TEXTS).any()


def test_the_check_has_power(models: tuple[MarkovModel, MarkovModel]) -> None:
    """A lenient verifier, and a decoder that drafts and verifies with the distributions of the
    context before.
    """
    draft, target = models
    lenient = SpeculativeSampling(1, otm.Lenience(0.3))
    law = completed_law(
        step_law(lenient, draft=draft, target=target, context=[1]),
        target=target,
        context=[1],
        length=2,
    )
    assert power(law.sum(axis=1), sequence_law(target, [1], 2).sum(axis=1), TEXTS) > 0.99
    late = (
        np.tile(sequence_law(target, [1], 1), (draft.num_tokens, 1))
        * sequence_law(target, [1], 1)[:, None]
    )
    assert power(late.sum(axis=0), sequence_law(target, [1], 2).sum(axis=0), TEXTS) > 0.99
