"""Drafters of marginals: sampled, by argmax and as a tree, exactly, where the target knows two
texts and the drafter no text.
"""

from __future__ import annotations

import numpy as np
import pytest

import otm
from otm.sequence import (
    BlockMarginals,
    BlockVerification,
    LikeliestTree,
    MarkovModel,
    SpeculativeSampling,
    TableModel,
    ZerothOrder,
    best_step,
    block_marginals,
    expected_step,
    matched_tokens,
    sequence_law,
)
from tests.sequence.toys import bias, random_models

TWO_TEXTS = TableModel(
    {(): [0.5, 0.5]}
    | {(x,) * n: np.eye(2)[x] for x in (0, 1) for n in range(1, 6)}
    | {(0, 1): [0.5, 0.5], (1, 0): [0.5, 0.5]}
    | {
        (*a, *b): [0.5, 0.5]
        for a in ((0, 1), (1, 0))
        for b in ((0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1))
    }
    | {(x, x, 1 - x): [0.5, 0.5] for x in (0, 1)}
    | {(x, x, 1 - x, y): [0.5, 0.5] for x in (0, 1) for y in (0, 1)}
    | {(x, x, x, 1 - x): [0.5, 0.5] for x in (0, 1)}
)
"""0000 and 1111, each with probability 1/2; what follows other contexts does not matter."""


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_two_texts(length: int) -> None:
    draft = block_marginals(TWO_TEXTS, context=[], length=length)
    np.testing.assert_allclose(draft.rows, np.full((length, 2), 0.5))
    models = {"draft": draft, "target": TWO_TEXTS, "context": []}
    # A sampled block is one of the two texts with 2/2^L: 1 + Σ 2^{1−i}, below 3 at any length, and
    # nothing does better with it.
    sampled = expected_step(BlockVerification(length), **models).block_efficiency
    assert sampled == pytest.approx(3 - 2.0 ** (1 - length), abs=1e-14)
    assert best_step(BlockVerification(length), **models).value == pytest.approx(sampled, abs=1e-9)
    assert expected_step(SpeculativeSampling(length), **models).block_efficiency == pytest.approx(
        sampled, abs=1e-14
    )
    # The argmax block is one text throughout: 1 + L/2. Both texts take a whole tree: 1 + L with
    # 2^{L+1} − 2 vertices.
    argmax = matched_tokens(LikeliestTree(length, length, width=1), **models)
    np.testing.assert_allclose(argmax, 1 + 0.5 * np.arange(length + 1))
    whole = matched_tokens(LikeliestTree(2 ** (length + 1) - 2, length), **models)
    assert whole[-1] == pytest.approx(1 + length)


@pytest.mark.parametrize("seed", range(4))
def test_drafts_of_marginals_are_verified_without_loss(seed: int) -> None:
    _, target = random_models(3, 2, np.random.default_rng([51, seed]))
    draft = block_marginals(target, context=[], length=2)
    for decoder in (BlockVerification(2), LikeliestTree(4, 2)):
        assert bias(decoder, draft, target, step=expected_step) <= 1e-14  # type: ignore[arg-type]
    law = sequence_law(target, [], 2)
    # 1 − TV of the texts: no verification accepts both tokens more
    coherent = float(np.minimum(law, np.outer(*draft.rows)).sum())
    accepted = expected_step(
        BlockVerification(2), draft=draft, target=target, context=[]
    ).accepted_law
    assert accepted[2:].sum() <= coherent + 1e-14


def test_without_memory_nothing_is_lost() -> None:
    model = ZerothOrder([0.5, 0.3, 0.2])
    draft = block_marginals(model, context=[1], length=3)
    np.testing.assert_allclose(draft.rows, np.tile(model.mass, (3, 1)), atol=1e-15)
    step = expected_step(SpeculativeSampling(3), draft=draft, target=model, context=[1])
    assert step.block_efficiency == pytest.approx(4.0, abs=1e-14)


def test_marginals_of_a_chain() -> None:
    chain = MarkovModel([[0.9, 0.1], [0.2, 0.8]])
    rows = block_marginals(chain, context=[0], length=3).rows
    np.testing.assert_allclose(
        rows, [np.linalg.matrix_power(chain.table, n)[0] for n in (1, 2, 3)], atol=1e-15
    )


def test_positions_and_wrong_arguments() -> None:
    model = BlockMarginals([[0.5, 0.5], [0.25, 0.75]], start=2)
    np.testing.assert_array_equal(
        model.next_batch([(0, 0), (1, 1, 1), (0, 1, 0)]), model.rows[[0, 1, 1]]
    )
    for outside in ([0], [0, 0, 0, 0]):
        with pytest.raises(otm.errors.InvalidParameter, match="2 positions after 2 tokens"):
            model.next(outside)
    for wrong in (3, None, "ab", np.array(3)):
        with pytest.raises(
            otm.errors.InvalidParameter, match="context must be a sequence of tokens"
        ):
            model.next(wrong)  # type: ignore[arg-type]
    with pytest.raises(otm.errors.InvalidDistribution, match=r"the form \(L, V\)"):
        BlockMarginals([0.5, 0.5])  # type: ignore[arg-type]
    with pytest.raises(otm.errors.InvalidParameter):
        BlockMarginals([[0.5, 0.5]], start=-1)  # type: ignore[arg-type]
