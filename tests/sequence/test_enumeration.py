"""The enumeration itself: against fractions written out by hand, and against the sampler, with
stated false alarms and power.
"""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

import otm
from otm.sequence import (
    BlockVerification,
    Decoder,
    DraftSelection,
    Ersd,
    Gsd,
    MarkovModel,
    Memoised,
    PrefixTree,
    Randomness,
    Sampled,
    SpeculativeSampling,
    StepLaw,
    TraversalVerification,
    TreeVerification,
    ZerothOrder,
    completed_law,
    divergence_by_position,
    generated_law,
    outcomes,
    sequence_law,
    step_law,
)
from otm.trees import TreeShape
from tests.sequence.toys import (
    DISTINCT,
    IID,
    outcomes_of,
    random_models,
    smooth_models,
)

P = [[Fraction(1, 2), Fraction(1, 2)], [Fraction(3, 4), Fraction(1, 4)]]
Q = [[Fraction(1, 4), Fraction(3, 4)], [Fraction(1, 3), Fraction(2, 3)]]


def floats(table: list[list[Fraction]]) -> MarkovModel:
    return MarkovModel([[float(x) for x in row] for row in table])


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


def block_level(length: int) -> dict[tuple[tuple[int, ...], int], Fraction]:
    """Sun et al., Algorithm 2, in fractions: all drafts, all sets of tests that pass, the largest
    passing index.
    """
    law: dict[tuple[tuple[int, ...], int], Fraction] = Counter()  # type: ignore[assignment]
    for drafted in itertools.product(range(2), repeat=length):
        before = (0, *drafted)
        mass, weights = Fraction(1), [Fraction(1)]
        for last, x in itertools.pairwise(before):
            mass *= P[last][x]
            weights.append(min(Fraction(1), weights[-1] * Q[last][x] / P[last][x]))
        excess = [
            [max(weights[i] * Q[before[i]][y] - P[before[i]][y], Fraction(0)) for y in range(2)]
            for i in range(length + 1)
        ]
        tests = [Fraction(1)] + [
            sum(excess[i]) / (sum(excess[i]) + 1 - weights[i]) if weights[i] < 1 else Fraction(1)
            for i in range(1, length)
        ]
        tests += [weights[length]]
        for passed in itertools.product((False, True), repeat=length):
            chance = mass
            for i, passes in enumerate(passed, start=1):
                chance *= tests[i] if passes else 1 - tests[i]
            kept = max((i for i, passes in enumerate(passed, start=1) if passes), default=0)
            after = Q[before[length]] if kept == length else excess[kept]
            if chance:
                for y in range(2):
                    law[(*drafted[:kept], y), kept] += chance * after[y] / sum(after)
    return {key: mass for key, mass in law.items() if mass}


@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("name", ["token", "block"])
def test_against_fractions(name: str, length: int) -> None:
    wanted = token_level(0, length) if name == "token" else block_level(length)
    decoder = SpeculativeSampling(length) if name == "token" else BlockVerification(length)
    assert sum(wanted.values()) == 1
    found = outcomes_of(step_law(decoder, draft=floats(P), target=floats(Q), context=[0]))
    assert found.keys() == wanted.keys()
    for key, mass in wanted.items():
        assert found[key] == pytest.approx(float(mass), abs=1e-15)


@pytest.mark.parametrize(
    "decoder",
    [
        DraftSelection(2, 2),
        PrefixTree((2, 1)),
        Gsd(TreeShape([0, 0, 1])),
        Ersd(TreeShape([0, 0, 1])),
        BlockVerification(2),
    ],
    ids=repr,
)
def test_masses_and_lengths(decoder: Decoder) -> None:
    for seed in range(4):
        draft, target = random_models(2, 2, np.random.default_rng(seed))
        law = step_law(decoder, draft=draft, target=target, context=[])
        # a race's quadrature: 1.2e-12 at each of two levels
        assert law.mass.sum() == pytest.approx(1, abs=1e-11)
        assert (law.mass > 0).all()
        assert (law.lengths == law.accepted + 1).all()
        assert law.accepted_law.sum() == pytest.approx(law.mass.sum(), abs=1e-15)
        assert law.block_efficiency == pytest.approx(
            law.mass.sum() + np.arange(len(law.accepted_law)) @ law.accepted_law, abs=1e-14
        )


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

    def test_too_many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("otm.sequence.randomness.MAX_OUTCOMES", 10)
        model = ZerothOrder([0.5, 0.5])
        with pytest.raises(
            otm.errors.TooLarge, match=r"limited to 10 outcomes.*smaller vocabulary, tree or length"
        ):
            step_law(SpeculativeSampling(4), draft=model, target=model, context=[])


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

    def test_a_step_longer_than_the_law_is_cut(self) -> None:
        law = step_law(SpeculativeSampling(3), draft=self.draft, target=self.target, context=[])
        np.testing.assert_allclose(
            completed_law(law, target=self.target, context=[], length=1),
            self.target.next([]),
            atol=1e-15,
        )

    def test_generated_law_of_a_lossless_decoder(self) -> None:
        for decoder in (
            SpeculativeSampling(2),
            DraftSelection(2, 1),
            TraversalVerification(TreeShape([0, 1, 1])),
        ):
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

        def kl(q: np.ndarray, s: np.ndarray) -> float:
            return float(np.sum(q * np.log(q / s)))

        assert found.sum() == pytest.approx(kl(target.ravel(), law.ravel()), abs=1e-14)
        assert found[0] == pytest.approx(
            kl(target.sum(axis=(1, 2)), law.sum(axis=(1, 2))), abs=1e-14
        )
        assert (found >= 0).all()

    def test_divergences_of_laws_that_agree_to_nine_digits(self) -> None:
        """The chain rule term by term in fractions: KL of the first token, then of the second given
        the first, both near 1e-18.
        """
        target = np.array([[0.25, 0.25], [0.125, 0.375]])
        law = target * (1 + 1e-9 * np.array([[3.0, 1.0], [1.0, -3.0]]))
        q, s = ([[Fraction(float(x)) for x in row] for row in joint] for joint in (target, law))

        def kl(wanted: list[Fraction], other: list[Fraction]) -> Fraction:
            other = [x / sum(other) for x in other]
            return sum(
                (
                    a * ((b - a) / a) ** 2 / 2 - a * ((b - a) / a) ** 3 / 3
                    for a, b in zip(wanted, other, strict=True)
                ),
                Fraction(0),
            )

        first = kl([sum(row) for row in q], [sum(row) for row in s])
        second = sum(
            (sum(a) * kl([x / sum(a) for x in a], b) for a, b in zip(q, s, strict=True)),
            Fraction(0),
        )
        assert 1e-19 < first < 1e-17
        assert 1e-19 < second < 1e-17
        # Sums and quotients move m/q by 4u at most, and m/q − 1 is 1e-9: relatively 4u/1e-9, twice
        # that in its square.
        found = divergence_by_position(law, target=target)
        assert found[0] == pytest.approx(float(first), rel=2e-6, abs=0)
        assert found[1] == pytest.approx(float(second), rel=2e-6, abs=0)
        # The same conditionals: what is left is the square of rounding, and not below zero.
        same = divergence_by_position(target * [[1.5], [0.5]], target=target)
        assert 0 <= same[1] < 1e-31

    def test_infinite_divergence_from_the_first_impossible_position_on(self) -> None:
        target = np.full((2, 2), 0.25)
        law = np.array([[0.5, 0.0], [0.25, 0.25]])
        assert divergence_by_position(law, target=target).tolist() == [0.0, np.inf]
        assert divergence_by_position(law.T, target=target)[1] == np.inf

    def test_errors(self) -> None:
        with pytest.raises(otm.errors.InvalidParameter, match=r"one shape.*\(2,\) and \(2, 2\)"):
            divergence_by_position(np.ones(2), target=np.ones((2, 2)))
        law = step_law(SpeculativeSampling(1), draft=self.draft, target=self.target, context=[])
        with pytest.raises(otm.errors.TooLarge, match="limited to 16,777,216 entries"):
            completed_law(law, target=self.target, context=[], length=25)
        with pytest.raises(otm.errors.InvalidParameter, match="length"):
            completed_law(law, target=self.target, context=[], length=0)


# --- the sampler
# --------------------------------------------------------------------------------------------------

SAMPLES = 2000
FALSE_ALARM = 1e-9


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
        if isinstance(shape, tuple):  # of a rule's steps or of draws; the last is the residual's
            uniforms[:, :-1] = self._reused
        return uniforms


def frequencies(
    decoder: Decoder, draft: object, target: object, seed: int, *, broken: bool = False
) -> Counter[object]:
    rng = np.random.default_rng(seed)
    randomness, found = Sampled(rng), Counter[object]()
    draft, target = Memoised(draft), Memoised(target)  # type: ignore[arg-type]
    for _ in range(SAMPLES):
        tree = decoder.draft(draft, (), randomness)
        deciding = Sampled(rng)
        if broken:
            deciding._rng = OneUniform(rng)  # type: ignore[assignment]
        one = decoder.verify(tree, target.next, deciding)
        found[one.tokens, one.accepted] += 1
    return found


def deviation(found: Counter[object], law: StepLaw) -> float:
    """‖p̂ − p‖₁."""
    wanted = outcomes_of(law)
    return sum(abs(found[key] / SAMPLES - wanted.get(key, 0.0)) for key in set(found) | set(wanted))  # type: ignore[arg-type]


DRAFT, TARGET = ZerothOrder([0.5, 0.3, 0.15, 0.05]), ZerothOrder([0.2, 0.35, 0.2, 0.25])


@pytest.mark.usefixtures("remembered_rules")
@pytest.mark.parametrize(
    "decoder",
    [
        SpeculativeSampling(2),
        DraftSelection(2, 1),
        PrefixTree((1, 2), otm.RecursiveRejection()),
        TreeVerification(TreeShape.batch(2), IID, otm.Optimal()),
        Gsd(TreeShape([0, 0, 1])),
        Ersd(TreeShape([0, 0, 1])),
        BlockVerification(2),
        TraversalVerification(TreeShape([0, 0, 1])),
        TraversalVerification(TreeShape([0, 0, 1]), IID),
    ],
    ids=repr,
)
def test_the_sampler_has_the_enumerated_law(decoder: Decoder) -> None:
    law = step_law(decoder, draft=DRAFT, target=TARGET, context=[])
    found = frequencies(decoder, DRAFT, TARGET, seed=1)
    assert set(found) <= set(outcomes_of(law))
    assert deviation(found, law) <= radius(len(law.mass))


@pytest.mark.usefixtures("remembered_rules")
@pytest.mark.parametrize(
    "decoder", [Gsd(TreeShape.batch(2)), TraversalVerification(TreeShape([0, 0, 1]))], ids=repr
)
def test_one_uniform_for_every_decision_is_noticed(decoder: Decoder) -> None:
    # Draft 0 comes first with probability 4/5 and is rejected with 1/2; draft 1 then has 1/2 again,
    # but never on the same uniform: a mass of 1/5 moves, an L1 distance of 2/5.
    draft, target = ZerothOrder([0.8, 0.2, 0.0]), ZerothOrder([0.4, 0.4, 0.2])
    law = step_law(decoder, draft=draft, target=target, context=[])
    noise = radius(len(law.mass))
    assert deviation(frequencies(decoder, draft, target, seed=2), law) <= noise < 1 / 5
    assert deviation(frequencies(decoder, draft, target, seed=2, broken=True), law) > noise


def test_distinct_siblings_are_the_default_everywhere() -> None:
    assert (
        TraversalVerification(TreeShape.batch(2)).law(2)
        == DISTINCT.with_k(2)
        == Gsd(TreeShape.batch(2)).law(2)
    )
