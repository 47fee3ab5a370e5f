"""Decoders that step by their kernel: what they hand it, and what they leave to the library."""

from typing import Any

import numpy as np
import pytest
import torch

from analysis.kernels import decoders
from analysis.kernels.decoders import RefinedScoresByBins, by_kernel
from analysis.kernels.scores import refined_scores
from analysis.kernels.step import Verified
from otm.sequence import BlockVerification, RefinedScores, Sampled, markov_pair, step, step_law
from otm.sequence.decoder import evaluate


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Toys go by the kernel too."""
    monkeypatch.setattr(decoders, "LEAST_TOKENS", 1)


def test_the_kernel_is_given_the_tree_and_the_step_is_its_answer(
    small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows and paths are those of the contexts, and what the kernel keeps is what is written."""
    draft, target = markov_pair(6, similarity=0.1, concentration=0.3, rng=1)
    decoder = RefinedScoresByBins(3, 2)
    given: list[tuple[Any, ...]] = []
    answers: list[Any] = []

    def spy(*arguments: Any) -> Any:
        given.append(arguments)
        answers.append(refined_scores(*arguments))
        return answers[-1]

    monkeypatch.setattr(decoders, "refined_scores", spy)
    lengths = set()
    for seed in range(20):
        randomness = Sampled(seed)
        tree = decoder.draft(draft, (2,), randomness)
        known = evaluate(target, tree)
        found = decoder.verify(tree, known.__getitem__, randomness)
        candidates, paths, rows, drafted, uniforms, final, _ = given[-1]
        assert rows.shape == (1, 7, 6) and drafted.shape == (1, 4, 6)
        assert uniforms.shape == (1, 7) and final.shape == (1,)
        contexts = tree.contexts()
        for path in paths[0].tolist():
            along = tree.contexts_along(path)
            assert [contexts[node] for node in path] == along[1:]
            for node, before in zip([0, *path], along, strict=True):
                np.testing.assert_allclose(rows[0, node], target.next(before), rtol=1e-6)
                if before != along[-1]:
                    np.testing.assert_allclose(drafted[0, node], draft.next(before), rtol=1e-6)
        assert candidates[0].tolist() == tree.tokens.tolist()
        count = int(answers[-1].count[0])
        assert list(found.tokens) == answers[-1].tokens[0, :count].tolist()
        assert found.accepted == count - 1
        lengths.add(count)
    assert lengths == {1, 2, 3}


@pytest.mark.long
def test_steps_have_the_law_of_the_target(small: None) -> None:
    """The first two tokens of 2,000 steps: of nine outcomes a total variation of .08 has a
    probability of 2⁹ exp(−2 · 2,000 · .08²) = 4e-9 at most.
    """
    draft, target = markov_pair(3, similarity=0.5, rng=0)
    rng, counts, fast = np.random.default_rng(0), np.zeros((3, 3)), RefinedScoresByBins(2, 2)
    number = 2_000
    for _ in range(number):
        randomness = Sampled(rng)
        one = step(
            fast, draft=draft, target=target, context=(0,),
            randomness=randomness,
        )  # fmt: skip
        first = one.tokens[0]
        second = one.tokens[1] if len(one.tokens) > 1 else rng.choice(3, p=target.next((0, first)))
        counts[first, second] += 1
    q = target.next((0,))[:, None] * np.stack([target.next((0, x)) for x in range(3)])
    assert 0.5 * abs(counts / number - q).sum() < 0.08


def test_what_the_kernel_does_not_do_the_library_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small vocabulary, an enumeration, and rows that are refused."""
    draft, target = markov_pair(3, similarity=0.7, rng=1)
    models: dict[str, Any] = {"draft": draft, "target": target, "context": (0,)}
    slow, fast = RefinedScores(2, 1), RefinedScoresByBins(2, 1)
    same = [
        [step(one, **models, randomness=Sampled(seed)) for seed in range(5)] for one in (slow, fast)
    ]
    assert same[0] == same[1]
    monkeypatch.setattr(decoders, "LEAST_TOKENS", 1)
    laws = [step_law(one, **models).block_efficiency for one in (slow, fast)]
    assert laws[0] == laws[1]
    refuse = torch.full((1, 2), -1), torch.full((1, 2), -1), torch.zeros(1, dtype=torch.int64)
    monkeypatch.setattr(decoders, "refined_scores", lambda *_: Verified(*refuse))
    assert step(fast, **models, randomness=Sampled(3)).tokens


def test_only_what_is_faster_by_its_kernel_is_replaced() -> None:
    assert by_kernel(RefinedScores(3, 2, cells=16)) == RefinedScoresByBins(3, 2, cells=16)
    other = BlockVerification(3)
    assert by_kernel(other) is other
