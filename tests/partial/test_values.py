"""Values of what is partly known: the truth is always inside; enumeration, linear programs and
mutants say so.
"""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

import otm
from otm import partial
from otm.partial import PartialPair, TopTokens
from tests import strategies
from tests.partial.oracles import (
    KS,
    LEVELS,
    ROUNDING,
    _extreme_masses,
    _iid,
    _instances,
    assert_inside,
    curve,
    lowest_overlap,
    overlap_of,
    spread,
)


def lowest_optimum(pair, num_tokens, k):
    """min over completions of α*_k = 1 + min_T [Q(T) − P(T)^k], by the same enumeration."""
    q_in, p_in = _extreme_masses(pair, num_tokens)
    return float(1.0 + np.min(q_in - p_in**k))


@given(
    strategies.pairs(max_tokens=6),
    st.tuples(st.integers(1, 6), st.integers(1, 6)),
    st.booleans(),
    st.booleans(),
)
def test_the_truth_is_inside(pair, m, size_known, is_derived):
    """Whether tails are given or are what the listed tokens leave of 1."""
    p, q = pair
    tops = [TopTokens.of(mass, m=count) for mass, count in zip(pair, m, strict=True)]
    if is_derived:
        tops = [TopTokens(tokens=a.tokens, probabilities=a.probabilities) for a in tops]
    assert_inside(
        PartialPair(draft=tops[0], target=tops[1], num_tokens=len(p) if size_known else None), p, q
    )


def test_lower_ends_against_enumeration_of_all_sets():
    crowded = 0
    for _, _, pair in _instances(40, seed=2):
        exact = [lowest_optimum(pair, pair.num_tokens, k) for k in KS]
        ends = partial.optimal_acceptance(pair, k=KS)
        np.testing.assert_allclose(ends.lower, np.maximum(exact - ends.slack, 0.0), atol=ROUNDING)
        for level in LEVELS:
            assert curve(pair.furthest, level) == pytest.approx(
                lowest_overlap(pair, pair.num_tokens, level), abs=ROUNDING
            )
        crowded += bool(
            pair.furthest.count[len(pair.draft.tokens) + len(pair.target.tokens) :].sum()
            == pair.layout.spare[0]
            > 0
        )
    assert crowded >= 10, "the instances must exercise tails that cannot avoid each other"


def test_kseq_at_a_given_factor():
    for p, q, pair in _instances(20, seed=13):
        stars = partial.gamma_star(pair, k=[3])
        highest, star = float(stars.upper[0]), float(otm.verifiers.gamma_star(_iid(p, q, 3)))
        assert stars.contains(star).all() or overlap_of(pair).upper < 1e-9
        verifier = otm.KSeq(gamma=highest + 0.25)
        ends = partial.acceptance(verifier, pair, k=[3])
        assert ends.contains(otm.acceptance(verifier, _iid(p, q, 3), by="rule")).all()
        for completion, end in ((pair.furthest, ends.lower), (pair.closest, ends.upper)):
            problem = _iid(*spread(pair, completion, pair.num_tokens), 3)
            value = otm.acceptance(verifier, problem, by="rule")
            assert abs(end[0] - value) <= 2 * ends.slack[0] + ROUNDING
        if highest > 1.01:
            with pytest.raises(otm.errors.InvalidParameter, match="largest gamma"):
                partial.acceptance(otm.KSeq(gamma=1.0), pair, k=[3])


def test_batches_are_rows_and_padding_is_nothing():
    rng = np.random.default_rng(14)
    p, q = rng.dirichlet(np.ones(9), size=(2, 3)), rng.dirichlet(np.ones(9), size=(2, 3))
    first, second = TopTokens.of(p, m=4), TopTokens.of(q, m=6)
    padded = TopTokens(
        tokens=np.concatenate([first.tokens, np.full((2, 3, 2), -1)], axis=-1),
        probabilities=np.concatenate([first.probabilities, np.zeros((2, 3, 2))], axis=-1),
        tail=first.tail,
    )
    for verifier in (otm.Optimal(), otm.KSeq(), otm.RecursiveRejection()):
        for side in (first, padded):
            pair = PartialPair(draft=side, target=second, num_tokens=9)
            batch = partial.acceptance(verifier, pair, k=KS)
            assert batch.lower.shape == batch.slack.shape == (4, 2, 3)
            for i, j in np.ndindex(2, 3):
                tops = TopTokens.of(p[i, j], m=4), TopTokens.of(q[i, j], m=6)
                row = PartialPair(draft=tops[0], target=tops[1], num_tokens=9)
                alone = partial.acceptance(verifier, row, k=KS)
                for end in ("lower", "upper"):
                    found, wanted = getattr(batch, end)[:, i, j], getattr(alone, end)
                    np.testing.assert_allclose(found, wanted, atol=ROUNDING)
    assert isinstance(partial.divergences(row).total_variation.lower, float)


def test_tails_without_mass_and_lists_of_one():
    sure = TopTokens(tokens=[3], probabilities=[1.0], tail=0.0)
    pair = PartialPair(draft=sure, target=TopTokens(tokens=[3], probabilities=[0.25]))
    ends = overlap_of(pair)
    assert [ends.lower, ends.upper] == pytest.approx([0.25, 0.25], abs=1e-13)
    divergences = partial.divergences(pair)
    assert divergences.kl_target_draft.lower == math.inf
    assert divergences.kl_draft_target.upper == pytest.approx(math.log(4), abs=1e-9)
    apart = PartialPair(draft=sure, target=TopTokens(tokens=[1], probabilities=[1.0]))
    assert partial.optimal_acceptance(apart, k=[5]).upper[0] <= 1e-13
    empty = TopTokens(tokens=[-1], probabilities=[0.0])
    free = overlap_of(PartialPair(draft=empty, target=empty))
    assert (free.lower, free.upper, free.is_tight) == (0.0, 1.0, True)


def test_a_tail_shared_out_by_the_smallest_weights_is_shared_out_whole():
    """The level at which .1 is spread over a weight of 1.5e-323 is beyond the largest float: the
    token got its cap, .2, instead.
    """
    p, q = np.array([0.7, 0.1, 0.2]), np.array([1.0, 1.5e-323, 1.5e-323])
    pair = PartialPair(draft=TopTokens.of(p, m=2), target=TopTokens.of(q, m=2), num_tokens=3)
    ends = partial.acceptance(otm.KSeq(), pair, k=[2])
    true = otm.acceptance(otm.KSeq(), _iid(p, q, 2))
    assert ends.contains(true).all()
    assert (ends.lower <= ends.upper).all()


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
