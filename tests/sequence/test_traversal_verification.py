"""Traversal verification: the hand-worked pair of siblings, where steps stop, and against
vertex-by-vertex verification.
"""

from collections import Counter

import numpy as np
import pytest

from otm.sequence import (
    DraftTree,
    Gsd,
    Sampled,
    TraversalVerification,
    ZerothOrder,
    expected_step,
    outcomes,
    step,
    step_law,
)
from otm.sequence.traversal_verification import PendingVertex
from otm.trees import TreeShape
from tests.sequence.toys import DISTINCT, IID, asked, random_models


def test_a_pair_of_siblings_by_hand():
    """Two i.i.d. children with the same token, each with one child: the second is another chance,
    on what the first left over.
    """
    draft, target = ZerothOrder([0.5, 0.5]), ZerothOrder([0.25, 0.75])
    known = dict.fromkeys([(), (0,), (1,)], draft.mass)
    tree = DraftTree(TreeShape([0, 0, 1, 2]), (), np.array([-1, 0, 0, 0, 1]), known)
    # First child 0: w = (1/4)/(1/2) = 1/2. Its child 0: w = 1/2·(1/2) = 1/4. Rejected: Z = (1/2·3/4
    # − 1/2)₊ + … = 0, so vertex 1 has w = 0. The root then has q ∝ (1/4 − 1/2, 3/4 − 1/2)₊ = (0,
    # 1): the second child 0 weighs 0, and so does all below it.
    found = Counter()
    decoder = TraversalVerification(tree.shape, IID)
    for one, mass in outcomes(lambda randomness: decoder.verify(tree, target.next, randomness)):
        found[tuple(vertex for (vertex,) in one.survivors)] += mass
    assert found == {(1, 3): 1 / 4, (): 3 / 4}


@pytest.mark.parametrize("seed", range(6))
def test_never_fewer_tokens_than_vertex_by_vertex(seed):
    models = asked(random_models(2 + seed % 2, 3, np.random.default_rng([3, seed])))
    for tree in (TreeShape.sequences(2, 2), TreeShape([0, 1, 1, 0, 2])):
        traversal, vertex = (
            expected_step(decoder, **models).block_efficiency
            for decoder in (TraversalVerification(tree), Gsd(tree))
        )
        assert traversal >= vertex - 1e-13


def test_what_is_pending_after_a_rejection():
    # w·q = (.4, .2, .2), p = (.5, .1, .4): Z = .1, w' = .1/(.1 + .2) = 1/3, q' = (0, 1, 0).
    before = PendingVertex(0.8, np.array([0.5, 0.25, 0.25]), np.array([0.5, 0.1, 0.4]))
    after = before.after(0, DISTINCT)
    assert after.weight == pytest.approx(1 / 3)
    np.testing.assert_allclose(after.target, [0, 1, 0], atol=1e-15)
    np.testing.assert_allclose(after.draft, [0, 0.2, 0.8], atol=1e-15)
    assert before.after(0, IID).draft is before.draft
    # 0/0: rejected by rounding only, and the root is accepted in any case
    one = np.array([0.0, 1.0])
    everything = PendingVertex(1.0, one, one).after(1, DISTINCT)
    assert (everything.weight, everything.target.tolist()) == (1.0, [0.0, 1.0])
    assert everything.draft.tolist() == [0.0, 0.0]
    assert PendingVertex(0.5, one, one).after(1, IID).weight == 0.0


def test_where_steps_stop():
    draft, target = random_models(2, 2, np.random.default_rng(5))
    decoder = TraversalVerification(TreeShape([0, 0, 1]))
    shape = decoder.shape
    for tree, _ in outcomes(lambda randomness: decoder.draft(draft, (), randomness)):
        for one, _ in outcomes(lambda r, tree=tree: decoder.verify(tree, target.next, r)):
            path = [vertex for (vertex,) in one.survivors]
            assert [shape.parents[v - 1] for v in path] == [0, *path][: len(path)]
            last = path[-1] if path else 0
            assert one.tokens[: one.accepted] == tree.contexts()[last]
            assert one.stopped == ("rejected" if shape.children(last) else "end_of_draft")


def test_fewer_tokens_than_children():
    """A draft model that knows one token drafts one child; the other position stays empty."""
    pair = ZerothOrder([0.0, 1.0, 0.0]), ZerothOrder([0.25, 0.5, 0.25])
    law = step_law(TraversalVerification(TreeShape.batch(2)), **asked(pair))
    assert law.block_efficiency == 1.5


def test_a_chain_deeper_than_recursion():
    models = asked((ZerothOrder([0.5, 0.5]),) * 2)
    one = step(TraversalVerification(TreeShape.chain(1200)), **models, randomness=Sampled(0))
    assert one.accepted == 1200
