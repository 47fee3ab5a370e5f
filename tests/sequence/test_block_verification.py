"""Block verification: the gold instance in fractions, its weights by hand, against token-level
verification and the program.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from otm.sequence import (
    BlockVerification,
    DraftTree,
    Enumerated,
    TableModel,
    ZerothOrder,
    outcomes,
    step_law,
)
from otm.sequence.block_verification import next_weight, pass_probability
from otm.trees import TreeShape
from tests.sequence.toys import random_models

THIRD, TWO_THIRDS = Fraction(1, 3), Fraction(2, 3)


def expected_weights(draft: TableModel, target: TableModel, length: int) -> np.ndarray:
    """E[w_i] for a general pair, by walking all drafts; written from the definition."""
    totals = np.zeros(length)

    def walk(context: tuple[int, ...], mass: float, weight: float) -> None:
        if len(context) == length:
            return
        p, q = draft.next(context), target.next(context)
        for token in np.flatnonzero(p):
            following = min(1.0, weight * q[token] / p[token])
            totals[len(context)] += mass * p[token] * following
            walk((*context, int(token)), mass * p[token], following)

    walk((), 1.0, 1.0)
    return totals


@pytest.mark.parametrize("seed", range(16))
def test_accepted_law_is_that_of_the_weights(seed: int) -> None:
    """Pr(at least i drafts are kept) = E[w_i]."""
    rng = np.random.default_rng([1, seed])
    num_tokens, length = int(rng.integers(2, 4)), int(rng.integers(1, 4))
    draft, target = random_models(num_tokens, length, rng)
    law = step_law(BlockVerification(length), draft=draft, target=target, context=[])
    tails = np.cumsum(np.pad(law.accepted_law, (0, length + 1 - len(law.accepted_law)))[::-1])[::-1]
    # Sums of at most 3³ products of a dozen factors of total ≤ 1: 1e-14 has room.
    np.testing.assert_allclose(tails[1:], expected_weights(draft, target, length), atol=1e-14)


class TestEdges:
    def test_a_draft_that_the_model_cannot_draw_is_never_kept(self) -> None:
        model = ZerothOrder([0.0, 1.0])
        tree = DraftTree(
            TreeShape.chain(2), (), np.array([-1, 0, 1]), draft={(): model.mass, (0,): model.mass}
        )
        target = ZerothOrder([0.5, 0.5])
        for one, _ in outcomes(
            lambda randomness: BlockVerification(2).verify(tree, target.next, randomness)
        ):
            assert one.accepted == 0
            assert one.tokens == (0,)  # (q − p)₊ has mass on token 0 only

    def test_weights_and_tests_at_zero(self) -> None:
        p, q = np.array([0.5, 0.5, 0.0]), np.array([0.0, 0.25, 0.75])
        assert [next_weight(1.0, p, q, x) for x in range(3)] == [0.0, 0.5, 0.0]
        assert next_weight(0.0, p, q, 1) == 0.0
        # no overflow to infinity on the way
        assert next_weight(1.0, np.array([1e-310, 1.0]), np.array([1.0, 0.0]), 0) == 1.0
        assert pass_probability(0.0, 1.0) == 1.0
        assert pass_probability(0.0, 0.0) == 0.0

    def test_steps_say_where_they_stopped(self) -> None:
        draft, target = random_models(2, 2, np.random.default_rng(3))
        randomness = Enumerated({})
        tree = BlockVerification(2).draft(draft, (), randomness)
        for one, _ in outcomes(
            lambda randomness: BlockVerification(2).verify(tree, target.next, randomness)
        ):
            assert one.stopped == ("end_of_draft" if one.accepted == 2 else "rejected")
            assert one.survivors == tuple((v,) for v in range(1, one.accepted + 1))
            assert one.tokens[: one.accepted] == tuple(tree.tokens[1 : one.accepted + 1])
