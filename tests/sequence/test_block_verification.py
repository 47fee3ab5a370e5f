"""Block verification: the gold instance in fractions, its weights by hand, against token-level
verification and the program.
"""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

import otm
from otm.sequence import (
    BlockVerification,
    DraftTree,
    Enumerated,
    SpeculativeSampling,
    TableModel,
    ZerothOrder,
    best_step,
    outcomes,
    step_law,
)
from otm.sequence.block_verification import next_weight, pass_probability
from otm.trees import TreeShape
from tests.sequence.toys import random_models, smooth_models

THIRD, TWO_THIRDS = Fraction(1, 3), Fraction(2, 3)


def rational_weights(draft: list[Fraction], target: list[Fraction], length: int) -> list[Fraction]:
    """E[w_i], i = 1..γ, for a 0-th order pair in fractions, from the definition over all V^γ
    drafts.
    """
    totals = [Fraction(0)] * length
    for drafted in itertools.product(range(len(draft)), repeat=length):
        mass, weight = Fraction(1), Fraction(1)
        for token in drafted:
            mass *= draft[token]
        for i, token in enumerate(drafted):
            weight = min(Fraction(1), weight * target[token] / draft[token])
            totals[i] += mass * weight
    return totals


class TestGoldInstance:
    """Target (1/3, 2/3), draft (2/3, 1/3), γ = 2: 10/9 drafts accepted token by token, 11/9 as a
    block.
    """

    draft, target = ZerothOrder([2 / 3, 1 / 3]), ZerothOrder([1 / 3, 2 / 3])

    def test_token_by_token(self) -> None:
        # a = Σ min = 2/3, and 2/3 + 4/9 = 10/9.
        law = step_law(SpeculativeSampling(2), draft=self.draft, target=self.target, context=[])
        assert law.block_efficiency - 1 == pytest.approx(10 / 9, abs=1e-15)

    def test_as_a_block(self) -> None:
        weights = rational_weights([TWO_THIRDS, THIRD], [THIRD, TWO_THIRDS], 2)
        assert sum(weights) == Fraction(11, 9)
        law = step_law(BlockVerification(2), draft=self.draft, target=self.target, context=[])
        assert law.block_efficiency - 1 == pytest.approx(11 / 9, abs=1e-15)
        tails = np.cumsum(law.accepted_law[::-1])[::-1]
        np.testing.assert_allclose(tails[1:], [float(w) for w in weights], atol=1e-15)


def expected_weights(draft: TableModel, target: TableModel, length: int) -> np.ndarray:
    """E[w_i] for a general pair, by walking all drafts; written from the definition."""
    totals = np.zeros(length)

    def walk(context: tuple[int, ...], mass: float, weight: float) -> None:
        if len(context) == length:
            return
        p, q = draft.next(context), target.next(context)
        for token in np.flatnonzero(p):
            following = min(1.0, weight * q[token] / p[token])
            totals[len(context)] += mass * p[token] * following
            walk((*context, int(token)), mass * p[token], following)

    walk((), 1.0, 1.0)
    return totals


@pytest.mark.parametrize("seed", range(16))
def test_accepted_law_is_that_of_the_weights(seed: int) -> None:
    """Pr(at least i drafts are kept) = E[w_i]; the mean is at least that of token-level
    verification.
    """
    rng = np.random.default_rng([1, seed])
    num_tokens, length = int(rng.integers(2, 4)), int(rng.integers(1, 4))
    draft, target = random_models(num_tokens, length, rng)
    law = step_law(BlockVerification(length), draft=draft, target=target, context=[])
    tails = np.cumsum(np.pad(law.accepted_law, (0, length + 1 - len(law.accepted_law)))[::-1])[::-1]
    # Sums of at most 3³ products of a dozen factors of total ≤ 1: 1e-14 has room.
    np.testing.assert_allclose(tails[1:], expected_weights(draft, target, length), atol=1e-14)
    token_level = step_law(SpeculativeSampling(length), draft=draft, target=target, context=[])
    assert law.block_efficiency >= token_level.block_efficiency - 1e-14
    assert (
        best_step(BlockVerification(length), draft=draft, target=target, context=[]).upper
        >= law.block_efficiency - 1e-14
    )


def test_the_gain_over_token_level_verification_is_real() -> None:
    draft, target = smooth_models(3, 3, 0)
    block, token = (
        step_law(cls(3), draft=draft, target=target, context=[]).block_efficiency
        for cls in (BlockVerification, SpeculativeSampling)
    )
    assert block > token + 0.01


class TestEdges:
    def test_one_draft_is_single_draft_rejection(self) -> None:
        draft, target = ZerothOrder([0.5, 0.25, 0.25]), ZerothOrder([0.1, 0.6, 0.3])
        block, token = (
            step_law(cls(1), draft=draft, target=target, context=[])
            for cls in (BlockVerification, SpeculativeSampling)
        )
        assert block.tokens.tolist() == token.tokens.tolist()
        np.testing.assert_allclose(block.mass, token.mass, atol=1e-16)

    def test_equal_models_keep_everything(self) -> None:
        model = ZerothOrder([0.3, 0.3, 0.4])
        assert step_law(
            BlockVerification(3), draft=model, target=model, context=[]
        ).accepted_law.tolist()[:3] == [0, 0, 0]

    def test_disjoint_models_keep_nothing(self) -> None:
        law = step_law(
            BlockVerification(3),
            draft=ZerothOrder([1.0, 0.0]),
            target=ZerothOrder([0.0, 1.0]),
            context=[],
        )
        assert law.tokens.tolist() == [[1]]
        assert law.accepted.tolist() == [0]

    def test_a_lost_prefix_can_be_won_back(self) -> None:
        # w₁ = 1/2; the second draft has q/p = 2, so w₂ = 1: the whole draft is kept, token by token
        # with probability 1/2.
        draft = TableModel(
            {(): [1.0, 0.0], (0,): [0.5, 0.5], (0, 1): [1.0, 0.0], (0, 0): [1.0, 0.0]}
        )
        target = TableModel(
            {
                (): [0.5, 0.5],
                (0,): [0.0, 1.0],
                (0, 1): [1.0, 0.0],
                (1,): [1.0, 0.0],
                (0, 0): [1.0, 0.0],
            }
        )
        tree = DraftTree(
            TreeShape.chain(2),
            (),
            np.array([-1, 0, 1]),
            draft={c: draft.next(c) for c in [(), (0,)]},
        )
        found = dict(
            outcomes(
                lambda randomness: (
                    BlockVerification(2).verify(tree, target.next, randomness).accepted
                )
            )
        )
        assert found == {2: 1.0}
        token_level = outcomes(
            lambda randomness: SpeculativeSampling(2).verify(tree, target.next, randomness).accepted
        )
        assert {accepted: mass for accepted, mass in token_level if accepted == 2} == {2: 0.5}

    def test_a_draft_that_the_model_cannot_draw_is_never_kept(self) -> None:
        model = ZerothOrder([0.0, 1.0])
        tree = DraftTree(
            TreeShape.chain(2), (), np.array([-1, 0, 1]), draft={(): model.mass, (0,): model.mass}
        )
        target = ZerothOrder([0.5, 0.5])
        for one, _ in outcomes(
            lambda randomness: BlockVerification(2).verify(tree, target.next, randomness)
        ):
            assert one.accepted == 0
            assert one.tokens == (0,)  # (q − p)₊ has mass on token 0 only

    def test_weights_and_tests_at_zero(self) -> None:
        p, q = np.array([0.5, 0.5, 0.0]), np.array([0.0, 0.25, 0.75])
        assert [next_weight(1.0, p, q, x) for x in range(3)] == [0.0, 0.5, 0.0]
        assert next_weight(0.0, p, q, 1) == 0.0
        # no overflow to infinity on the way
        assert next_weight(1.0, np.array([1e-310, 1.0]), np.array([1.0, 0.0]), 0) == 1.0
        assert pass_probability(0.0, 1.0) == 1.0
        assert pass_probability(0.0, 0.0) == 0.0

    def test_steps_say_where_they_stopped(self) -> None:
        draft, target = random_models(2, 2, np.random.default_rng(3))
        randomness = Enumerated({})
        tree = BlockVerification(2).draft(draft, (), randomness)
        for one, _ in outcomes(
            lambda randomness: BlockVerification(2).verify(tree, target.next, randomness)
        ):
            assert one.stopped == ("end_of_draft" if one.accepted == 2 else "rejected")
            assert one.survivors == tuple((v,) for v in range(1, one.accepted + 1))
            assert one.tokens[: one.accepted] == tuple(tree.tokens[1 : one.accepted + 1])

    @pytest.mark.parametrize("length", [0, -1, 2.0, True])
    def test_length(self, length: object) -> None:
        with pytest.raises(
            otm.errors.InvalidParameter, match="length must be an integer of at least 1"
        ):
            BlockVerification(length)  # type: ignore[arg-type]
