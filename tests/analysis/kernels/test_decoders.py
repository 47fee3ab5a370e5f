"""Decoders that step by their kernel: what they hand it, and what they leave to the library."""

import numpy as np
import torch

from analysis.kernels import decoders
from analysis.kernels.decoders import RefinedScoresByBins, by_kernel
from analysis.kernels.scores import refined_scores
from analysis.kernels.step import Verified
from otm.sequence import BlockVerification, RefinedScores, Sampled, markov_pair, step, step_law
from otm.sequence.decoding import evaluate


def test_the_kernel_is_given_the_tree_and_the_step_is_its_answer(
    monkeypatch,
):
    """Rows and paths are those of the contexts, and what the kernel keeps is what is written."""
    draft, target = markov_pair(6, similarity=0.1, concentration=0.3, rng=1)
    decoder = RefinedScoresByBins(3, 2)
    calls = []

    def spy(*arguments):
        calls.append((arguments, refined_scores(*arguments)))
        return calls[-1][1]

    monkeypatch.setattr(decoders, "refined_scores", spy)
    monkeypatch.setattr(decoders, "LEAST_TOKENS", 1)  # toys go by the kernel too
    lengths = set()
    for seed in range(20):
        randomness = Sampled(seed)
        tree = decoder.draft(draft, (2,), randomness)
        known = evaluate(target, tree)
        found = decoder.verify(tree, known.__getitem__, randomness)
        (candidates, paths, rows, drafted, *_), answer = calls[-1]
        contexts = tree.contexts()
        for path in paths[0].tolist():
            along = tree.contexts_along(path)
            assert [contexts[node] for node in path] == along[1:]
            for node, before in zip([0, *path], along, strict=True):
                np.testing.assert_allclose(rows[0, node], target.next(before), rtol=1e-6)
                if before != along[-1]:
                    np.testing.assert_allclose(drafted[0, node], draft.next(before), rtol=1e-6)
        assert candidates[0].tolist() == tree.tokens.tolist()
        count = int(answer.count[0])
        assert list(found.tokens) == answer.tokens[0, :count].tolist()
        assert found.accepted == count - 1
        lengths.add(count)
    assert lengths == {1, 2, 3}


def test_what_the_kernel_does_not_do_the_library_does(monkeypatch):
    """A small vocabulary, an enumeration, rows that are refused, and decoders without a kernel."""
    draft, target = markov_pair(3, similarity=0.7, rng=1)
    models = {"draft": draft, "target": target, "context": (0,)}
    slow, fast = RefinedScores(2, 1), RefinedScoresByBins(2, 1)
    for seed in range(5):
        same = [step(one, **models, randomness=Sampled(seed)) for one in (slow, fast)]
        assert same[0] == same[1]
    monkeypatch.setattr(decoders, "LEAST_TOKENS", 1)
    laws = [step_law(one, **models).block_efficiency for one in (slow, fast)]
    assert laws[0] == laws[1]
    refuse = torch.full((1, 2), -1), torch.full((1, 2), -1), torch.zeros(1, dtype=torch.int64)
    monkeypatch.setattr(decoders, "refined_scores", lambda *_: Verified(*refuse))
    assert step(fast, **models, randomness=Sampled(3)).tokens
    assert by_kernel(RefinedScores(3, 2, cells=16)) == RefinedScoresByBins(3, 2, cells=16)
    other = BlockVerification(3)
    assert by_kernel(other) is other
