"""What drafts are lost to along texts: the trees of the clairvoyant bound, and the means over
prompts.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from analysis.advise.losses import SEVERAL, DraftLosses, _expected, first_drafts, measure_losses
from otm import Processing, optimal_acceptance
from otm.drafts import IID
from otm.losses import ROUNDED_MOST, acceptance_losses, draft_rounding
from otm.problem import Problem
from otm.sequence import (
    DraftSelection,
    Gsd,
    LikeliestTree,
    MarkovModel,
    SpeculativeSampling,
    markov_pair,
    matched_tokens,
)
from otm.trees import TreeShape

CHAIN = SpeculativeSampling(2)


class Scored:
    """A toy model that has logits."""

    processing = Processing(temperature=0.8)

    def __init__(self, model: MarkovModel) -> None:
        self.model, self.num_tokens = model, model.num_tokens

    def logits(self, contexts: list[tuple[int, ...]]) -> torch.Tensor:
        return torch.log(torch.from_numpy(self.model.next_batch(contexts)))

    def next(self, context: tuple[int, ...]) -> np.ndarray:
        return self.next_batch([context])[0]

    def next_batch(self, contexts: list[tuple[int, ...]]) -> np.ndarray:
        return np.asarray(self.processing(self.logits(contexts)))


def test_trees_of_both_models_win_what_the_library_says() -> None:
    draft, target = markov_pair(3, similarity=0.5, rng=np.random.default_rng(2))
    for tree in (LikeliestTree(1, 1), LikeliestTree(6, 3)):
        found = _expected(draft, target, (0, 1), tree, None)
        wanted = [
            matched_tokens(tree, draft=model, target=target, context=(0, 1))[-1]
            for model in (draft, target)
        ]
        assert found == pytest.approx(wanted, abs=1e-13) and wanted[0] <= wanted[1] + 1e-13
    ends = _expected(draft, target, (0, 1), LikeliestTree(3, 1), 2)
    # all tokens are drafted; the end of a text wins nothing
    assert ends == pytest.approx([2.0 - target.next((0, 1))[2]] * 2)


def test_shares_are_means_over_positions() -> None:
    """With every position of three texts looked at, the accepted share is the mean of Σ min, and
    everything makes 1.
    """
    draft, target = (
        Scored(model) for model in markov_pair(4, similarity=0.5, rng=np.random.default_rng(3))
    )
    texts = [(0, (0,), (1, 2, 3)), (0, (1,), (0, 1)), (1, (2, 2), (3, 1, 1, 0))]

    def looked(seconds: float) -> DraftLosses:
        return measure_losses(
            draft,  # type: ignore[arg-type]
            target,  # type: ignore[arg-type]
            texts,
            decoder=CHAIN,
            tree=LikeliestTree(2, 2),
            eos=None,
            seconds=seconds,
            rng=np.random.default_rng(0),
        )

    found = looked(60.0)
    contexts = [(*prefix, *text[:end]) for _, prefix, text in texts for end in range(len(text))]
    p, q = (model.next_batch(contexts) for model in (draft, target))
    overlap = float(np.mean(optimal_acceptance(Problem(draft=p, target=q, law=IID(1)))))
    assert found.positions == 9 and found.accepted.value == pytest.approx(overlap, abs=1e-13)
    assert found.accepted.value + sum(
        share.value for share in found.parts.values()
    ) == pytest.approx(1.0, abs=1e-13)
    assert found.accepted.low < found.accepted.value < found.accepted.high
    assert 1.0 < found.tokens.value <= found.clairvoyant.value <= 3.0
    hasty = looked(0.0)
    assert 2 <= hasty.positions <= 4 and not hasty.accepted.has_interval


def test_the_drafts_of_the_advised_plan_and_rounding_are_told_apart() -> None:
    """With every position of two texts looked at: the means of what the library says of three
    drafts, and of rounded ones.
    """
    draft, target = (
        Scored(model) for model in markov_pair(5, similarity=0.5, rng=np.random.default_rng(4))
    )
    texts = [(0, (0,), (1, 2, 3)), (1, (2, 2), (3, 1))]
    plan = DraftSelection(3, 2)
    found = measure_losses(
        draft,  # type: ignore[arg-type]
        target,  # type: ignore[arg-type]
        texts,
        decoder=plan,
        tree=LikeliestTree(2, 2),
        eos=None,
        seconds=60.0,
        rng=np.random.default_rng(0),
        rounded=True,
    )
    contexts = [(*prefix, *text[:end]) for _, prefix, text in texts for end in range(len(text))]
    logits = [model.logits(contexts).numpy() for model in (draft, target)]
    whole = acceptance_losses(
        *logits, k=3, draft=draft.processing, target=target.processing, verifier=plan.verifier
    ).mean()
    several, rounding = found.several, found.rounding
    assert several is not None and rounding is not None
    assert (several.drafts, several.verifier) == (3, str(plan.verifier))
    assert several.accepted.value == pytest.approx(whole["acceptance"], abs=1e-12)
    assert {name: share.value for name, share in several.parts.items()} == pytest.approx(
        {name: whole[name] for name in SEVERAL}, abs=1e-12
    )
    assert several.accepted.value + sum(
        share.value for share in several.parts.values()
    ) == pytest.approx(1.0, abs=1e-12)
    assert several.parts["verifier"].value > 1e-4 and found.accepted.value < several.accepted.value
    p, q = (model.next_batch(contexts) for model in (draft, target))
    change = draft_rounding(draft=p, target=q)
    assert rounding.gain.value == pytest.approx(float(change.gain.mean()), abs=1e-15)
    assert rounding.output_tv.value == pytest.approx(float(change.output_tv.mean()), abs=1e-15)
    assert (
        0.0
        < rounding.output_tv.value
        <= rounding.draft_tv.value
        == pytest.approx(float(change.draft_tv.mean()))
    )
    assert rounding.draft_tv.value <= ROUNDED_MOST
    # Three drafts of the rounded law accept at most three times its distance more or less.
    rounded = torch.from_numpy(p).bfloat16().double()
    both = [
        optimal_acceptance(Problem(draft=one, target=q, law=IID(3)))
        for one in (p, (rounded / rounded.sum(-1, keepdim=True)).numpy())
    ]
    assert abs(float(np.mean(both[1] - both[0]))) <= 3 * rounding.draft_tv.value


def test_how_many_drafts_a_plan_begins_with() -> None:
    draft, _ = markov_pair(4, similarity=0.5, rng=np.random.default_rng(3))
    contexts = [(0,), (1, 2)]
    for decoder, wanted in (
        (CHAIN, 1),
        (DraftSelection(4, 3), 4),
        (Gsd(TreeShape([0, 0, 1, 0])), 3),
        (LikeliestTree(3, 1), 3),
    ):
        assert first_drafts(decoder, draft, contexts) == wanted
    assert 1 <= first_drafts(LikeliestTree(4, 4), draft, contexts) <= 4
