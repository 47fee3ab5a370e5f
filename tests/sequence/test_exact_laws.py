"""The exact laws of a step: the sampler and deferred decisions against enumeration; decoders that
coincide.
"""

import tracemalloc
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import otm
from otm.sequence import (
    BlockKSeq,
    BlockVerification,
    DeferredDecoder,
    DraftSelection,
    Ersd,
    GreedyMultipath,
    Gsd,
    Memoised,
    PrefixTree,
    RefinedScores,
    Sampled,
    SampledTree,
    SpeculativeSampling,
    StepLaw,
    StochasticBeam,
    TraversalVerification,
    TreeVerification,
    ZerothOrder,
    best_step,
    completed_law,
    divergence_by_position,
    expected_step,
    generated_law,
    outcomes,
    randomness,
    sequence_law,
    step_law,
)
from otm.sequence.decoding import evaluate
from otm.sequence.randomness import Enumerated
from otm.trees import TreeShape
from tests.contracts.alarms import alarms
from tests.sequence.toys import (
    DISTINCT,
    IID,
    asked,
    bias,
    decodings,
    distance,
    num_trees,
    outcomes_of,
    random_models,
    smooth_models,
)

# Sums of products of exact step laws, in different orders: 1e-14. The deferred law of a race has
# the quadrature of the enumerated one, which cancels between them.
TOLERANCE, QUADRATURE = 1e-12, 1e-10
TREE = TreeShape([0, 0, 1, 1, 2])
SOURCES = ZerothOrder([0.5, 0.3, 0.2]), ZerothOrder([0.2, 0.35, 0.45])


@settings(max_examples=100, suppress_health_check=[HealthCheck.data_too_large])
@given(decodings())
def test_every_decoder_by_every_account(one):
    """The text has the target's law; the deferred law is the enumerated one, vertex by vertex; the
    best step is not exceeded.
    """
    decoder, models = one
    if num_trees(decoder, models["draft"].num_tokens) <= 81:
        off = bias(decoder, models["draft"], models["target"], step=step_law)
        assert off <= QUADRATURE
        law = step_law(decoder, **models)
        rounding = QUADRATURE if isinstance(decoder, Ersd) else TOLERANCE
        assert law.mass.sum() == pytest.approx(1.0, abs=rounding)
        assert (law.lengths == law.accepted + 1).all()
        assert law.accepted_law @ np.arange(len(law.accepted_law)) == pytest.approx(
            law.block_efficiency - 1, abs=rounding
        )
        if isinstance(decoder, DeferredDecoder):
            found = expected_step(decoder, **models)
            assert distance(found.law, law) <= TOLERANCE, decoder
            reached = reached_by_enumeration(decoder, **models)
            np.testing.assert_allclose(
                found.reached, [reached[v] for v in range(len(found.reached))], atol=TOLERANCE
            )
        if not decoder.carries_noise:
            best = best_step(decoder, **models)
            assert law.block_efficiency <= best.upper + rounding, decoder
            assert 1 <= best.value <= decoder.depth + 1 + 1e-9


def reached_by_enumeration(decoder, *, draft, target, context):
    """Pr(v ∈ survivors) for each vertex, from every step's own account."""
    reached = Counter({0: 1.0})
    for tree, drafted in outcomes(lambda randomness: decoder.draft(draft, (), randomness)):
        known = evaluate(target, tree).__getitem__
        for one, decided in outcomes(lambda r, tree=tree, k=known: decoder.verify(tree, k, r)):
            for vertices in one.survivors:
                reached.update(dict.fromkeys(vertices, drafted * decided))
    return reached


# --- decoders that coincide

CHAIN = TreeShape.chain(3)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (GreedyMultipath(1, 3), BlockVerification(3)),
        (GreedyMultipath(1, 1, stem=2), BlockVerification(3)),
        (RefinedScores(1, 3), BlockVerification(3)),
        (BlockKSeq(1, 3), BlockVerification(3)),
        (TraversalVerification(CHAIN), BlockVerification(3)),
        (TraversalVerification(CHAIN, IID), BlockVerification(3)),
        (StochasticBeam(1, 3), SpeculativeSampling(3, otm.RecursiveRejection())),
        (StochasticBeam(1, 3, None), BlockVerification(3)),
        (StochasticBeam(2, 1), Gsd(TreeShape.batch(2))),
        (SampledTree(1, 1, otm.RecursiveRejection()), SpeculativeSampling(1)),
        (PrefixTree((2, 1)), DraftSelection(2, 2)),
        (TreeVerification(TreeShape.sequences(2, 2), IID, otm.KSeq()), DraftSelection(2, 2)),
    ],
    ids=repr,
)
def test_special_cases(one, other):
    for seed in range(3):
        models = asked(random_models(3 if seed else 2, 3, np.random.default_rng([1, seed])))
        assert distance(step_law(one, **models), step_law(other, **models)) <= TOLERANCE


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize(
    ("make", "verifier", "law"),
    [
        (lambda k: RefinedScores(k, 1), otm.Optimal(), IID),
        (lambda k: BlockKSeq(k, 1), otm.KSeq(), IID),
        (lambda k: TraversalVerification(TreeShape.batch(k), IID), otm.RecursiveRejection(), IID),
        (lambda k: TraversalVerification(TreeShape.batch(k)), otm.RecursiveRejection(), DISTINCT),
        (lambda k: Ersd(TreeShape.batch(k)), otm.Race(), DISTINCT),
    ],
)
def test_one_level_is_a_verifier(make, verifier, law, k):
    for seed in range(4):
        draft, target = random_models(4, 1, np.random.default_rng([2, seed]))
        problem = otm.Problem(draft=draft.next([]), target=target.next([]), law=law.of_size(k))
        found = expected_step(make(k), **asked((draft, target))).block_efficiency
        assert found == pytest.approx(1 + otm.acceptance(verifier, problem), abs=TOLERANCE)


# --- enumeration


class TestOutcomes:
    def test_every_branch_once(self):
        """What is certain does not branch."""

        def run(randomness):
            first = randomness.choose(np.array([0.25, 0.0, 0.75]))
            if not (randomness.accept(0.5) and randomness.accept(1.0)) or randomness.accept(0.0):
                return (first,)
            return (first, randomness.choose(np.array([0.5, 0.5])))

        found = list(outcomes(run))
        assert sorted(result for result, _ in found) == [(0,), (0, 0), (0, 1), (2,), (2, 0), (2, 1)]
        assert dict(found)[2, 1] == 0.75 * 0.5 * 0.5
        assert sum(mass for _, mass in found) == 1

    def test_too_many_for_the_time(self, monkeypatch):
        for name in ("PATIENCE", "_FIRST_LOOK"):
            monkeypatch.setattr(f"otm._machine.patience.{name}", 1e-9)
        with pytest.raises(otm.errors.TooLarge, match="outcomes is limited to 1e-09 s of CPU time"):
            step_law(SpeculativeSampling(4), **asked(SOURCES))

    def test_the_share_of_outcomes_that_lies_behind(self):
        randomness, shares = Enumerated({}), []
        while not shares or randomness.advance():
            shares.append(randomness.share)
            if randomness.choose(np.array([0.9, 0.1])):
                randomness.choose(np.array([0.2, 0.3, 0.5]))
        assert shares == pytest.approx([0, 1 / 2, 2 / 3, 5 / 6], abs=1e-15)


# --- what follows a step


def test_completion_of_a_certain_step():
    _, target = smooth_models(2, 4, 0)
    law = StepLaw(np.array([[1, -1], [0, 1]]), np.array([0, 1]), np.array([0.25, 0.75]))
    found = completed_law(law, target=target, context=[], length=3)
    wanted = np.zeros((2, 2, 2))
    wanted[1] = 0.25 * sequence_law(target, [1], 2)
    wanted[0, 1] = 0.75 * target.next([0, 1])
    np.testing.assert_allclose(found, wanted, atol=1e-16)
    # a step longer than the law is cut
    cut = completed_law(law, target=target, context=[], length=1)
    np.testing.assert_allclose(cut, [0.75, 0.25], atol=1e-16)
    with pytest.raises(otm.errors.TooLarge, match="limited to 16,777,216 entries"):
        completed_law(law, target=target, context=[], length=25)


def test_generated_law_of_lossless_decoders():
    draft, target = smooth_models(2, 4, 0)
    for decoder in (DraftSelection(2, 1), TraversalVerification(TreeShape([0, 1, 1]))):
        found = generated_law(decoder, **asked((draft, target), [1]), length=2)
        np.testing.assert_allclose(found, sequence_law(target, [1], 2), atol=1e-14)


def test_the_chain_rule_of_divergences():
    rng = np.random.default_rng(2)
    law, target = (rng.dirichlet(np.ones(27)).reshape(3, 3, 3) for _ in range(2))
    found = divergence_by_position(law, target=target)
    assert found.sum() == pytest.approx(np.sum(target * np.log(target / law)), abs=1e-14)
    first, wanted = law.sum(axis=(1, 2)), target.sum(axis=(1, 2))
    assert found[0] == pytest.approx(np.sum(wanted * np.log(wanted / first)), abs=1e-14)
    # The same conditionals: what is left is the square of rounding, and not below zero.
    same = divergence_by_position(target * [[[1.5]], [[0.5]], [[1.0]]], target=target)
    assert (same[1:] >= 0).all() and (same[1:] < 1e-31).all()
    # infinite from the first impossible position on
    flat, law = np.full((2, 2), 0.25), np.array([[0.5, 0.0], [0.25, 0.25]])
    assert divergence_by_position(law, target=flat).tolist() == [0.0, np.inf]
    assert divergence_by_position(law.T, target=flat)[1] == np.inf
    with pytest.raises(otm.errors.InvalidParameter, match=r"one shape.*\(2,\) and \(2, 2\)"):
        divergence_by_position(law[0], target=flat)


# --- the sampler


@pytest.mark.parametrize(
    "decoder",
    [
        DraftSelection(2, 1),
        PrefixTree((1, 2), otm.RecursiveRejection()),
        TreeVerification(TreeShape.batch(2), IID, otm.Optimal()),
        Gsd(TreeShape([0, 0, 1])),
        Ersd(TreeShape([0, 0, 1])),
        BlockVerification(2),
        TraversalVerification(TreeShape([0, 0, 1])),
    ],
    ids=repr,
)
def test_the_sampler_has_the_enumerated_law(decoder, monkeypatch):
    """On a pair of laws that keeps later drafts with chances inside (0, 1), so that a uniform that
    is used twice shows.
    """
    prepare, known = randomness.prepare_conditional, dict[Any, Any]()

    def remembered(verifier, law, *pair):
        """Prepare a rule once: that is not random."""
        key = verifier, law, *map(id, pair)
        if key not in known:
            known[key] = prepare(verifier, law, *pair)
        return known[key]

    monkeypatch.setattr(randomness, "prepare_conditional", remembered)
    pair = ZerothOrder([0.6, 0.4, 0.0]), ZerothOrder([0.3, 0.5, 0.2])
    law = outcomes_of(step_law(decoder, **asked(pair)))
    (draft, target), sampled, samples = map(Memoised, pair), Sampled(2), 2_000
    counts = dict.fromkeys(law, 0)
    for _ in range(samples):
        tree = decoder.draft(draft, (), sampled)
        one = decoder.verify(tree, evaluate(target, tree).__getitem__, sampled)
        counts[one.tokens, one.accepted] += 1
    assert not alarms(np.array([*counts.values()]), np.array([*law.values()]), samples).any()


# --- deferred decisions


@pytest.mark.parametrize("shape", [TREE, TreeShape.prefix_tree((3, 2, 1))], ids=repr)
@pytest.mark.parametrize(
    ("cls", "verifier"), [(Gsd, otm.RecursiveRejection()), (Ersd, otm.Race())], ids=["gsd", "ersd"]
)
def test_positions_that_are_independent(cls, verifier, shape):
    """A tree has 1 + Σ over vertices of the product along the path of A(i) = α_i − α_{i−1}: both
    rules decide about the first i drafts without looking at later ones.
    """
    draft, target = SOURCES
    problem = otm.Problem(draft=draft.mass, target=target.mass, law=DISTINCT)
    ranks = np.diff(otm.acceptance_curve(verifier, problem, k=[1, 2, 3]), prepend=0.0)
    wanted = [float(np.prod([ranks[rank] for rank in path])) for path in shape.paths()]
    found = expected_step(cls(shape), **asked(SOURCES))
    # The acceptance curve's quadrature is good to 1e-12 for races, products of five.
    np.testing.assert_allclose(found.reached, wanted, atol=1e-11)
    assert found.block_efficiency == pytest.approx(sum(wanted), abs=1e-10)


def test_a_tree_far_beyond_enumeration():
    """Five levels of pairs are 62 vertices: 6³¹ drafted trees, but one transition at each of at
    most 121 contexts.
    """
    shape, law = TreeShape.prefix_tree((2,) * 5), otm.WithoutReplacement(2)
    found = expected_step(Gsd(shape), **asked(SOURCES))
    problem = otm.Problem(draft=SOURCES[0].mass, target=SOURCES[1].mass, law=law)
    pair = otm.acceptance(otm.RecursiveRejection(), problem)
    assert found.block_efficiency == pytest.approx(sum(pair**i for i in range(6)), abs=1e-12)
    assert (
        repr(found) == f"ExpectedStep(62 vertices, block_efficiency={found.block_efficiency:.6g})"
    )


@pytest.mark.parametrize(
    "verifier", [otm.Mentored(0.1), otm.Lenience(0.5), otm.Fuzzy(), otm.TypicalAcceptance()]
)
def test_lossy_verifiers_have_a_law_too(verifier):
    """After a context, too."""
    models = asked(random_models(2, 4, np.random.default_rng(9)), [1, 0])
    decoder = SpeculativeSampling(2, verifier)
    found, law = expected_step(decoder, **models).law, step_law(decoder, **models)
    assert distance(found, law) <= TOLERANCE


def test_a_decoder_it_does_not_know_is_refused():
    with pytest.raises(otm.errors.Unsupported, match=r"deferred.*SampledTree.*step_law"):
        expected_step(SampledTree(1, 1), **asked(SOURCES))


@pytest.mark.parametrize("cls", [Gsd, TraversalVerification, Ersd])
def test_more_children_than_tokens(cls):
    with pytest.raises(otm.errors.InvalidParameter):
        expected_step(cls(TreeShape.batch(4)), **asked(SOURCES))


def test_drafts_are_gone_through_in_blocks(monkeypatch):
    rng = np.random.default_rng(8)
    models = asked(tuple(ZerothOrder(rng.dirichlet(np.ones(6))) for _ in range(2)))
    decoder = Gsd(TreeShape([0, 0, 1]))
    whole = expected_step(decoder, **models)
    # three of the thirty sequences
    monkeypatch.setattr("otm.sequence.exact_laws._ENTRIES_AT_ONCE", 19)
    found = expected_step(decoder, **models)
    assert distance(found.law, whole.law) <= TOLERANCE
    np.testing.assert_allclose(found.reached, whole.reached, atol=TOLERANCE)
    monkeypatch.setattr("otm.sequence.exact_laws._ENTRIES_AT_ONCE", 1)  # less than a sequence takes
    assert distance(expected_step(decoder, **models).law, whole.law) <= TOLERANCE


def test_memory_of_a_block(monkeypatch):
    monkeypatch.setattr("otm.sequence.exact_laws._ENTRIES_AT_ONCE", 1 << 14)
    wide = ZerothOrder(np.full(600, 1 / 600)), ZerothOrder(np.repeat([0.05, 0.0], [20, 580]))
    tracemalloc.start()
    expected_step(SpeculativeSampling(1), **asked(wide))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 600 * 600 * 8  # one table of all


@pytest.mark.parametrize(
    ("decoder", "size", "message"),
    [
        (SpeculativeSampling(1), 49_152, "at most 1,073,741,824 pairs.*49,152 draft sequences"),
        (Ersd(TreeShape([0])), 49_152, "at most 134,217,728 pairs.*otm.sequence.generate"),
        (Gsd(TreeShape([0, 0])), 1_100, "1,208,900 draft sequences × 1,100 tokens"),
        (SpeculativeSampling(40), 2, "at most 1,000 contexts"),
        (GreedyMultipath(1, 40), 2, "at most 1,000 contexts"),
        (BlockVerification(40), 2, "at most 1,000 contexts"),
    ],
    ids=repr,
)
def test_no_table_beyond_the_limit(decoder, size, message, monkeypatch):
    monkeypatch.setattr("otm.sequence.exact_laws.MAX_CONTEXTS", 1_000)
    model = ZerothOrder(np.full(size, 1 / size))
    with pytest.raises(otm.errors.TooLarge, match=message):
        expected_step(decoder, **asked((model, model)))


def test_what_is_never_accepted_is_not_followed(monkeypatch):
    """Of 2³⁰ paths the target can take one: 1 + Σ 2⁻ⁱ."""
    monkeypatch.setattr("otm.sequence.exact_laws.MAX_CONTEXTS", 100)
    models = ZerothOrder([0.5, 0.5]), ZerothOrder([1.0, 0.0])
    found = expected_step(BlockVerification(30), **asked(models))
    assert found.block_efficiency == pytest.approx(2.0 - 2.0**-30, abs=TOLERANCE)
