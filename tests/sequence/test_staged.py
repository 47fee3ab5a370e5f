"""Chains of models: the law is the middle model's own drafts', whatever the stages; calls are
counted exactly.
"""

from __future__ import annotations

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
    expected_step,
    step_law,
)
from tests.sequence.toys import bias, distance, random_models

INNER = [SpeculativeSampling(2), BlockVerification(2), DraftSelection(2, 1), SampledTree(2, 2)]


@pytest.mark.parametrize("inner", INNER, ids=repr)
@pytest.mark.parametrize("seed", range(2))
def test_the_law_is_that_of_the_middle_model_s_drafts(
    inner: otm.sequence.Decoder, seed: int
) -> None:
    rng = np.random.default_rng([61, seed])
    small, middle = random_models(2, 4, rng)
    _, target = random_models(2, 3, rng)
    staged = step_law(Staged(inner, middle, 2), draft=small, target=target, context=[])
    assert (
        distance(staged, step_law(BlockVerification(2), draft=middle, target=target, context=[]))
        <= 1e-13
    )
    assert bias(Staged(inner, middle, 2), small, target, step=step_law) <= 1e-13


def test_three_stages() -> None:
    rng = np.random.default_rng(62)
    smallest, small = random_models(2, 5, rng)
    middle, target = random_models(2, 4, rng)
    staged = Staged(Staged(SpeculativeSampling(1), small, 1), middle, 2)
    models = {"draft": smallest, "target": target, "context": []}
    assert bias(staged, smallest, target, step=step_law) <= 1e-13
    alone = expected_step(
        BlockVerification(2), draft=middle, target=target, context=[]
    ).block_efficiency
    assert step_law(staged, **models).block_efficiency == pytest.approx(alone, abs=1e-13)
    assert expected_calls(staged, draft=smallest, context=[]).shape == (3,)


def test_a_lossy_stage_makes_a_lossy_whole() -> None:
    small, middle = ZerothOrder([0.9, 0.1]), ZerothOrder([0.5, 0.5])
    lossy = Staged(SpeculativeSampling(1, otm.Lenience(0.5)), middle, 2)
    assert not lossy.lossless
    assert bias(lossy, small, middle, step=step_law) > 0.05  # type: ignore[arg-type]


class TestCalls:
    def test_without_memory(self) -> None:
        """A step of one draft yields two tokens with probability a, else one: three tokens take two
        calls with a + (1 − a)a.
        """
        small, middle = ZerothOrder([0.75, 0.25]), ZerothOrder([0.5, 0.5])
        a = 0.75
        found = expected_calls(Staged(SpeculativeSampling(1), middle, 3), draft=small, context=[0])
        calls = 2 * (a + (1 - a) * a) + 3 * (1 - a) ** 2
        np.testing.assert_allclose(found, [calls, calls], atol=1e-14)

    def test_equal_models(self) -> None:
        model = ZerothOrder([0.5, 0.5])
        np.testing.assert_allclose(
            expected_calls(Staged(SpeculativeSampling(3), model, 8), draft=model, context=[]),
            [6.0, 2.0],
        )

    def test_time(self) -> None:
        """Where it pays: costs .01 and .1 of a target call; the middle model alone would take four
        calls of .1.
        """
        small, middle = ZerothOrder([0.6, 0.4]), ZerothOrder([0.5, 0.5])
        calls = expected_calls(Staged(SpeculativeSampling(1), middle, 4), draft=small, context=[])
        assert calls @ [0.01, 0.1] < 4 * 0.1 - 0.1
