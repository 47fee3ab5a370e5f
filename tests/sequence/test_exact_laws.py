"""The exact laws of a step: enumeration against fractions written out by hand and against the
sampler, with stated false alarms and power; deferred decisions against both, and closed forms.
"""

from __future__ import annotations

import dataclasses
import sys
import tracemalloc
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings

import otm
from otm.sequence import (
    BlockVerification,
    Decoder,
    DeferredDecoder,
    DraftSelection,
    Ersd,
    GreedyMultipath,
    Gsd,
    MarkovModel,
    Memoised,
    PrefixTree,
    Randomness,
    Sampled,
    SpeculativeSampling,
    StaticDecoder,
    StepLaw,
    TraversalVerification,
    TreeVerification,
    ZerothOrder,
    best_step,
    completed_law,
    divergence_by_position,
    expected_step,
    generated_law,
    outcomes,
    sequence_law,
    step_law,
)
from otm.sequence.decoder import Conditionals, DraftTree, Step, evaluate
from otm.sequence.randomness import Enumerated
from otm.trees import TreeShape
from tests.sequence.toys import (
    DISTINCT,
    IID,
    Toy,
    bias,
    distance,
    num_trees,
    outcomes_of,
    random_models,
    smooth_models,
    toys,
)

# Sums of products of exact step laws, in different orders: 1e-14. The deferred law of a race has
# the quadrature of the enumerated one, which cancels between them; against the target's law it is
# 1.2e-12 per entry, with at most 3·6 entries on each of three levels.
TOLERANCE, QUADRATURE = 1e-12, 1e-10
TREE = TreeShape([0, 0, 1, 1, 2])


@settings(max_examples=12)
@given(toys())
def test_every_decoder_by_every_account(toy: Toy) -> None:
    """Lossless; the deferred law is the enumerated one, vertex by vertex; the best step is not
    exceeded.
    """
    for decoder in toy.decoders:
        if num_trees(decoder, toy.num_tokens) > 81:
            continue
        law = step_law(decoder, **toy.models)
        rounding = QUADRATURE if isinstance(decoder, Ersd) else TOLERANCE
        assert law.mass.sum() == pytest.approx(1.0, abs=rounding)
        assert (law.lengths == law.accepted + 1).all()
        assert bias(decoder, toy.draft, toy.target, step=lambda *_, law=law, **__: law) <= rounding
        if isinstance(decoder, DeferredDecoder):
            found = expected_step(decoder, **toy.models)
            assert distance(found.law, law) <= TOLERANCE, decoder
            np.testing.assert_allclose(
                found.reached,
                reached_by_enumeration(decoder, toy.draft, toy.target, len(found.reached)),
                atol=TOLERANCE,
            )
        if decoder.carries_noise:
            continue
        best = best_step(decoder, **toy.models)
        assert law.block_efficiency <= best.upper + rounding, decoder
        assert 1 <= best.value <= decoder.depth + 1 + 1e-9


def reached_by_enumeration(
    decoder: Decoder, draft: object, target: object, num_vertices: int
) -> np.ndarray:
    """Pr(v ∈ survivors) for each vertex, from every step's own account."""
    reached = np.zeros(num_vertices)
    reached[0] = 1.0
    for tree, drafted in outcomes(lambda randomness: decoder.draft(draft, (), randomness)):  # type: ignore[arg-type]
        known = evaluate(target, tree).__getitem__  # type: ignore[arg-type]
        for one, decided in outcomes(
            lambda randomness, tree=tree, known=known: decoder.verify(tree, known, randomness)
        ):
            for vertices in one.survivors:
                reached[list(vertices)] += drafted * decided
    return reached


# --- enumeration against fractions

P = [[Fraction(1, 2), Fraction(1, 2)], [Fraction(3, 4), Fraction(1, 4)]]
Q = [[Fraction(1, 4), Fraction(3, 4)], [Fraction(1, 3), Fraction(2, 3)]]


def token_level(last: int, length: int) -> dict[tuple[tuple[int, ...], int], Fraction]:
    """Leviathan et al., Algorithm 1, in fractions: draft, accept with min(1, q/p), else (q − p)₊; a
    bonus token at the end.
    """
    if length == 0:
        return {((y,), 0): Q[last][y] for y in range(2)}
    law: dict[tuple[tuple[int, ...], int], Fraction] = Counter()  # type: ignore[assignment]
    p, q = P[last], Q[last]
    excess = [max(b - a, Fraction(0)) for a, b in zip(p, q, strict=True)]
    for x in range(2):
        keep = min(Fraction(1), q[x] / p[x])
        for (tokens, accepted), mass in token_level(x, length - 1).items():
            law[(x, *tokens), accepted + 1] += p[x] * keep * mass
        for y in range(2):
            law[(y,), 0] += p[x] * (1 - keep) * excess[y] / sum(excess)
    return {key: mass for key, mass in law.items() if mass}


def test_against_fractions() -> None:
    draft, target = (MarkovModel([[float(x) for x in row] for row in rows]) for rows in (P, Q))
    found = step_law(SpeculativeSampling(3), draft=draft, target=target, context=[0])
    assert outcomes_of(found) == {
        key: pytest.approx(float(mass), abs=1e-15) for key, mass in token_level(0, 3).items()
    }
    assert found.accepted_law @ np.arange(4) == pytest.approx(found.block_efficiency - 1)


class TestOutcomes:
    def test_every_branch_once(self) -> None:
        def run(randomness: Randomness) -> tuple[int, ...]:
            first = randomness.choose(np.array([0.25, 0.0, 0.75]))
            return (
                (first, randomness.choose(np.array([0.5, 0.5])))
                if randomness.accept(0.5)
                else (first,)
            )

        found = list(outcomes(run))
        assert sorted(result for result, _ in found) == [(0,), (0, 0), (0, 1), (2,), (2, 0), (2, 1)]
        assert dict(found)[2, 1] == 0.75 * 0.5 * 0.5
        assert sum(mass for _, mass in found) == 1

    def test_certain_steps_do_not_branch(self) -> None:
        assert list(
            outcomes(lambda randomness: (randomness.accept(1.0), randomness.accept(0.0)))
        ) == [((True, False), 1.0)]

    def test_too_many_for_the_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("PATIENCE", "_FIRST_LOOK"):
            monkeypatch.setattr(f"otm._time.{name}", 1e-9)
        model = ZerothOrder([0.5, 0.5])
        with pytest.raises(
            otm.errors.TooLarge,
            match=r"outcomes is limited to 1e-09 s of CPU time; .*smaller vocabulary, tree or len",
        ):
            step_law(SpeculativeSampling(4), draft=model, target=model, context=[])

    def test_the_share_of_outcomes_that_lies_behind(self) -> None:
        randomness, shares = Enumerated({}), []
        while not shares or randomness.advance():
            shares.append(randomness.share)
            if randomness.choose(np.array([0.9, 0.1])):
                randomness.choose(np.array([0.2, 0.3, 0.5]))
        assert shares == pytest.approx([0, 1 / 2, 2 / 3, 5 / 6], abs=1e-15)


class TestLaws:
    draft, target = smooth_models(2, 4, 0)

    def test_completion_of_a_certain_step(self) -> None:
        law = StepLaw(
            tokens=np.array([[1, -1], [0, 1]]),
            accepted=np.array([0, 1]),
            mass=np.array([0.25, 0.75]),
        )
        found = completed_law(law, target=self.target, context=[], length=3)
        wanted = np.zeros((2, 2, 2))
        wanted[1] = 0.25 * sequence_law(self.target, [1], 2)
        wanted[0, 1] = 0.75 * self.target.next([0, 1])
        np.testing.assert_allclose(found, wanted, atol=1e-16)
        # a step longer than the law is cut
        cut = completed_law(law, target=self.target, context=[], length=1)
        np.testing.assert_allclose(cut, [0.75, 0.25], atol=1e-16)
        with pytest.raises(otm.errors.TooLarge, match="limited to 16,777,216 entries"):
            completed_law(law, target=self.target, context=[], length=25)

    def test_generated_law_of_a_lossless_decoder(self) -> None:
        for decoder in (DraftSelection(2, 1), TraversalVerification(TreeShape([0, 1, 1]))):
            models = {"draft": self.draft, "target": self.target, "context": []}
            np.testing.assert_allclose(
                generated_law(decoder, **models, length=3),
                sequence_law(self.target, [], 3),
                atol=1e-14,
            )

    def test_chain_rule(self) -> None:
        rng = np.random.default_rng(2)
        law, target = (rng.dirichlet(np.ones(27)).reshape(3, 3, 3) for _ in range(2))
        found = divergence_by_position(law, target=target)
        assert found.sum() == pytest.approx(np.sum(target * np.log(target / law)), abs=1e-14)
        first, wanted = law.sum(axis=(1, 2)), target.sum(axis=(1, 2))
        assert found[0] == pytest.approx(np.sum(wanted * np.log(wanted / first)), abs=1e-14)
        assert divergence_by_position(first, target=wanted) == pytest.approx(found[:1])
        # The same conditionals: what is left is the square of rounding, and not below zero.
        same = divergence_by_position(target * [[[1.5]], [[0.5]], [[1.0]]], target=target)
        assert (same[1:] >= 0).all() and (same[1:] < 1e-31).all()

    def test_infinite_divergence_from_the_first_impossible_position_on(self) -> None:
        target = np.full((2, 2), 0.25)
        law = np.array([[0.5, 0.0], [0.25, 0.25]])
        assert divergence_by_position(law, target=target).tolist() == [0.0, np.inf]
        assert divergence_by_position(law.T, target=target)[1] == np.inf
        with pytest.raises(otm.errors.InvalidParameter, match=r"one shape.*\(2,\) and \(2, 2\)"):
            divergence_by_position(law[0], target=target)


# --- the sampler

SAMPLES = 2000
FALSE_ALARM = 1e-9
DRAFT, TARGET = ZerothOrder([0.5, 0.3, 0.15, 0.05]), ZerothOrder([0.2, 0.35, 0.2, 0.25])


def radius(cells: int) -> float:
    """ε with Pr(‖p̂ − p‖₁ ≥ ε) ≤ 1e-9 for any law on so many cells: Pr ≤ (2^m − 2)·exp(−n ε²/2)
    [Weissman et al. 2003, Theorem 2.1].

    Power: a sampler whose law is at L1 distance 2ε is noticed with probability 1 − 1e-9, by the
    same bound and the triangle inequality.
    """
    return float(np.sqrt(2 * (cells * np.log(2) - np.log(FALSE_ALARM)) / SAMPLES))


class OneUniform:
    """Broken: one uniform decides about every draft of a step, those of a rule's stages and those
    of a tree's vertices alike.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng, self._reused = rng, rng.random()

    def random(self, shape: tuple[int, int] | int | None = None) -> object:
        if shape is None:
            return self._reused
        uniforms = self._rng.random(shape)
        if isinstance(shape, tuple):  # of a rule's steps; the last is the residual's
            uniforms[:, :-1] = self._reused
        return uniforms


def deviation(decoder: Decoder, law: StepLaw, *models: object, broken: bool = False) -> float:
    """‖p̂ − p‖₁ of sampled steps; what the law does not know counts whole."""
    rng = np.random.default_rng(2)
    draft, target = (Memoised(model) for model in models)  # type: ignore[arg-type]
    found: Counter[object] = Counter()
    for _ in range(SAMPLES):
        tree, deciding = decoder.draft(draft, (), Sampled(rng)), Sampled(rng)
        if broken:
            deciding.rng = OneUniform(rng)  # type: ignore[assignment]
        one = decoder.verify(tree, target.next, deciding)
        found[one.tokens, one.accepted] += 1
    wanted = outcomes_of(law)
    return sum(abs(found[key] / SAMPLES - wanted.get(key, 0.0)) for key in set(found) | set(wanted))  # type: ignore[arg-type]


@pytest.mark.usefixtures("remembered_rules")
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
def test_the_sampler_has_the_enumerated_law(decoder: Decoder) -> None:
    law = step_law(decoder, draft=DRAFT, target=TARGET, context=[])
    assert deviation(decoder, law, DRAFT, TARGET) <= radius(len(law.mass))


@pytest.mark.usefixtures("remembered_rules")
@pytest.mark.parametrize(
    "decoder", [Gsd(TreeShape.batch(2)), TraversalVerification(TreeShape([0, 0, 1]))], ids=repr
)
def test_one_uniform_for_every_decision_is_noticed(decoder: Decoder) -> None:
    # Draft 0 comes first with probability 4/5 and is rejected with 1/2; draft 1 then has 1/2 again,
    # but never on the same uniform: a mass of 1/5 moves, an L1 distance of 2/5.
    draft, target = ZerothOrder([0.8, 0.2, 0.0]), ZerothOrder([0.4, 0.4, 0.2])
    law = step_law(decoder, draft=draft, target=target, context=[])
    assert radius(len(law.mass)) < 1 / 5
    assert deviation(decoder, law, draft, target, broken=True) > radius(len(law.mass))


# --- deferred decisions


class TestZerothOrder:
    """Positions are independent: a tree has 1 + Σ over vertices of the product of A along the
    path.
    """

    draft, target = ZerothOrder([0.5, 0.3, 0.2]), ZerothOrder([0.2, 0.35, 0.45])

    @pytest.mark.parametrize(
        "shape", [TREE, TreeShape.prefix_tree((3, 2, 1)), TreeShape.chain(5)], ids=repr
    )
    @pytest.mark.parametrize(
        ("cls", "verifier"),
        [(Gsd, otm.RecursiveRejection()), (Ersd, otm.Race())],
        ids=["gsd", "ersd"],
    )
    def test_tree(self, cls: type, verifier: otm.Verifier, shape: TreeShape) -> None:
        # A(i) = α_i − α_{i−1}: both rules decide about the first i drafts without looking at later
        # ones.
        problem = otm.Problem(draft=self.draft.mass, target=self.target.mass, law=DISTINCT)
        ranks = np.diff(otm.acceptance_curve(verifier, problem, k=[1, 2, 3]), prepend=0.0)
        wanted = [float(np.prod([ranks[rank] for rank in path])) for path in shape.paths()]
        found = expected_step(cls(shape), draft=self.draft, target=self.target, context=[])
        # The acceptance curve's quadrature is good to 1e-12 for races, products of five.
        np.testing.assert_allclose(found.reached, wanted, atol=1e-11)
        assert found.block_efficiency == pytest.approx(sum(wanted), abs=1e-10)

    def test_a_tree_far_beyond_enumeration(self) -> None:
        """Five levels of pairs are 62 vertices: 6³¹ drafted trees, but one transition at each of at
        most 121 contexts.
        """
        shape, law = TreeShape.prefix_tree((2,) * 5), otm.WithoutReplacement(2)
        found = expected_step(Gsd(shape), draft=self.draft, target=self.target, context=[])
        problem = otm.Problem(draft=self.draft.mass, target=self.target.mass, law=law)
        pair = otm.acceptance(otm.RecursiveRejection(), problem)
        assert found.block_efficiency == pytest.approx(sum(pair**i for i in range(6)), abs=1e-12)


def test_context_and_repr() -> None:
    draft, target = random_models(2, 3, np.random.default_rng(4))
    found = expected_step(SpeculativeSampling(1), draft=draft, target=target, context=[1, 0])
    assert found.block_efficiency == pytest.approx(
        1 + np.minimum(draft.next([1, 0]), target.next([1, 0])).sum(), abs=1e-15
    )
    assert repr(found) == f"ExpectedStep(1 vertices, block_efficiency={found.block_efficiency:.6g})"


@pytest.mark.parametrize(
    "verifier", [otm.Mentored(0.1), otm.Lenience(0.5), otm.Fuzzy(), otm.TypicalAcceptance()]
)
def test_lossy_verifiers_have_a_law_too(verifier: otm.Verifier) -> None:
    draft, target = random_models(2, 2, np.random.default_rng(9))
    models = {"draft": draft, "target": target, "context": []}
    decoder = SpeculativeSampling(2, verifier)
    found, law = expected_step(decoder, **models).law, step_law(decoder, **models)
    assert distance(found, law) <= TOLERANCE


def test_a_decoder_it_does_not_know_is_refused() -> None:
    @dataclasses.dataclass(frozen=True)
    class Own(StaticDecoder):
        lossless = True
        shape = TreeShape.chain(1)

        def draft(
            self, model: object, context: tuple[int, ...], randomness: Randomness
        ) -> DraftTree:
            raise NotImplementedError

        def verify(self, tree: DraftTree, target: Conditionals, randomness: Randomness) -> Step:
            raise NotImplementedError

    model = ZerothOrder([0.5, 0.5])
    with pytest.raises(otm.errors.Unsupported, match=r"deferred.*Own\(\).*step_law"):
        expected_step(Own(), draft=model, target=model, context=[])


@pytest.mark.parametrize("cls", [Gsd, TraversalVerification, Ersd])
def test_more_children_than_tokens(cls: type) -> None:
    model = ZerothOrder([0.5, 0.5])
    with pytest.raises(otm.errors.InvalidParameter):
        expected_step(cls(TreeShape.batch(3)), draft=model, target=model, context=[])


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
        draft, target = np.full(600, 1 / 600), np.repeat([0.05, 0.0], [20, 580])
        models = {"draft": ZerothOrder(draft), "target": ZerothOrder(target), "context": []}
        tracemalloc.start()
        expected_step(SpeculativeSampling(1), **models)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 600 * 600 * 8  # one table of all

    @pytest.mark.parametrize(
        ("decoder", "size", "message"),
        [
            (SpeculativeSampling(1), 49_152, "at most 1,073,741,824 pairs.*49,152 draft sequences"),
            (Ersd(TreeShape([0])), 49_152, "at most 134,217,728 pairs.*otm.sequence.generate"),
            (Gsd(TreeShape([0, 0])), 1_100, "1,208,900 draft sequences × 1,100 tokens"),
        ],
        ids=repr,
    )
    def test_no_table_beyond_the_limit(self, decoder: Decoder, size: int, message: str) -> None:
        model = ZerothOrder(np.full(size, 1 / size))
        with pytest.raises(otm.errors.TooLarge, match=message):
            expected_step(decoder, draft=model, target=model, context=[])

    def test_contexts_are_counted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("otm.sequence.exact_laws.MAX_CONTEXTS", 1_000)
        model = ZerothOrder([0.5, 0.5])
        for decoder in (SpeculativeSampling(40), GreedyMultipath(1, 40), BlockVerification(40)):
            with pytest.raises(otm.errors.TooLarge, match="at most 1,000 contexts"):
                expected_step(decoder, draft=model, target=model, context=[])
