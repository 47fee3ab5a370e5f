"""Refined scores by drafts of other kinds, at equal nodes, and contexts by their entropy."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from analysis.errors import AnalysisError
from analysis.steps.contexts import entropy, third_by_entropy, written_entropy
from analysis.steps.drafters import TemperedModel
from analysis.steps.gains import BOUND, REFINED
from analysis.steps.refined import BY_CONTEXT, by_context, compare_refined
from otm.sequence import (
    Decoder,
    DraftTree,
    LanguageModel,
    MarkovModel,
    Randomness,
    RefinedScores,
    SharedNoise,
    Step,
    completed_law,
    generated_law,
    markov_pair,
    sequence_law,
    step_law,
)
from otm.sequence.decoder import Conditionals
from otm.sequence.models import Context


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_drafts_at_a_temperature_of_their_own_are_lossless(temperature: float) -> None:
    draft, target = markov_pair(3, similarity=0.5, rng=np.random.default_rng(3))
    law = step_law(
        RefinedScores(2, 2), draft=TemperedModel(draft, temperature), target=target, context=[1]
    )
    np.testing.assert_allclose(
        completed_law(law, target=target, context=[1], length=3),
        sequence_law(target, [1], 3),
        atol=1e-12,
    )


@dataclasses.dataclass(frozen=True)
class ByContext(Decoder):
    """Two sequences of one token where the draft's entropy is high, one of two where it is not."""

    lossless, num_nodes, depth = True, 2, 2

    def draft(self, model: LanguageModel, context: Context, randomness: Randomness) -> DraftTree:
        unsure = entropy(model.next(context)) > 0.5
        plan = RefinedScores(2, 1) if unsure else RefinedScores(1, 2)
        return plan.draft(model, context, randomness)

    def verify(self, tree: DraftTree, target: Conditionals, randomness: Randomness) -> Step:
        plan = RefinedScores(2, 1) if tree.shape.depth == 1 else RefinedScores(1, 2)
        return plan.verify(tree, target, randomness)


def test_sequences_chosen_by_the_draft_s_entropy_are_lossless() -> None:
    """Texts of several steps, each with drafts of its context's own number and length."""
    draft = MarkovModel([[0.9, 0.1], [0.5, 0.5]])
    target = MarkovModel([[0.6, 0.4], [0.3, 0.7]])
    found = generated_law(ByContext(), draft=draft, target=target, context=[0], length=4)
    np.testing.assert_allclose(found, sequence_law(target, [0], 4), atol=1e-12)


def test_groups_take_what_is_worth_its_nodes() -> None:
    """Sure contexts gain nothing by a second node, others a token: .5 more nodes on average buy it
    for every second context, where one plan for all would buy half of it for all.
    """
    sure = np.tile([0.0, 0.0, 1.0, 1.0, 2.0, 2.0], 4)
    nodes = np.broadcast_to([[1.0], [2.0]], (len(sure), 2, 1))
    tokens = np.where(nodes > 1, np.where(sure > 0.5, 2.5, 1.5)[:, None, None], 1.5)
    found = by_context(sure, nodes, tokens, 2)
    np.testing.assert_allclose(found.tokens, np.where(sure > 0.5, 2.5, 1.5))
    assert found.used == pytest.approx(5 / 3)


def test_rows_are_against_the_drafts_as_they_are() -> None:
    draft, target = markov_pair(4, similarity=0.6, rng=np.random.default_rng(1))
    found = compare_refined(
        draft=draft,
        target=target,
        contexts=[(i % 4,) for i in range(12)],
        nodes=(4,),
        temperatures=(1.0,),
        numbers=(1, 2),
        rng=np.random.default_rng(0),
    )
    rows = {row.name: row for row in found.rows}
    again = f"{REFINED}, drafts at temperature 1 of their own"
    assert set(rows) == {BOUND, REFINED, again, BY_CONTEXT}
    assert rows[REFINED].less == rows[REFINED].less_low == 0.0
    assert rows[again].less_low < 0.0 < rows[again].less_high  # the same law, other drafts
    assert rows[BY_CONTEXT].used <= 4 + 1e-12


def test_contexts_by_the_entropy_of_what_follows() -> None:
    """A chain that stays in 0, leaves 1 by a coin, and draws from four tokens after 2 and 3."""
    target = MarkovModel(
        [[1.0, 0, 0, 0], [0.5, 0.5, 0, 0], [0.25, 0.25, 0.25, 0.25], [0.25, 0.25, 0.25, 0.25]]
    )
    contexts = [(2,), (0,), (1,), (0,), (3,), (1,)]
    rng = np.random.default_rng(0)
    assert third_by_entropy(target, contexts, "low", 1, rng) == [(0,), (0,)]
    assert third_by_entropy(target, contexts, "high", 1, rng) == [(2,), (3,)]
    with pytest.raises(AnalysisError, match="low, middle, high; got 'hot'"):
        third_by_entropy(target, contexts, "hot", 1, rng)
    noises = [SharedNoise(0), SharedNoise(1)]
    assert written_entropy(target, (1,), noises, 1) == pytest.approx(np.log(2))
