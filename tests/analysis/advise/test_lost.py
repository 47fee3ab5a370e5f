"""What drafts are lost to along texts: the trees of the clairvoyant bound, and the means over prompts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from analysis.advise.lost import _expected, lost
from otm import Processing, optimal_acceptance
from otm.drafts import IID
from otm.problem import Problem
from otm.sequence import LikeliestTree, MarkovModel, markov_pair, matched_tokens


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
        wanted = [matched_tokens(tree, draft=model, target=target, context=(0, 1))[-1] for model in (draft, target)]
        assert found == pytest.approx(wanted, abs=1e-13) and wanted[0] <= wanted[1] + 1e-13
    ends = _expected(draft, target, (0, 1), LikeliestTree(3, 1), 2)
    assert ends == pytest.approx([2.0 - target.next((0, 1))[2]] * 2)  # all tokens are drafted; the end of a text wins nothing


def test_shares_are_means_over_positions() -> None:
    """With every position of three texts looked at, the accepted share is the mean of Σ min, and everything makes 1."""
    draft, target = (Scored(model) for model in markov_pair(4, similarity=0.5, rng=np.random.default_rng(3)))
    texts = [(0, (0,), (1, 2, 3)), (0, (1,), (0, 1)), (1, (2, 2), (3, 1, 1, 0))]
    found = lost(draft, target, texts, tree=LikeliestTree(2, 2), eos=None, seconds=60.0, rng=np.random.default_rng(0))  # type: ignore[arg-type]
    contexts = [(*prefix, *text[:end]) for _, prefix, text in texts for end in range(len(text))]
    p, q = (model.next_batch(contexts) for model in (draft, target))
    overlap = float(np.mean(optimal_acceptance(Problem(draft=p, target=q, law=IID(1)))))
    assert found.positions == 9 and found.accepted.value == pytest.approx(overlap, abs=1e-13)
    assert found.accepted.value + sum(share.value for share in found.parts.values()) == pytest.approx(1.0, abs=1e-13)
    assert found.accepted.low < found.accepted.value < found.accepted.high
    assert 1.0 < found.tokens.value <= found.clairvoyant.value <= 3.0
    hasty = lost(draft, target, texts, tree=LikeliestTree(2, 2), eos=None, seconds=0.0, rng=np.random.default_rng(0))  # type: ignore[arg-type]
    assert 2 <= hasty.positions <= 4 and np.isnan(hasty.accepted.low)
