"""Traversal verification: the hand-worked pair of siblings, where steps stop, and against
vertex-by-vertex verification.
"""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from otm.sequence import (
    DraftTree,
    Gsd,
    Sampled,
    TableModel,
    TraversalVerification,
    ZerothOrder,
    expected_step,
    outcomes,
    step,
    step_law,
)
from otm.sequence.traversal_verification import PendingVertex
from otm.trees import TreeShape
from tests.sequence.toys import DISTINCT, IID, asked, contexts, random_models


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
def test_no_fewer_tokens_than_recursive_rejection(seed):
    """Where the root alone branches; below it where drafts are uniform and elder siblings have the
    larger subtrees.
    """
    draft, target = random_models(2 + seed % 2, 3, np.random.default_rng([3, seed]))
    flat = ZerothOrder(np.full(2 + seed % 2, 1 / (2 + seed % 2)))
    for tree, drafter in (
        (TreeShape.sequences(2, 2), draft),
        (TreeShape([0, 1, 1, 0, 2]), flat),
    ):
        traversal, vertex = (
            expected_step(decoder, **asked((drafter, target))).block_efficiency
            for decoder in (TraversalVerification(tree), Gsd(tree))
        )
        assert traversal >= vertex - 1e-13


def kept_below(tree, context, w, rows, first):
    """How many vertices below one of weight w are accepted, in fractions; with `first` each is
    accepted by itself before its children are looked at, which is recursive rejection.
    """
    share, w = (w, Fraction(1)) if first else (1, w)
    return share * kept_of(tree, context, w, *rows.get(context, rows["other"]), rows, first)


def kept_of(children, context, w, p, q, rows, first):
    """The same of the children that are left, the first of which is drawn from p."""
    found, excess = Fraction(0), [max(w * b - a, 0) for a, b in zip(p, q, strict=True)]
    for x in [x for x, mass in enumerate(p) if mass and children]:
        weight = min(Fraction(1), w * q[x] / p[x])
        below = kept_below(children[0], (*context, x), weight, rows, first)
        if weight < 1 and sum(excess) and p[x] < 1:
            left = [0 if y == x else mass / (1 - p[x]) for y, mass in enumerate(p)]
            state = sum(excess) / (sum(excess) + 1 - w), left, [e / sum(excess) for e in excess]
            below += (1 - weight) * kept_of(children[1:], context, *state, rows, first)
        found += p[x] * (weight + below)
    return found


LOSSES = {
    "leaves": (
        (((), ()),),
        [0, 1, 1],
        {
            (): ([Fraction(1), 0, 0, 0], [Fraction(2, 3), Fraction(1, 3), 0, 0]),
            (0,): (
                [Fraction(1, 10), 0, Fraction(8, 10), Fraction(1, 10)],
                [Fraction(1, 10), Fraction(4, 10), Fraction(1, 20), Fraction(9, 20)],
            ),
            "other": ([Fraction(1, 4)] * 4,) * 2,
        },
        (Fraction(2227, 1080), Fraction(31, 15)),
    ),
    "two tokens": (
        (((), ((),)),),
        [0, 1, 1, 3],
        {
            (): ([Fraction(1), 0], [Fraction(1, 2), Fraction(1, 2)]),
            (0,): ([Fraction(1, 2), Fraction(1, 2)], [Fraction(1), 0]),
            "other": ([Fraction(1, 2)] * 2,) * 2,
        },
        (Fraction(2), Fraction(9, 4)),
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_fewer_tokens_than_recursive_rejection(name):
    tree, parents, rows, wanted = LOSSES[name]
    assert wanted == tuple(
        1 + kept_below(tree, (), Fraction(1), rows, first) for first in (False, True)
    )
    every = contexts(len(rows["other"][0]), len(parents) - 1)
    draft, target = (
        TableModel({c: np.array(rows.get(c, rows["other"])[i], dtype=float) for c in every})
        for i in (0, 1)
    )
    for decoder, tokens in zip((TraversalVerification, Gsd), wanted, strict=True):
        found = expected_step(decoder(TreeShape(parents)), **asked((draft, target)))
        assert found.block_efficiency == pytest.approx(float(tokens), abs=1e-14)


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
