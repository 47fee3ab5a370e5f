"""Lossy verifiers at sequence level: the text's law, and its exact KL position by position."""

import itertools

import numpy as np
import pytest

import otm
from otm.sequence import (
    SpeculativeSampling,
    divergence_by_position,
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


@pytest.fixture(scope="module")
def models():
    """A draft and a target of three tokens, with a row for each of a thousand contexts."""
    return smooth_models(3, DEPTH, 4)


def one_token_law(verifier, draft, target, context):
    problem = otm.Problem(draft=draft.next(context), target=target.next(context), law=otm.IID(1))
    return np.asarray(otm.lossy.output_law(verifier, problem))


def product_law(verifier, draft, target, length):
    """Π_i π(y_i | y_{<i}), π the verifier's one-token output law."""
    size = target.num_tokens
    law = np.ones((size,) * length)
    for tokens in itertools.product(range(size), repeat=length):
        for i, token in enumerate(tokens):
            law[tokens] *= one_token_law(verifier, draft, target, tokens[:i])[token]
    return law


@pytest.mark.parametrize("verifier", LOSSY, ids=repr)
class TestTheText:
    def test_is_a_product_of_one_token_laws_while_drafts_last(self, verifier):
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

    def test_divergence_is_the_mean_of_the_one_token_distortions(self, verifier, models):
        """The chain rule: position i contributes Σ_{y_{<i}} Q(y_{<i}) KL(q(· | y_{<i}) ‖ π(· |
        y_{<i})).
        """
        draft, target = models
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
