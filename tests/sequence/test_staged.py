"""Chains of models: the law is the middle model's own drafts', whatever the stages; calls are
counted exactly.
"""

import numpy as np
import pytest

import otm
from otm.sequence import (
    BlockVerification,
    DraftSelection,
    SampledTree,
    SpeculativeSampling,
    Staged,
    ZerothOrder,
    expected_calls,
    step_law,
)
from otm.sequence.randomness import Sampled
from tests.sequence.toys import asked, bias, distance, random_models

SMALLEST, SMALL = random_models(2, 5, np.random.default_rng(62))


@pytest.mark.parametrize(
    "inner",
    [
        SpeculativeSampling(2),
        BlockVerification(2),
        DraftSelection(2, 1),
        SampledTree(2, 2),
        Staged(SpeculativeSampling(1), SMALL, 1),
    ],
    ids=repr,
)
def test_the_law_is_that_of_the_middle_model_s_drafts(inner):
    for seed in range(2):
        middle, target = random_models(2, 4, np.random.default_rng([61, seed]))
        staged = step_law(Staged(inner, middle, 2), **asked((SMALLEST, target)))
        block = step_law(BlockVerification(2), **asked((middle, target)))
        assert distance(staged, block) <= 1e-13


HALF = ZerothOrder([0.5, 0.5])


def test_a_lossy_stage_makes_a_lossy_whole():
    lossy = Staged(SpeculativeSampling(1, otm.Lenience(0.5)), HALF, 2)
    assert not lossy.lossless
    assert bias(lossy, ZerothOrder([0.9, 0.1]), HALF, step=step_law) > 0.05


@pytest.mark.parametrize(
    ("decoder", "draft", "calls"),
    [
        # A step of one draft yields two tokens with probability a = ¾, else one: three tokens take
        # two calls with a + (1 − a)a.
        (Staged(SpeculativeSampling(1), HALF, 3), [0.75, 0.25], [2 + 1 / 16] * 2),
        (Staged(SpeculativeSampling(3), HALF, 8), [0.5, 0.5], [6.0, 2.0]),
        # one call of the middle model a token, and a smaller one drafts each
        (Staged(Staged(SpeculativeSampling(1), HALF, 1), HALF, 2), [0.5, 0.5], [1.0, 1.0, 1.0]),
    ],
)
def test_calls(decoder, draft, calls):
    found = expected_calls(decoder, draft=ZerothOrder(draft), context=[0])
    np.testing.assert_allclose(found, calls, atol=1e-14)


def test_what_the_last_step_writes_beyond_the_chain_is_cut_off():
    """Equal models keep every draft: three tokens of a step, of which the second uses one."""
    decoder = Staged(SpeculativeSampling(2), HALF, 4)
    tree = decoder.draft(HALF, (1, 0), Sampled(np.random.default_rng(0)))
    assert tree.tokens.shape == (5,) and tree.tokens[0] == -1 and len(tree.draft) == 4
