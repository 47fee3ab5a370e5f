"""Every decoder's sampler on the shipped pair's distributions, calibrated: false alarms at 1e-9.

The captured conditionals of Figure 5 (sixteen tokens or so) are turned into a chain: after an even
token both models swap two columns, so that a decoder that reads the wrong vertex's distribution is
seen.
"""

import numpy as np
import pytest

import otm
from otm.sequence import (
    BlockVerification,
    DraftSelection,
    Ersd,
    GreedyMultipath,
    Gsd,
    LikeliestTree,
    MarkovModel,
    NoiseTree,
    SampledTree,
    Staged,
    StochasticBeam,
    TraversalVerification,
    TreeVerification,
    generate,
    sequence_law,
)
from otm.trees import TreeShape
from tests.contracts.alarms import alarms

figure5 = pytest.importorskip("figures.figure5")  # the wheel is tested without the figures

TEXTS = 500
SHAPE = TreeShape([0, 0, 1, 1, 2])
DECODERS = [
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


def chain(mass):
    """After an even token the first token's probability and the fourth's are exchanged."""
    swapped = mass.copy()
    swapped[[0, 3]] = mass[[3, 0]]
    return MarkovModel(
        np.stack([swapped if token % 2 == 0 else mass for token in range(len(mass))])
    )


@pytest.fixture(scope="module")
def models():
    record = figure5.capture()
    return chain(otm.normalise(record["draft"])), chain(otm.normalise(record["target"]))


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda d: type(d).__name__)
def test_decoded_text_has_the_target_s_law(decoder, models):
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
