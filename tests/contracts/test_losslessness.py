"""SpecTr's Theorem 3 for every decoder, by enumeration: output followed by target samples has the
target's law, to 1e-12.

Every drafted tree and every verdict is enumerated, on models of which each context has a
distribution of its own, with zeros, ties, point masses, equal and disjoint conditionals. Trees too
many for that (V^n > 256, in the corner all independent drafts) are done by deferred decisions,
which `test_exact_laws.py` holds against the enumeration. A broken variant of each decoder must be
noticed.
"""

import dataclasses
import importlib

import numpy as np
import pytest

import otm
from otm.sequence import (
    DECODERS,
    BlockKSeq,
    BlockVerification,
    DeferredDecoder,
    DraftSelection,
    Ersd,
    GreedyMultipath,
    Gsd,
    LikeliestTree,
    PrefixTree,
    RefinedScores,
    SampledTree,
    SpeculativeSampling,
    Staged,
    StochasticBeam,
    TraversalVerification,
    TreeVerification,
    expected_step,
    step_law,
)
from otm.sequence.drafted_tree import children_of
from otm.sequence.vertex_decoder import descend
from otm.trees import TreeShape
from tests import mutants
from tests.sequence.hierarchical import CappedAtOne
from tests.sequence.toys import (
    CORNER,
    IID,
    SIZES,
    SUCCESSIVE,
    bias,
    block_drafter,
    decoders,
    num_trees,
    random_models,
    smooth_models,
)

MODELS = 208
BLOCKS = 16
MOST_TREES = 256

# A completed law is a sum of non-negative products of at most 2·(n + L + 1) probabilities, n ≤ 9
# and L ≤ 3, each right to a few units in the last place, and of total 1: its error is below
# 26·8·2⁻⁵³ = 3e-14.
ROUNDING = 1e-12
# A race's joint law of drafts and winner is a quadrature with an error of 1.2e-12·q(y) per entry;
# there are at most V!/(V − k)! ≤ 6 draft sequences per winner, the rows are divided by their sums,
# and a path has at most three races: 2·3·6·1.2e-12 < 5e-11.
QUADRATURE = 5e-11


def tolerance(decoder):
    return QUADRATURE if isinstance(decoder, Ersd) else ROUNDING


def toy(index):
    rng = np.random.default_rng([5, index])
    size = SIZES[index % len(SIZES)]
    draft, target = random_models(size.num_tokens, size.length, rng)
    instances = decoders(size, index, rng)
    # a block with a transition is a draft model like any other
    drafter = block_drafter(size.num_tokens, size.length, rng) if index % 5 == 2 else draft
    return drafter, target, instances, size.num_tokens


@pytest.mark.parametrize(
    "block",
    [pytest.param(block, marks=[pytest.mark.long] if block % 2 else []) for block in range(BLOCKS)],
)
def test_every_decoder_is_lossless(block):
    for index in range(block, MODELS, BLOCKS):
        draft, target, instances, num_tokens = toy(index)
        for decoder in instances:
            assert decoder.lossless
            enumerable = num_trees(decoder, num_tokens) <= MOST_TREES or not isinstance(
                decoder, DeferredDecoder
            )
            found = bias(decoder, draft, target, step=step_law if enumerable else expected_step)
            assert found <= tolerance(decoder), (index, decoder)


def test_the_walk_covers_what_it_claims():
    walked = [toy(index) for index in range(MODELS)]
    assert MODELS >= 200
    assert {type(decoder) for _, _, instances, _ in walked for decoder in instances} == set(
        DECODERS
    )
    enumerated = [
        decoder
        for _, _, instances, num_tokens in walked
        for decoder in instances
        if num_trees(decoder, num_tokens) <= MOST_TREES
    ]
    for cls in DECODERS:
        assert sum(isinstance(decoder, cls) for decoder in enumerated) >= 150, cls
    assert {(s.num_tokens, s.length, s.width) for s in SIZES} >= {
        (v, n, k) for v in (2, 3) for n in (1, 2, 3) for k in (1, 2, 3)
    }


CORNER_TREE = TreeShape.sequences(CORNER.width, CORNER.length)
# three sequences of three tokens; distinct siblings leave 3!·3⁶ = 4,374 drafted trees
CORNER_DECODERS = [
    Gsd(CORNER_TREE),
    TraversalVerification(CORNER_TREE),
    Ersd(CORNER_TREE),
    TreeVerification(CORNER_TREE, otm.WithoutReplacement(1), otm.Naive()),
    TreeVerification(CORNER_TREE, otm.Greedy(1), otm.GreedyOptimal()),
]


@pytest.mark.parametrize("index", range(5))
def test_the_corner(index):
    """V = L = K = 3 on five models: all trees for one decoder each, chains and deferred decisions
    for all.
    """
    draft, target = random_models(
        CORNER.num_tokens, CORNER.length, np.random.default_rng([6, index])
    )
    full = TreeShape.prefix_tree((3, 3, 3))
    selecting = (otm.KSeq(), otm.RecursiveRejection(), otm.Optimal(), otm.TransportPlan())
    deferred = [
        *(DraftSelection(3, 3, verifier) for verifier in selecting),
        TreeVerification(CORNER_TREE, IID, otm.Naive()),
        TreeVerification(CORNER_TREE, IID, otm.NaiveTree()),
        PrefixTree((3, 2, 1)),
        *(cls(tree) for cls in (Gsd, TraversalVerification, Ersd) for tree in (CORNER_TREE, full)),
        TraversalVerification(full, IID),
        GreedyMultipath(3, 3),
        GreedyMultipath(3, 2, stem=1),
        LikeliestTree(16, 3),
    ]
    enumerated = [CORNER_DECODERS[index], SpeculativeSampling(3), BlockVerification(3)]
    for step, decoders_ in ((expected_step, deferred), (step_law, enumerated)):
        for decoder in decoders_:
            assert bias(decoder, draft, target, step=step) <= tolerance(decoder), decoder


@pytest.mark.long
@pytest.mark.parametrize("verifier", [otm.KSeq(), otm.RecursiveRejection()], ids=repr)
def test_independent_drafts_enumerated(verifier):
    draft, target = random_models(CORNER.num_tokens, CORNER.length, np.random.default_rng([6, 0]))
    decoder = DraftSelection(CORNER.width, CORNER.length, verifier)  # 3⁹ trees
    assert bias(decoder, draft, target, step=step_law) <= ROUNDING


# --- broken variants
# ----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class BonusAfterRejection(SpeculativeSampling):
    """Replaces a rejected draft by a sample from the target instead of from the residual."""

    def verify(self, tree, target, randomness):
        one = super().verify(tree, target, randomness)
        if one.stopped != "rejected":
            return one
        kept = one.tokens[: one.accepted]
        return dataclasses.replace(
            one, tokens=(*kept, randomness.choose(target((*tree.context, *kept))))
        )


@dataclasses.dataclass(frozen=True)
class LeavesAsDrafts(PrefixTree):
    """SpecTr's Algorithm 5 read literally: one draft per leaf, though leaves share prefixes ("The
    prefix-tree trap").
    """

    def verify(self, tree, target, randomness):
        below = children_of(tree.shape)

        def leaves(vertex):
            return sum(map(leaves, below[vertex])) if below[vertex] else 1

        def output(vertices, context, proposals):
            counts = [leaves(child) for vertex in vertices for child in below[vertex]]
            drafts = np.repeat(proposals, counts)
            return randomness.verify(
                self.verifier,
                otm.IID(len(drafts)),
                tree.draft[context],
                target(context),
                drafts,
            )

        return descend(tree, target, randomness, output)


@dataclasses.dataclass(frozen=True)
class ReplacedDrafts(Gsd):
    """Draws without replacement, verifies as if drafts were independent."""

    def verify(self, tree, target, randomness):
        return TreeVerification(self.tree, IID, otm.RecursiveRejection()).verify(
            tree, target, randomness
        )


@dataclasses.dataclass(frozen=True)
class SiblingsDrawnAgain(TraversalVerification):
    """Verifies a child as if its elder siblings could have been drawn again."""

    def verify(self, tree, target, randomness):
        return TraversalVerification(self.tree, IID).verify(tree, target, randomness)


@dataclasses.dataclass(frozen=True)
class ReusedRace(Ersd):
    """Decides every vertex on the clocks of the root's race."""

    def verify(self, tree, target, randomness):
        return descend(
            tree,
            target,
            randomness,
            lambda vertices, context, _: randomness.winner(
                target(context), tree.shared[tree.context]
            ),
        )


@dataclasses.dataclass(frozen=True)
class GammaOfOneMore(BlockKSeq):
    """γ* for another number of sequences than there are."""

    def gamma(self, draft, target):
        return BlockKSeq(1, self.length).gamma(draft, target)


def flattened(tree):
    """The same tokens, as if another law had drafted them, at another temperature."""
    flat = {context: np.sqrt(row) / np.sqrt(row).sum() for context, row in tree.draft.items()}
    return dataclasses.replace(tree, draft=flat)


@dataclasses.dataclass(frozen=True)
class RankedAtAnotherTemperature(GreedyMultipath):
    """Ranks and verifies by another draft law than the one that drafted."""

    def verify(self, tree, target, randomness):
        return super().verify(flattened(tree), target, randomness)


@dataclasses.dataclass(frozen=True)
class AnotherTemperature(RefinedScores):
    """The scores are split by another draft law than the one that drafted."""

    def verify(self, tree, target, randomness):
        return super().verify(flattened(tree), target, randomness)


@dataclasses.dataclass(frozen=True)
class JudgedByTheDraft(Staged):
    """Verifies the middle model's text as if the small model had drafted it."""

    def draft(self, model, context, randomness):
        tree = super().draft(model, context, randomness)
        return dataclasses.replace(
            tree, draft={before: model.next(before) for before in tree.draft}
        )


MIDDLE = otm.sequence.ZerothOrder([0.2, 0.3, 0.5])


@dataclasses.dataclass(frozen=True)
class LikeliestAsSampled(LikeliestTree):
    """Verifies the likeliest children as if they had been sampled."""

    def verify(self, tree, target, randomness):
        return SampledTree(self.size, self.length).verify(tree, target, randomness)


@dataclasses.dataclass(frozen=True)
class PrunedByToken(SampledTree):
    """Samples a pair of drafts and drops unlikely ones, after a look at their tokens."""

    def draft(self, model, context, randomness):
        pair = SampledTree(2, 1).draft(model, context, randomness)
        p = pair.draft[context]
        kept = pair.tokens[1:][p[pair.tokens[1:]] >= 0.3]
        return dataclasses.replace(
            pair, shape=TreeShape(np.zeros(len(kept), dtype=int)), tokens=np.array([-1, *kept])
        )


@dataclasses.dataclass(frozen=True)
class SiblingsByMass(StochasticBeam):
    """Judges siblings by falling probability, not in the order in which they were drawn."""

    def verify(self, tree, target, randomness):
        p = tree.draft[()]
        order = sorted(range(1, self.num_drafts + 1), key=lambda vertex: -p[tree.tokens[vertex]])
        sorted_tree = dataclasses.replace(tree, tokens=np.array([-1, *tree.tokens[order]]))
        return super().verify(sorted_tree, target, randomness)


TREE = TreeShape([0, 0, 1, 1])
BROKEN = {
    SpeculativeSampling: [BonusAfterRejection(2)],
    DraftSelection: [DraftSelection(2, 2, mutants.ClippedKSeq())],
    PrefixTree: [LeavesAsDrafts((1, 2), otm.RecursiveRejection()), LeavesAsDrafts((1, 2))],
    TreeVerification: [
        TreeVerification(TREE, IID, mutants.NoRenormalisation()),
        TreeVerification(TREE, IID, mutants.ReusedUniform()),
        TreeVerification(TREE, IID, mutants.ClippedKSeq()),
    ],
    Gsd: [ReplacedDrafts(TREE)],
    Ersd: [ReusedRace(TREE)],
    BlockVerification: [CappedAtOne(2)],
    TraversalVerification: [SiblingsDrawnAgain(TREE)],
    LikeliestTree: [LikeliestAsSampled(3, 2)],
    SampledTree: [PrunedByToken(2, 1, rule) for rule in SUCCESSIVE[:2]],
    Staged: [JudgedByTheDraft(SpeculativeSampling(1), MIDDLE, 2)],
    StochasticBeam: [SiblingsByMass(2, 1)],
    GreedyMultipath: [RankedAtAnotherTemperature(2, 1)],
    BlockKSeq: [GammaOfOneMore(2, 2)],
    RefinedScores: [AnotherTemperature(2, 2)],
}


def broken_variants(cls):
    """Those above, or the list `BROKEN` in the tests of the decoder's module."""
    if cls in BROKEN:
        return BROKEN[cls]
    module = importlib.import_module(f"tests.sequence.test_{cls.__module__.rpartition('.')[2]}")
    return module.BROKEN


@pytest.mark.parametrize("cls", DECODERS, ids=lambda cls: cls.__name__)
def test_broken_variants_are_noticed(cls):
    """By a total variation of 1e-3 on one of four models, nine orders above the tolerance."""
    for broken in broken_variants(cls):
        assert isinstance(broken, cls)
        models = (smooth_models(3, 3, seed) for seed in range(4))
        assert any(bias(broken, *pair, step=step_law) > 1e-3 for pair in models), broken


def test_the_prefix_tree_trap_costs_what_the_theory_says():
    # One token, leaves (X₁, X₁): the output is (1/4, 5/24, 13/24) where the target is (1/4, 1/4,
    # 1/2).
    draft = otm.sequence.ZerothOrder([3 / 4, 1 / 8, 1 / 8])
    target = otm.sequence.ZerothOrder([1 / 4, 1 / 4, 1 / 2])
    trap = LeavesAsDrafts((1, 2), otm.RecursiveRejection())
    law = otm.sequence.completed_law(
        step_law(trap, draft=draft, target=target, context=[]), target=target, context=[], length=1
    )
    np.testing.assert_allclose(law, [1 / 4, 5 / 24, 13 / 24], atol=1e-15)
