"""Same seed, same text: whoever drafts, and if nobody does."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from otm.sequence import (
    DraftTree,
    Ersd,
    LanguageModel,
    LikeliestTree,
    MatchingDecoder,
    NoiseTree,
    Randomness,
    SharedNoise,
    generate,
    markov_pair,
)
from otm.sequence.noise_tree import noise_texts
from otm.trees import TreeShape


@dataclasses.dataclass(frozen=True)
class Repeated(MatchingDecoder):
    """Drafts the last token again and again, and another branch besides: a draft of one's own."""

    title = "repeated"
    num_nodes = 4
    depth = 3

    def draft(
        self, model: LanguageModel, context: tuple[int, ...], randomness: Randomness
    ) -> DraftTree:
        last = context[-1]
        return DraftTree(TreeShape([0, 1, 2, 0]), context, np.array([-1, last, last, last, 0]), {})


DECODERS: list[MatchingDecoder] = [
    NoiseTree(12, 4, 0.5),
    NoiseTree(3, 3, 0.01),
    LikeliestTree(8, 3),
    Ersd(TreeShape.sequences(2, 3)),
    Repeated(),
]


@pytest.mark.parametrize("seed", [0, 2**63])
def test_the_text_is_a_function_of_seed_and_target(seed: int) -> None:
    """Five drafters, each with a draft model of its own, and none; nothing comes from the rng."""
    _, target = markov_pair(6, order=2, rng=np.random.default_rng(0))
    start, noise = (1, 4), SharedNoise(seed)
    (plain,) = noise_texts(target, contexts=[start], noises=[noise], num_tokens=120)
    calls = []
    for number, decoder in enumerate(DECODERS):
        draft, _ = markov_pair(6, order=2, similarity=0.5, rng=np.random.default_rng(number))
        rng = np.random.default_rng(number)
        text = generate(
            decoder, draft=draft, target=target, context=start, num_tokens=120, rng=rng, noise=noise
        )
        assert text.tokens == plain, decoder
        calls.append(text.num_calls)
    assert max(calls) < 120  # each draft saved calls


def test_texts_end_where_the_plain_text_ends() -> None:
    draft, target = markov_pair(5, rng=np.random.default_rng(1))
    noise = SharedNoise(5)
    (plain,) = noise_texts(target, contexts=[(0,)], noises=[noise], num_tokens=60)
    for decoder in DECODERS[:3]:
        text = generate(
            decoder,
            draft=draft,
            target=target,
            context=[0],
            num_tokens=60,
            rng=np.random.default_rng(0),
            noise=noise,
            eos=3,
        )
        assert text.ended
        assert text.tokens == plain[: plain.index(3) + 1]
