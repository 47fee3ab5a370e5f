"""FLy: its steps against its law, the pattern of windows, and what two samples do."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from otm.sequence import (
    DECODERS,
    LOSSY_DECODERS,
    Fly,
    ZerothOrder,
    completed_law,
    expected_step,
    step_law,
)
from otm.sequence.greedy_chain import GreedyChain
from tests.sequence.toys import bias, distance, random_models, smooth_models


@pytest.mark.parametrize("samples", [0, 1, 2])
@pytest.mark.parametrize("window", [1, 2, 3, 5])
def test_the_law_is_that_of_the_steps(window: int, samples: int) -> None:
    for seed, entropy in enumerate((0.0, 0.6)):
        size, length = (2, 4) if samples == 2 else (3, 4)
        draft, target = random_models(size, length + 1, np.random.default_rng([9, seed]))
        decoder = Fly(length, window, entropy, samples)
        models = {"draft": draft, "target": target, "context": []}
        found = expected_step(decoder, **models)
        assert distance(found.law, step_law(decoder, **models)) < 1e-14
        reached = [found.law.mass[found.law.accepted >= level].sum() for level in range(length + 1)]
        np.testing.assert_allclose(found.reached, reached, atol=1e-14)


def shipped(accepted: list[bool], closed: list[bool], window: int) -> int:
    """Drafts kept by the mask as the public code builds it: the pattern FTT…T but not in the last
    places, and the gate.
    """
    length = len(accepted)
    pattern = [False, *[True] * (window - 1)]
    mask = accepted.copy()
    for start in range(length - window + 1):
        if accepted[start : start + window] == pattern and start < length - window:
            mask[start] = True
    mask = [
        there and not (shut and not was)
        for there, shut, was in zip(mask, closed, accepted, strict=True)
    ]
    return mask.index(False) if False in mask else length


@pytest.mark.parametrize("window", [1, 2, 3, 7])
def test_every_pattern_of_matches(window: int) -> None:
    length = 6
    tokens = np.zeros(length, dtype=np.int64)
    for matches in itertools.product((False, True), repeat=length):
        for shut in ((), (1,), (0, 3)):
            closed = [place in shut for place in range(length)]
            likeliest = [0.6, 0.4] if not shut else [0.98, 0.02]
            rows = np.array([[0.6, 0.4] if not c else likeliest for c in closed])
            rows = np.array(
                [row if match else row[::-1] for row, match in zip(rows, matches, strict=True)]
            )
            kept = Fly(length, window, entropy=0.3).kept_law(tokens, rows)
            assert kept[shipped(list(matches), closed, window)] == 1.0, (matches, shut)


def test_one_sample_that_forgives_nothing_is_lossless_two_are_not() -> None:
    """A draft of probability q comes out with 2q − q²: at most ¼ off, at q = ½."""
    draft, target = smooth_models(3, 4, 2)
    assert bias(Fly(3, window=4, samples=1), draft, target, step=expected_step) < 1e-14  # type: ignore[arg-type]
    half = ZerothOrder([0.5, 0.5])
    law = expected_step(Fly(1, samples=2), draft=half, target=half, context=[]).law
    np.testing.assert_allclose(
        completed_law(law, target=half, context=[], length=1), [0.75, 0.25], atol=1e-15
    )


def test_the_registry_holds_all_greedy_chains_and_no_lossless_decoder() -> None:
    assert set(LOSSY_DECODERS) == set(GreedyChain.__subclasses__())
    assert not any(decoder.lossless for decoder in LOSSY_DECODERS)
    assert not set(LOSSY_DECODERS) & set(DECODERS)
