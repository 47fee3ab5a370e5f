"""Lossy verifiers at sequence level: the exact KL position by position, budgets that hold at each,
and what they buy.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import otm
from otm.sequence import (
    SpeculativeSampling,
    TableModel,
    ZerothOrder,
    divergence_by_position,
    expected_step,
    generated_law,
    sequence_law,
)
from tests.sequence.toys import random_models, smooth_models

LOSSY = [
    otm.Mentored(0.02),
    otm.Mentored(0.2),
    otm.Lenience(0.5),
    otm.Lenience(0.5, residual="scaled"),
    otm.TypicalAcceptance(),
    otm.Ensemble(0.3),
    otm.Cascade(rule="opt", alpha=0.5),
    otm.Cascade(alpha=0.4),
    otm.RelaxedAcceptance(top=1, delta=0.2),
    otm.BoundedRegret(0.4, fallback="target"),
    otm.Mars(top_logit=4.0, fallback="target"),
    otm.ThresholdMatching(),
    otm.Cactus(),
    otm.Lantern(),
    otm.Grouped(1, margin=0.3),
    otm.Fuzzy(0.2),
    otm.Fuzzy(0.3, fallback="speculative"),
]
LENGTH = 3
DEPTH = 2 * LENGTH  # a further step may begin after L − 1 tokens and draft γ ≤ L more


def one_token_law(
    verifier: otm.Verifier, draft: TableModel, target: TableModel, context: tuple[int, ...]
) -> np.ndarray:
    problem = otm.Problem(draft=draft.next(context), target=target.next(context), law=otm.IID(1))
    return np.asarray(otm.lossy.output_law(verifier, problem))


def product_law(
    verifier: otm.Verifier, draft: TableModel, target: TableModel, length: int
) -> np.ndarray:
    """Π_i π(y_i | y_{<i}), π the verifier's one-token output law."""
    size = target.num_tokens
    law = np.ones((size,) * length)
    for tokens in itertools.product(range(size), repeat=length):
        for i, token in enumerate(tokens):
            law[tokens] *= one_token_law(verifier, draft, target, tokens[:i])[token]
    return law


@pytest.mark.parametrize("verifier", LOSSY, ids=repr)
class TestTheText:
    def test_is_a_product_of_one_token_laws_while_drafts_last(self, verifier: otm.Verifier) -> None:
        """γ ≥ L: each of the first L tokens is a draft verified, or replaced, whatever happened
        before it.
        """
        for draft, target in (
            smooth_models(2, DEPTH, 1),
            random_models(2, DEPTH, np.random.default_rng(2)),
        ):
            decoder = SpeculativeSampling(LENGTH, verifier)
            assert not decoder.lossless
            found = generated_law(decoder, draft=draft, target=target, context=[], length=LENGTH)
            np.testing.assert_allclose(
                found, product_law(verifier, draft, target, LENGTH), atol=1e-13
            )

    def test_divergence_is_the_mean_of_the_one_token_distortions(
        self, verifier: otm.Verifier
    ) -> None:
        """The chain rule: position i contributes Σ_{y_{<i}} Q(y_{<i}) KL(q(· | y_{<i}) ‖ π(· |
        y_{<i})).
        """
        draft, target = smooth_models(3, DEPTH, 4)
        law = generated_law(
            SpeculativeSampling(LENGTH, verifier),
            draft=draft,
            target=target,
            context=[],
            length=LENGTH,
        )
        joint = sequence_law(target, [], LENGTH)
        found = divergence_by_position(law, target=joint)
        for i in range(LENGTH):
            wanted = 0.0
            for past in itertools.product(range(3), repeat=i):
                problem = otm.Problem(
                    draft=draft.next(past), target=target.next(past), law=otm.IID(1)
                )
                wanted += float(joint[past].sum()) * float(
                    otm.lossy.distortion(verifier, problem).kl
                )
            assert found[i] == pytest.approx(wanted, abs=1e-12)
        assert found.sum() == pytest.approx(float(np.sum(joint * np.log(joint / law))), abs=1e-12)


def coarse_models(seed: int) -> tuple[TableModel, TableModel]:
    """Small integer weights: zeros and ties, no tiny masses.

    Where p(x) = 0 the best law with KL ≤ D has mass q(x)·e^{−λ}, λ of order D/q(x). If that is
    below 2⁻⁵³, drafts are rejected with a probability that 1 − keep cannot represent, and x never
    comes out.
    """
    rng = np.random.default_rng([8, seed])
    contexts = [
        c for length in range(DEPTH + 1) for c in itertools.product(range(2), repeat=length)
    ]

    def row() -> np.ndarray:
        weights = rng.integers(0, 4, 2) + 0.0
        return weights / weights.sum() if weights.any() else np.array([0.5, 0.5])

    return TableModel({c: row() for c in contexts}), TableModel({c: row() for c in contexts})


@pytest.mark.parametrize("budget", [0.01, 0.1, 0.5])
class TestMentored:
    def test_the_budget_holds_at_every_position(self, budget: float) -> None:
        for seed in range(5):
            draft, target = coarse_models(seed)
            joint = sequence_law(target, [], LENGTH)
            for length in (1, 2, LENGTH):
                decoder = SpeculativeSampling(length, otm.Mentored(budget))
                law = generated_law(decoder, draft=draft, target=target, context=[], length=LENGTH)
                # The budget is met to the accuracy of Mentored's bisection, 1e-9.
                assert (divergence_by_position(law, target=joint) <= budget + 1e-9).all()

    def test_the_budget_is_used_up_where_the_models_differ_enough(self, budget: float) -> None:
        draft, target = ZerothOrder([0.9, 0.05, 0.05]), ZerothOrder([0.05, 0.05, 0.9])
        law = generated_law(
            SpeculativeSampling(2, otm.Mentored(budget)),
            draft=draft,
            target=target,
            context=[],
            length=2,
        )
        np.testing.assert_allclose(
            divergence_by_position(law, target=sequence_law(target, [], 2)), budget, atol=1e-9
        )

    def test_it_buys_speed(self, budget: float) -> None:
        """No lossy verifier with that divergence accepts more: its efficiency is 1 + a + a² with a
        the frontier's acceptance.
        """
        draft, target = ZerothOrder([0.9, 0.05, 0.05]), ZerothOrder([0.05, 0.05, 0.9])
        decoder = SpeculativeSampling(2, otm.Mentored(budget))
        found = expected_step(decoder, draft=draft, target=target, context=[]).block_efficiency
        problem = otm.Problem(draft=draft.mass, target=target.mass, law=otm.IID(1))
        accepted = float(otm.acceptance(otm.Mentored(budget), problem))
        assert found == pytest.approx(1 + accepted + accepted**2, abs=1e-12)
        lossless = expected_step(
            SpeculativeSampling(2), draft=draft, target=target, context=[]
        ).block_efficiency
        assert found > lossless + 0.01
