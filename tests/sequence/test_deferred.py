"""Deferred decisions against the enumeration of whole trees, and against closed forms for 0-th
order models.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
import tracemalloc

import numpy as np
import pytest

import otm
from otm.sequence import (
    BlockVerification,
    Decoder,
    DeferredDecoder,
    DraftSelection,
    Ersd,
    GreedyMultipath,
    Gsd,
    LikeliestTree,
    PrefixTree,
    SpeculativeSampling,
    StaticDecoder,
    TraversalVerification,
    TreeVerification,
    ZerothOrder,
    expected_step,
    outcomes,
    step_law,
)
from otm.sequence.decoder import Conditionals, DraftTree, Step, evaluate
from otm.sequence.randomness import Randomness
from otm.trees import TreeShape
from tests.sequence.toys import DISTINCT, IID, SIZES, decoders, distance, num_trees, random_models

# Both are sums of products of exact step laws, in different orders: 1e-14. Races share one
# quadrature, so its error cancels.
TOLERANCE = 1e-13


@pytest.mark.parametrize("block", range(6))
def test_the_law_is_that_of_the_enumeration(block: int) -> None:
    for index in range(block, 3 * len(SIZES), 6):
        rng, size = np.random.default_rng([7, index]), SIZES[index % len(SIZES)]
        draft, target = random_models(size.num_tokens, size.length, rng)
        for decoder in decoders(size, index, rng):
            if isinstance(decoder, DeferredDecoder) and num_trees(decoder, size.num_tokens) <= 81:
                models = {"draft": draft, "target": target, "context": []}
                assert (
                    distance(expected_step(decoder, **models).law, step_law(decoder, **models))
                    <= TOLERANCE
                ), (
                    index,
                    decoder,
                )


def reached_by_enumeration(decoder: Decoder, draft: object, target: object) -> np.ndarray:
    """Pr(v ∈ survivors) for each vertex, from every step's own account."""
    reached = np.zeros(decoder.num_nodes + 1)
    reached[0] = 1.0
    for tree, drafted in outcomes(lambda randomness: decoder.draft(draft, (), randomness)):  # type: ignore[arg-type]
        known = evaluate(target, tree)  # type: ignore[arg-type]
        for one, decided in outcomes(
            lambda randomness, tree=tree, known=known: decoder.verify(
                tree, known.__getitem__, randomness
            )
        ):
            for vertices in one.survivors:
                reached[list(vertices)] += drafted * decided
    return reached


TREE = TreeShape([0, 0, 1, 1, 2])


@pytest.mark.parametrize(
    "decoder",
    [
        SpeculativeSampling(3),
        DraftSelection(2, 2),
        PrefixTree((2, 1)),
        TreeVerification(TREE, IID, otm.Naive()),
        Gsd(TREE),
        Ersd(TREE),
        BlockVerification(3),
        TraversalVerification(TREE),
        TraversalVerification(TREE, IID),
        GreedyMultipath(2, 2),
        GreedyMultipath(2, 1, stem=2),
        LikeliestTree(5, 3),
    ],
    ids=repr,
)
def test_vertices_are_reached_as_enumerated(decoder: Decoder) -> None:
    draft, target = random_models(2, 3, np.random.default_rng(11))
    found = expected_step(decoder, draft=draft, target=target, context=[])
    np.testing.assert_allclose(
        found.reached, reached_by_enumeration(decoder, draft, target), atol=TOLERANCE
    )
    if (
        not isinstance(decoder, DraftSelection | PrefixTree)
        and getattr(decoder, "drafts", DISTINCT) == DISTINCT
    ):
        # One vertex per accepted draft; a race's masses miss 1 by its quadrature, 1.2e-12 at each
        # level.
        assert found.reached.sum() == pytest.approx(found.block_efficiency, abs=1e-11)


class TestZerothOrder:
    """Positions are independent: a chain is 1 + Σ aⁱ, a tree 1 + Σ over vertices of the product of
    A along the path.
    """

    draft, target = ZerothOrder([0.5, 0.3, 0.2]), ZerothOrder([0.2, 0.35, 0.45])

    @pytest.mark.parametrize("length", [1, 2, 5])
    def test_chain(self, length: int) -> None:
        a = float(np.minimum(self.draft.mass, self.target.mass).sum())
        found = expected_step(
            SpeculativeSampling(length), draft=self.draft, target=self.target, context=[]
        )
        assert found.block_efficiency == pytest.approx((1 - a ** (length + 1)) / (1 - a), abs=1e-13)
        np.testing.assert_allclose(found.reached, a ** np.arange(length + 1), atol=1e-14)
        np.testing.assert_allclose(
            found.accepted_law[:-1], (1 - a) * a ** np.arange(length), atol=1e-14
        )

    @pytest.mark.parametrize(
        "shape", [TREE, TreeShape.prefix_tree((3, 2, 1)), TreeShape.sequences(3, 3)], ids=repr
    )
    @pytest.mark.parametrize(
        ("cls", "verifier"),
        [(Gsd, otm.RecursiveRejection()), (Ersd, otm.Race())],
        ids=["gsd", "ersd"],
    )
    def test_tree(self, cls: type, verifier: otm.Verifier, shape: TreeShape) -> None:
        # A(i) = α_i − α_{i−1}: both rules decide about the first i drafts without looking at later
        # ones.
        curve = otm.acceptance_curve(
            verifier,
            otm.Problem(draft=self.draft.mass, target=self.target.mass, law=DISTINCT),
            k=[1, 2, 3],
        )
        ranks = np.diff([0.0, *curve])
        wanted = [float(np.prod([ranks[rank] for rank in path])) for path in shape.paths()]
        found = expected_step(cls(shape), draft=self.draft, target=self.target, context=[])
        # The acceptance curve's quadrature is good to 1e-12 for races, products of three.
        np.testing.assert_allclose(found.reached, wanted, atol=1e-11)
        assert found.block_efficiency == pytest.approx(sum(wanted), abs=1e-10)

    def test_a_tree_far_beyond_enumeration(self) -> None:
        """Five levels of pairs are 62 vertices: 6³¹ drafted trees, but one transition at each of at
        most 121 contexts.
        """
        shape = TreeShape.prefix_tree((2,) * 5)
        found = expected_step(Gsd(shape), draft=self.draft, target=self.target, context=[])
        pair = otm.acceptance(
            otm.RecursiveRejection(),
            otm.Problem(
                draft=self.draft.mass, target=self.target.mass, law=otm.WithoutReplacement(2)
            ),
        )
        assert found.block_efficiency == pytest.approx(sum(pair**i for i in range(6)), abs=1e-12)


def test_draft_selection_with_the_optimal_verifier_one_level() -> None:
    draft, target = random_models(3, 1, np.random.default_rng(4))
    found = expected_step(
        DraftSelection(3, 1, otm.Optimal()), draft=draft, target=target, context=[]
    )
    problem = otm.Problem(draft=draft.next([]), target=target.next([]), law=otm.IID(3))
    assert found.block_efficiency == pytest.approx(1 + otm.optimal_acceptance(problem), abs=1e-13)


def test_context_and_repr() -> None:
    draft, target = random_models(2, 3, np.random.default_rng(4))
    found = expected_step(SpeculativeSampling(1), draft=draft, target=target, context=[1, 0])
    assert found.block_efficiency == pytest.approx(
        1 + np.minimum(draft.next([1, 0]), target.next([1, 0])).sum(), abs=1e-15
    )
    assert repr(found) == f"ExpectedStep(1 vertices, block_efficiency={found.block_efficiency:.6g})"


def test_lossy_verifiers_have_a_law_too() -> None:
    draft, target = random_models(2, 2, np.random.default_rng(9))
    for verifier, context in itertools.product(
        [otm.Mentored(0.1), otm.Lenience(0.5), otm.Fuzzy(), otm.TypicalAcceptance()], [[]]
    ):
        decoder = SpeculativeSampling(2, verifier)
        models = {"draft": draft, "target": target, "context": context}
        assert (
            distance(expected_step(decoder, **models).law, step_law(decoder, **models)) <= TOLERANCE
        )


def test_a_decoder_it_does_not_know_is_refused() -> None:
    @dataclasses.dataclass(frozen=True)
    class Own(StaticDecoder):
        @property
        def lossless(self) -> bool:
            return True

        @property
        def shape(self) -> TreeShape:
            return TreeShape.chain(1)

        def draft(
            self, model: object, context: tuple[int, ...], randomness: Randomness
        ) -> DraftTree:
            raise NotImplementedError

        def verify(self, tree: DraftTree, target: Conditionals, randomness: Randomness) -> Step:
            raise NotImplementedError

    model = ZerothOrder([0.5, 0.5])
    with pytest.raises(otm.errors.Unsupported, match=r"deferred.*Own\(\).*step_law"):
        expected_step(Own(), draft=model, target=model, context=[])


def test_more_children_than_tokens() -> None:
    model = ZerothOrder([0.5, 0.5])
    for decoder in (
        Gsd(TreeShape.batch(3)),
        TraversalVerification(TreeShape.batch(3)),
        Ersd(TreeShape.batch(3)),
    ):
        with pytest.raises(otm.errors.InvalidParameter):
            expected_step(decoder, draft=model, target=model, context=[])


class TestSize:
    def test_drafts_are_gone_through_in_blocks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rng = np.random.default_rng(8)
        decoder = Gsd(TreeShape([0, 0, 1]))
        draft, target = (ZerothOrder(rng.dirichlet(np.ones(6))) for _ in range(2))
        whole = expected_step(decoder, draft=draft, target=target, context=[])
        # three of the thirty sequences
        monkeypatch.setattr(sys.modules[expected_step.__module__], "_ENTRIES_AT_ONCE", 19)
        found = expected_step(decoder, draft=draft, target=target, context=[])
        assert distance(found.law, whole.law) <= TOLERANCE
        np.testing.assert_allclose(found.reached, whole.reached, atol=TOLERANCE)

    def test_memory_of_a_block(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys.modules[expected_step.__module__], "_ENTRIES_AT_ONCE", 1 << 14)
        target = np.zeros(600)
        target[:20] = 0.05
        tracemalloc.start()
        expected_step(
            SpeculativeSampling(1),
            draft=ZerothOrder(np.full(600, 1 / 600)),
            target=ZerothOrder(target),
            context=[],
        )
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 600 * 600 * 8  # one table of all

    @pytest.mark.parametrize(
        ("decoder", "most"),
        [(SpeculativeSampling(1), "1,073,741,824"), (Ersd(TreeShape([0])), "134,217,728")],
        ids=repr,
    )
    def test_no_table_beyond_the_limit(self, decoder: Decoder, most: str) -> None:
        model = ZerothOrder(np.full(49_152, 1 / 49_152))
        expected = (
            f"at most {most} pairs.*49,152 draft sequences × 49,152 tokens.*otm.sequence.generate"
        )
        with pytest.raises(otm.errors.TooLarge, match=expected):
            expected_step(decoder, draft=model, target=model, context=[])

    def test_two_children(self) -> None:
        model = ZerothOrder(np.full(1_100, 1 / 1_100))
        with pytest.raises(otm.errors.TooLarge, match="1,208,900 draft sequences × 1,100 tokens"):
            expected_step(Gsd(TreeShape([0, 0])), draft=model, target=model, context=[])
