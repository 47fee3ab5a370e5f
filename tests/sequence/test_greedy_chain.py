"""What a step of a greedy chain wins and loses, against the enumerated text and a linear program
for the frontier.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy

import otm
from otm.sequence import (
    Fly,
    GreedyChain,
    RegretBudget,
    completed_law,
    expected_step,
    loose_step,
    sequence_law,
)
from tests.sequence.toys import random_models

DECODERS: list[GreedyChain] = [
    Fly(3, window=1, entropy=0.2, samples=1),
    Fly(3, window=2, entropy=0.5, samples=2),
    Fly(3, window=4, samples=1),
    Fly(3, window=1),
    RegretBudget(3, mismatches=2),
]


@pytest.mark.parametrize("decoder", DECODERS, ids=repr)
@pytest.mark.parametrize("seed", range(3))
def test_against_the_enumerated_text(decoder: GreedyChain, seed: int) -> None:
    draft, target = random_models(3, 4, np.random.default_rng([12, seed]))
    found = loose_step(decoder, draft=draft, target=target, context=[])
    law = expected_step(decoder, draft=draft, target=target, context=[]).law
    length = decoder.length + 1
    text = completed_law(law, target=target, context=[], length=length)
    wanted = sequence_law(target, [], length)
    assert found.block_efficiency == pytest.approx(law.block_efficiency, abs=1e-14)
    assert found.total_variation == pytest.approx(0.5 * np.abs(text - wanted).sum(), abs=1e-14)
    assert found.kl == pytest.approx(
        otm.divergences.kl_divergence(target=wanted.ravel(), draft=text.ravel()), abs=1e-12
    )
    # The best text within the distance: maximise the expected length of the common prefix with the
    # chain.
    chain = []
    for _ in range(decoder.length):
        chain.append(int(np.argmax(draft.next(chain))))
    common = np.array([_common(index, chain) for index in np.ndindex(*wanted.shape)], dtype=float)
    size = wanted.size
    program = scipy.optimize.linprog(  # the text, and the mass by which it exceeds the target
        np.concatenate([-common, np.zeros(size)]),
        A_ub=np.block([[np.eye(size), -np.eye(size)], [np.zeros((1, size)), np.ones((1, size))]]),
        b_ub=np.concatenate([wanted.ravel(), [found.total_variation]]),
        A_eq=np.concatenate([np.ones((1, size)), np.zeros((1, size))], axis=1),
        b_eq=[1.0],
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    # 244 rows, each off by 1e-10 at most, and L = 3
    assert found.frontier == pytest.approx(1.0 - program.fun, abs=1e-7)
    assert found.block_efficiency <= found.frontier + 1e-12


def _common(text: tuple[int, ...], chain: list[int]) -> int:
    count = 0
    while count < len(chain) and text[count] == chain[count]:
        count += 1
    return count


def test_one_draft_redrawn_off_itself_is_on_the_frontier() -> None:
    """One likeliest draft, kept with more than q: what it wins is what it loses."""
    draft, target = random_models(3, 2, np.random.default_rng(3))
    found = loose_step(Fly(1, samples=2), draft=draft, target=target, context=[])
    assert found.block_efficiency == pytest.approx(found.frontier, abs=1e-15)
