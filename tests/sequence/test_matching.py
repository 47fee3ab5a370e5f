"""Sample and match: same seed, same text, whoever drafts; the likeliest paths against a search of
all paths, and every budget from one tree.
"""

import dataclasses
import math

import numpy as np
import pytest

from otm.sequence import (
    DraftTree,
    Ersd,
    LikeliestTree,
    MatchingDecoder,
    NoiseTree,
    SharedNoise,
    ZerothOrder,
    best_step,
    expected_step,
    generate,
    markov_pair,
    matched_tokens,
)
from otm.sequence.noise_tree import noise_texts
from otm.sequence.randomness import Enumerated
from otm.trees import TreeShape
from tests.sequence.toys import asked, contexts, random_models


@dataclasses.dataclass(frozen=True)
class Repeated(MatchingDecoder):
    """Drafts the last token again and again, and another branch besides: a draft of one's own."""

    title, num_nodes, depth = "repeated", 4, 3

    def draft(self, model, context, randomness):
        last = context[-1]
        return DraftTree(TreeShape([0, 1, 2, 0]), context, np.array([-1, last, last, last, 0]), {})


@pytest.mark.parametrize("seed", [0, 2**63])
@pytest.mark.parametrize("eos", [None, 3])
def test_the_text_is_a_function_of_seed_and_target(seed, eos):
    """Five drafters, each with a draft model of its own, and none; nothing comes from the rng. It
    ends where the plain text ends.
    """
    _, target = markov_pair(6, order=2, rng=np.random.default_rng(0))
    start, noise = (1, 4), SharedNoise(seed)
    (plain,) = noise_texts(target, contexts=[start], noises=[noise], num_tokens=120)
    end = 120 if eos is None else plain.index(eos) + 1
    calls = []
    for number, decoder in enumerate(
        [
            NoiseTree(12, 4, 0.5),
            NoiseTree(3, 3, 0.01),
            LikeliestTree(8, 3),
            Ersd(TreeShape.sequences(2, 3)),
            Repeated(),
        ]
    ):
        models = asked((markov_pair(6, order=2, similarity=0.5, rng=number)[0], target), start)
        text = generate(decoder, **models, num_tokens=120, rng=number, noise=noise, eos=eos)
        assert text.tokens == plain[:end] and text.ended == (eos is not None), decoder
        calls.append(text.num_calls)
    assert max(calls) < 120  # each draft saved calls


# --- the likeliest paths


def products(model, path):
    """The probability of a path."""
    return math.prod(float(model.next(path[:place])[path[place]]) for place in range(len(path)))


@pytest.mark.parametrize("seed", range(6))
def test_no_other_paths_are_likelier_and_sample_and_match_is_their_best(seed):
    """In falling order, so that one tree answers for all smaller ones."""
    draft, target = random_models(3, 3, np.random.default_rng([21, seed]))
    masses = sorted((products(draft, path) for path in contexts(3, 3)[1:]), reverse=True)
    for size in (1, 5, 39):
        decoder = LikeliestTree(size, 3)
        paths = [c for c in decoder.draft(draft, (), Enumerated({})).contexts() if c]
        drafted = [products(draft, path) for path in paths]
        np.testing.assert_allclose(drafted, [m for m in masses[:size] if m > 0], rtol=1e-13)
        tokens = matched_tokens(decoder, **asked((draft, target)))
        reached = [products(target, path) for path in paths]
        np.testing.assert_allclose(tokens, 1 + np.cumsum([0.0, *reached]), rtol=1e-13)
        step = expected_step(decoder, **asked((draft, target)))
        assert step.block_efficiency == pytest.approx(tokens[-1], abs=1e-13)
        if size < 39:
            best = best_step(decoder, **asked((draft, target)))
            assert best.value == pytest.approx(tokens[-1], abs=1e-9)


CHAIN = [(0,), (0, 0), (0, 0, 0)]


@pytest.mark.parametrize(
    ("decoder", "mass", "paths"),
    [
        # ties go to the elder and the lower token
        (LikeliestTree(5, 2), [0.5, 0.0, 0.5], [(0,), (2,), (0, 0), (0, 2), (2, 0)]),
        (LikeliestTree(3, 3), [1.0, 0.0], CHAIN),
        # width 1 is a chain of argmaxes, though the second token weighs more than the chain's end
        (LikeliestTree(3, 3, width=1), [0.55, 0.45], CHAIN),
        (LikeliestTree(3, 3), [0.55, 0.45], [(0,), (1,), (0, 0)]),
        (
            LikeliestTree(9, 2, width=2),
            [0.6, 0.3, 0.1],
            [(0,), (0, 0), (1,), (0, 1), (1, 0), (1, 1)],
        ),
    ],
)
def test_ties_and_widths(decoder, mass, paths):
    tree = decoder.draft(ZerothOrder(mass), (7,), Enumerated({}))
    assert tree.contexts() == [(7,), *((7, *path) for path in paths)]


def test_at_a_vocabulary_of_a_hundred_thousand():
    """Ties and zeros included, the selection without a sort is the stable sort's."""
    mass = np.random.default_rng(5).integers(0, 5, 100_000).astype(float)
    mass /= mass.sum()
    tree = LikeliestTree(300, 1).draft(ZerothOrder(mass), (), Enumerated({}))
    assert tree.tokens[1:].tolist() == np.argsort(-mass, kind="stable")[:300].tolist()
