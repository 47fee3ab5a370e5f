"""What drafts are lost to along texts: the trees of the clairvoyant bound, and the means over
prompts.
"""

import numpy as np
import pytest

from analysis.advise.losses import SEVERAL, _expected, first_drafts, measure_losses
from otm import Processing, optimal_acceptance
from otm.drafts import IID
from otm.losses import acceptance_losses, draft_rounding
from otm.problem import Problem
from otm.sequence import (
    DraftSelection,
    Gsd,
    LikeliestTree,
    SpeculativeSampling,
    markov_pair,
)
from otm.trees import TreeShape
from tests.analysis.toys import Toy

CHAIN = SpeculativeSampling(2)


def test_the_end_of_a_text_wins_nothing():
    """One level, all tokens drafted: both trees hold whatever the target writes but the end."""
    draft, target = markov_pair(3, similarity=0.5, rng=np.random.default_rng(2))
    ends = _expected(draft, target, (0, 1), LikeliestTree(3, 1), 2)
    assert ends == pytest.approx([2.0 - target.next((0, 1))[2]] * 2)


TEXTS = [(0, (0,), (1, 2, 3)), (0, (1,), (0, 1)), (1, (2, 2), (3, 1, 1, 0))]
CONTEXTS = [(*prefix, *text[:end]) for _, prefix, text in TEXTS for end in range(len(text))]


@pytest.fixture
def pair():
    chains = markov_pair(5, similarity=0.5, rng=np.random.default_rng(4))
    return [Toy(model, Processing(temperature=0.8)) for model in chains]


def looked(pair, decoder, *, seconds=60.0, rounded=False):
    """What drafts are lost to: with so much time, at every position of three texts."""
    return measure_losses(
        *pair,
        TEXTS,
        decoder=decoder,
        tree=LikeliestTree(2, 2),
        eos=None,
        seconds=seconds,
        rng=np.random.default_rng(0),
        rounded=rounded,
    )


def test_shares_are_means_over_positions(pair):
    """The accepted share is the mean of Σ min, and everything makes 1."""
    found = looked(pair, CHAIN)
    p, q = (model.next_batch(CONTEXTS) for model in pair)
    overlap = float(np.mean(optimal_acceptance(Problem(draft=p, target=q, law=IID(1)))))
    assert found.positions == 9 and found.accepted.value == pytest.approx(overlap, abs=1e-13)
    whole = found.accepted.value + sum(share.value for share in found.parts.values())
    assert whole == pytest.approx(1.0, abs=1e-13)
    assert found.accepted.low < found.accepted.value < found.accepted.high
    assert 1.0 < found.tokens.value <= found.clairvoyant.value <= 3.0
    hasty = looked(pair, CHAIN, seconds=0.0)
    assert 2 <= hasty.positions <= 4 and not hasty.accepted.has_interval


def test_the_drafts_of_the_advised_plan_and_rounding_are_told_apart(pair):
    """The means of what the library says of three drafts, and of rounded ones."""
    plan = DraftSelection(3, 2)
    found = looked(pair, plan, rounded=True)
    logits = [model.logits(CONTEXTS).numpy() for model in pair]
    sides = dict(zip(("draft", "target"), (model.processing for model in pair), strict=True))
    whole = acceptance_losses(*logits, k=3, **sides, verifier=plan.verifier).mean()
    several, rounding = found.several, found.rounding
    assert several is not None and rounding is not None
    assert (several.drafts, several.verifier) == (3, str(plan.verifier))
    assert several.accepted.value == pytest.approx(whole["acceptance"], abs=1e-12)
    assert {name: share.value for name, share in several.parts.items()} == pytest.approx(
        {name: whole[name] for name in SEVERAL}, abs=1e-12
    )
    assert several.parts["verifier"].value > 1e-4 and found.accepted.value < several.accepted.value
    p, q = (model.next_batch(CONTEXTS) for model in pair)
    change = draft_rounding(draft=p, target=q)
    for name in ("gain", "output_tv", "draft_tv"):
        mean = float(getattr(change, name).mean())
        assert getattr(rounding, name).value == pytest.approx(mean, abs=1e-15)
    assert 0.0 < rounding.output_tv.value <= rounding.draft_tv.value


def test_how_many_drafts_a_plan_begins_with():
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
