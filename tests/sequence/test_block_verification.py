"""Block verification: its weights by a walk of all drafts, where steps stop, and masses of 0."""

import numpy as np
import pytest

from otm.sequence import (
    BlockVerification,
    DraftTree,
    ZerothOrder,
    outcomes,
    step_law,
)
from otm.sequence.block_verification import next_weight
from otm.trees import TreeShape
from tests.sequence.toys import asked, random_models


def expected_weights(draft, target, length):
    """E[w_i] for a general pair, by walking all drafts; written from the definition."""
    totals = np.zeros(length)

    def walk(context, mass, weight):
        if len(context) == length:
            return
        p, q = draft.next(context), target.next(context)
        for token in np.flatnonzero(p):
            following = min(1.0, weight * q[token] / p[token])
            totals[len(context)] += mass * p[token] * following
            walk((*context, int(token)), mass * p[token], following)

    walk((), 1.0, 1.0)
    return totals


@pytest.mark.parametrize("seed", range(8))
def test_accepted_law_is_that_of_the_weights(seed):
    """Pr(at least i drafts are kept) = E[w_i]."""
    pair = random_models(2 + seed % 2, 3, np.random.default_rng([1, seed]))
    law = step_law(BlockVerification(3), **asked(pair))
    tails = [law.mass[law.accepted > i].sum() for i in range(3)]
    # Sums of at most 3³ products of a dozen factors of total ≤ 1: 1e-14 has room.
    np.testing.assert_allclose(tails, expected_weights(*pair, 3), atol=1e-14)


def test_a_draft_that_the_model_cannot_draw_is_never_kept():
    mass = np.array([0.0, 1.0])
    tree = DraftTree(TreeShape.chain(2), (), np.array([-1, 0, 1]), draft={(): mass, (0,): mass})
    target = ZerothOrder([0.5, 0.5])
    for one, _ in outcomes(lambda r: BlockVerification(2).verify(tree, target.next, r)):
        assert one.tokens == (0,)  # (q − p)₊ has mass on token 0 only


def test_weights_at_zero():
    p, q = np.array([0.5, 0.5, 0.0]), np.array([0.0, 0.25, 0.75])
    assert [next_weight(1.0, p, q, x) for x in range(3)] == [0.0, 0.5, 0.0]
    assert next_weight(0.0, p, q, 1) == 0.0
    # no overflow to infinity on the way
    assert next_weight(1.0, np.array([1e-310, 1.0]), np.array([1.0, 0.0]), 0) == 1.0
