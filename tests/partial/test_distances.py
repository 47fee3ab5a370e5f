"""Relative entropies of what is partly known."""

import numpy as np

from otm import partial
from otm.partial import PartialPair, TopTokens


def test_a_derived_tail_that_passes_its_caps_by_an_ulp():
    """1 − 1/3 is more than two caps of 1/3: the ulp too many was put where the draft has nothing,
    and D(q‖p) ≥ ∞ followed.
    """
    third = TopTokens(tokens=[0], probabilities=[1 / 3])
    pair = PartialPair(draft=TopTokens(tokens=[0, 1, 2], probabilities=[1 / 3] * 3), target=third)
    assert partial.divergences(pair).kl_target_draft.lower == 0.0


def test_a_tail_of_a_few_least_floats_is_shared_by_more_tokens_than_it_has_floats():
    # p leaves 3·2⁻¹⁰⁷⁴ for two tokens that p does not list: one share rounds to 0, the truth is
    # finite.
    least = 2.0**-1074
    draft = np.array([1.0, 2 * least, 1e-104, 1e-40, 1e-40, least, 1e-104])
    target = np.full(7, 1 / 7)
    for num_tokens in (None, 7):
        pair = PartialPair(
            draft=TopTokens.of(draft, m=5), target=TopTokens.of(target, m=5), num_tokens=num_tokens
        )  # fmt: skip
        interval = partial.divergences(pair).kl_target_draft
        truth = np.sum(target * (np.log(target) - np.log(draft)))
        assert 300 < interval.lower <= truth <= interval.upper
