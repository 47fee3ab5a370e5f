"""What drafted sequences gain: its mean over all drafts, and over the ways that verifiers take, is
the exact expected step of the decoder, by enumeration.
"""

import functools

import numpy as np
import pytest

import otm
from otm.sequence import (
    BlockKSeq,
    BlockVerification,
    Decoder,
    DraftSelection,
    GreedyMultipath,
    RefinedScores,
    expected_step,
    markov_pair,
)
from otm.sequence.decoding import evaluate
from otm.sequence.gains import (
    block_kseq_gain,
    ends_of,
    first_sequences,
    greedy_multipath_gain,
    refined_scores_gain,
    vertex_gain,
)
from otm.sequence.randomness import outcomes
from otm.trees import TreeShape
from tests.sequence.toys import asked

K, L = 2, 2


def as_gain(number):
    return lambda tree, target, ends, _: refined_scores_gain(tree, target, ends, number)


@pytest.mark.parametrize(
    ("gain", "decoder"),
    [
        (as_gain(K), RefinedScores(K, L)),
        (as_gain(1), BlockVerification(L)),
        (block_kseq_gain, BlockKSeq(K, L)),
        (greedy_multipath_gain, GreedyMultipath(K, L)),
        *(
            (vertex_gain(verifier), DraftSelection(K, L, verifier))
            for verifier in (otm.Optimal(), otm.KSeq(), otm.RecursiveRejection())
        ),
    ],
    ids=lambda value: repr(value) if isinstance(value, Decoder) else "",
)
def test_the_mean_over_drafts_is_the_expected_step(gain, decoder):
    """All 81 drafts of two sequences of two of three tokens: sums of products of a few numbers
    below 1, each right to some units in the last place.
    """
    draft, target = markov_pair(3, similarity=0.3, rng=4)
    drafting, mean = RefinedScores(K, L), 0.0
    for tree, drafted in outcomes(lambda randomness: drafting.draft(draft, (0,), randomness)):
        known = evaluate(target, tree).__getitem__
        for found, way in outcomes(functools.partial(gain, tree, known, ends_of(tree))):
            assert found.shape == (L,)
            mean += drafted * way * float(found.sum())
    exact = expected_step(decoder, **asked((draft, target), [0])).block_efficiency
    assert 1.0 + mean == pytest.approx(exact, abs=1e-12)


def test_what_ends_the_text_does_not_count():
    """One sequence, the end of the text drafted first: Σ min(p, q) without it, then nothing."""
    draft, target = markov_pair(3, similarity=0.3, rng=4)
    drafts = outcomes(lambda randomness: RefinedScores(1, 2).draft(draft, (0,), randomness))
    tree = next(tree for tree, _ in drafts if ends_of(tree)[0][1] == 2)
    known = evaluate(target, tree).__getitem__
    found = refined_scores_gain(tree, known, ends_of(tree), 1, eos=2)
    both = np.minimum(draft.next((0,)), target.next((0,)))
    np.testing.assert_allclose(found, [both[:2].sum(), 0.0], atol=1e-15)


def test_the_first_of_some_sequences_are_sequences():
    draft, _ = markov_pair(3, rng=4)
    tree = RefinedScores(3, 3).draft(draft, (0,), otm.sequence.Sampled(1))
    cut = first_sequences(tree, TreeShape.sequences(2, 2))
    assert ends_of(cut) == [end[:3] for end in ends_of(tree)[:2]]
