"""Stochastic beams: every level is a sample without replacement of sequences, exactly; and the
clocks themselves, by simulation.
"""

from __future__ import annotations

import numpy as np
import pytest

import otm
from otm.sequence import (
    Gsd,
    StochasticBeam,
    TraversalVerification,
    outcomes,
    sequence_law,
    step_law,
)
from otm.trees import TreeShape
from tests.sequence.toys import distance, random_models, smooth_models


def levels(
    decoder: StochasticBeam, model: object, num_tokens: int
) -> dict[tuple[tuple[int, ...], ...], float]:
    """The joint law of the beams of all levels, each a number in base V, in the order in which they
    rang.
    """
    found: dict[tuple[tuple[int, ...], ...], float] = {}
    for tree, mass in outcomes(lambda randomness: decoder.draft(model, (), randomness)):  # type: ignore[arg-type]
        key = tuple(
            tuple(
                int(np.ravel_multi_index(c, (num_tokens,) * n))
                for c in tree.contexts()
                if c is not None and len(c) == n
            )
            for n in range(1, decoder.length + 1)
        )
        found[key] = found.get(key, 0.0) + mass
    return found


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("num_tokens", "count", "length"), [(3, 2, 2), (2, 3, 3), (3, 1, 2), (2, 2, 3)]
)
def test_a_level_is_a_sample_of_sequences_without_replacement(
    seed: int, num_tokens: int, count: int, length: int
) -> None:
    draft, _ = random_models(num_tokens, length, np.random.default_rng([26, seed]))
    joint = levels(StochasticBeam(count, length), draft, num_tokens)
    for level in range(1, length + 1):
        table = otm.WithoutReplacement(count).enumerate(sequence_law(draft, [], level).reshape(-1))
        wanted = {
            tuple(x for x in row if x >= 0): mass
            for row, mass in zip(table.tokens.tolist(), table.mass, strict=True)
        }
        found = dict.fromkeys(wanted, 0.0)
        for key, mass in joint.items():
            found[key[level - 1]] = found.get(key[level - 1], 0.0) + mass
        assert found == {key: pytest.approx(mass, abs=1e-14) for key, mass in wanted.items()}


def test_the_order_is_that_of_the_clocks() -> None:
    """Clocks for all sequences of two tokens, a prefix rings with its first continuation: the joint
    law of both levels' beams.
    """
    draft, _ = smooth_models(2, 2, 1)
    joint = levels(StochasticBeam(2, 2), draft, 2)
    rng, samples = np.random.default_rng(0), 40_000
    clocks = rng.exponential(size=(samples, 4)) / sequence_law(draft, [], 2).reshape(-1)
    ends = np.argsort(clocks, axis=1)[:, :2]
    starts = np.argsort(clocks.reshape(samples, 2, 2).min(axis=2), axis=1)
    keys, counts = np.unique(np.concatenate([starts, ends], axis=1), axis=0, return_counts=True)
    assert {(tuple(key[:2]), tuple(key[2:])) for key in keys.tolist()} == set(joint)
    for key, count in zip(keys.tolist(), counts.tolist(), strict=True):
        mass = joint[tuple(key[:2]), tuple(key[2:])]
        # Bernstein: a deviation beyond this has probability below 1e-9 for each of the outcomes.
        assert abs(count - samples * mass) <= np.sqrt(2 * 22 * samples * mass) + 2 * 22 / 3


@pytest.mark.parametrize("seed", range(3))
def test_one_level_is_drafting_without_replacement(seed: int) -> None:
    draft, target = random_models(3, 1, np.random.default_rng([27, seed]))
    models = {"draft": draft, "target": target, "context": []}
    assert (
        distance(
            step_law(StochasticBeam(2, 1), **models), step_law(Gsd(TreeShape.batch(2)), **models)
        )
        <= 1e-14
    )


@pytest.mark.parametrize("seed", range(3))
def test_one_beam_is_a_chain(seed: int) -> None:
    draft, target = random_models(2, 3, np.random.default_rng([28, seed]))
    models = {"draft": draft, "target": target, "context": []}
    chain = TreeShape.chain(3)
    assert (
        distance(step_law(StochasticBeam(1, 3), **models), step_law(Gsd(chain), **models)) <= 1e-14
    )
    traversal = step_law(StochasticBeam(1, 3, None), **models)
    assert distance(traversal, step_law(TraversalVerification(chain), **models)) <= 1e-14


def test_beside_a_sequence_of_nearly_all_mass() -> None:
    """What is left is summed, never 1 − what was taken: the second beam is one of the two tokens of
    1e−20, with 1/3 and 2/3.
    """
    draft = otm.sequence.ZerothOrder([1.0 - 2.0**-53, 1e-20, 2e-20])
    joint = levels(StochasticBeam(2, 1), draft, 3)
    assert joint[((0, 1),)] == pytest.approx(1 / 3, rel=1e-12)
    assert joint[((0, 2),)] == pytest.approx(2 / 3, rel=1e-12)
