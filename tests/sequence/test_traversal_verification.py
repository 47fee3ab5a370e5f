"""Traversal verification: block verification on chains, the hand-worked pair of siblings, against
vertex-by-vertex verification.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import otm
from otm.sequence import (
    BlockVerification,
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
from tests.sequence.toys import DISTINCT, IID, distance, random_models


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("law", [DISTINCT, IID], ids=repr)
def test_on_a_chain_it_is_block_verification(seed: int, law: otm.Law) -> None:
    rng = np.random.default_rng([2, seed])
    num_tokens, length = int(rng.integers(2, 4)), int(rng.integers(1, 4))
    draft, target = random_models(num_tokens, length, rng)
    chain = TraversalVerification(TreeShape.chain(length), law)
    block = BlockVerification(length)
    laws = [step_law(decoder, draft=draft, target=target, context=[]) for decoder in (chain, block)]
    assert distance(*laws) <= 1e-15


@pytest.mark.parametrize("law", [DISTINCT, IID], ids=repr)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_one_level_is_recursive_rejection(law: otm.Law, count: int) -> None:
    """Without depth there is nothing to win back: w and q run through recursive rejection's
    residuals.
    """
    draft, target = ZerothOrder([0.5, 0.3, 0.2]), ZerothOrder([0.2, 0.35, 0.45])
    tree = TreeShape.batch(count)
    found = step_law(TraversalVerification(tree, law), draft=draft, target=target, context=[])
    wanted = otm.acceptance(
        otm.RecursiveRejection(),
        otm.Problem(draft=draft.mass, target=target.mass, law=law.of_size(count)),
    )
    assert found.block_efficiency - 1 == pytest.approx(wanted, abs=1e-14)


def test_a_pair_of_siblings_by_hand() -> None:
    """Two i.i.d. children with the same token, each with one child: the second is another chance,
    on what the first left over.
    """
    half = Fraction(1, 2)
    draft, target = ZerothOrder([0.5, 0.5]), ZerothOrder([0.25, 0.75])
    tree = DraftTree(
        TreeShape([0, 0, 1, 2]),
        (),
        np.array([-1, 0, 0, 0, 1]),
        draft={(): draft.mass, (0,): draft.mass, (1,): draft.mass},
    )
    # First child 0: w = (1/4)/(1/2) = 1/2. Its child 0: w = 1/2·(1/2) = 1/4. Rejected: Z = (1/2·3/4
    # − 1/2)₊ + … = 0, so vertex 1 has w = 0. The root then has q ∝ (1/4 − 1/2, 3/4 − 1/2)₊ = (0,
    # 1): the second child 0 weighs 0, and so does all below it.
    first = half * half
    found: dict[tuple[int, ...], float] = {}
    decoder = TraversalVerification(tree.shape, IID)
    for one, mass in outcomes(lambda randomness: decoder.verify(tree, target.next, randomness)):
        path = tuple(vertex for (vertex,) in one.survivors)
        found[path] = found.get(path, 0.0) + mass
    assert found == {(1, 3): float(first), (): float(1 - first)}


@pytest.mark.parametrize("seed", range(16))
def test_distinct_siblings_never_do_worse_than_recursive_rejection_at_every_vertex(
    seed: int,
) -> None:
    """[observed] in docs/theory.md: no counterexample among thousands of random pairs; these are
    some.
    """
    rng = np.random.default_rng([3, seed])
    draft, target = random_models(int(rng.integers(2, 4)), 3, rng)
    for tree in (
        TreeShape.sequences(2, 2),
        TreeShape([0, 1, 1, 0, 2]),
        TreeShape.prefix_tree((2, 2)),
    ):
        traversal, vertex = (
            expected_step(decoder, draft=draft, target=target, context=[]).block_efficiency
            for decoder in (TraversalVerification(tree), Gsd(tree))
        )
        assert traversal >= vertex - 1e-13


class TestPending:
    def test_weight_and_target_after_a_rejection(self) -> None:
        # w·q = (.4, .2, .2), p = (.5, .1, .4): Z = .1, w' = .1/(.1 + .2) = 1/3, q' = (0, 1, 0).
        before = PendingVertex(0.8, np.array([0.5, 0.25, 0.25]), np.array([0.5, 0.1, 0.4]))
        after = before.after(0, DISTINCT)
        assert after.weight == pytest.approx(1 / 3)
        np.testing.assert_allclose(after.target, [0, 1, 0], atol=1e-15)
        np.testing.assert_allclose(after.draft, [0, 0.2, 0.8], atol=1e-15)
        assert before.after(0, IID).draft is before.draft

    def test_nothing_is_left(self) -> None:
        everything = PendingVertex(1.0, np.array([0.0, 1.0]), np.array([0.0, 1.0])).after(
            1, DISTINCT
        )
        assert (
            everything.weight == 1.0
        )  # 0/0: rejected by rounding only, and the root is accepted in any case
        assert everything.target.tolist() == [0.0, 1.0]
        assert everything.draft.tolist() == [0.0, 0.0]
        assert (
            PendingVertex(0.5, np.array([1.0, 0.0]), np.array([1.0, 0.0])).after(0, IID).weight
            == 0.0
        )


class TestSteps:
    def test_where_they_stop(self) -> None:
        draft, target = random_models(2, 2, np.random.default_rng(5))
        decoder = TraversalVerification(TreeShape([0, 0, 1]))
        shape = decoder.shape
        for tree, _ in outcomes(lambda randomness: decoder.draft(draft, (), randomness)):
            contexts = tree.contexts()
            for one, _ in outcomes(
                lambda randomness, tree=tree: decoder.verify(tree, target.next, randomness)
            ):
                path = [vertex for (vertex,) in one.survivors]
                assert [shape.parents[v - 1] for v in path] == [0, *path][: len(path)]
                last = path[-1] if path else 0
                assert one.tokens[: one.accepted] == contexts[last]
                assert one.stopped == ("rejected" if shape.children(last) else "end_of_draft")

    def test_fewer_tokens_than_children(self) -> None:
        """A draft model that knows one token drafts one child; the other position stays empty."""
        draft, target = ZerothOrder([0.0, 1.0, 0.0]), ZerothOrder([0.25, 0.5, 0.25])
        law = step_law(
            TraversalVerification(TreeShape.batch(2)), draft=draft, target=target, context=[]
        )
        assert law.block_efficiency == 1.5

    def test_a_chain_deeper_than_recursion(self) -> None:
        model = ZerothOrder([0.5, 0.5])
        chain = TraversalVerification(TreeShape.chain(1200))
        one = step(
            chain,
            draft=model,
            target=model,
            context=[],
            randomness=Sampled(np.random.default_rng(0)),
        )
        assert one.accepted == 1200
