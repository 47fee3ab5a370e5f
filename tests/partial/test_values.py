"""Values of what is partly known: the truth is always inside; enumeration, linear programs and
mutants say so.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

import otm
from otm import partial
from otm.partial import Interval, PartialPair, TopTokens
from otm.partial.completion import complete_closely, complete_furthest
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
    dense,
    highest_overlap,
    intervals,
    lowest_overlap,
    overlap_of,
    spread,
)


def lowest_optimum(pair: PartialPair, num_tokens: int, k: int) -> float:
    """min over completions of α*_k = 1 + min_T [Q(T) − P(T)^k], by the same enumeration."""
    q_in, p_in = _extreme_masses(pair, num_tokens)
    return float(1.0 + np.min(q_in - p_in**k))


@given(strategies.pairs(max_tokens=6), st.integers(1, 6), st.integers(1, 6), st.booleans())
def test_the_truth_is_inside(
    pair: tuple[np.ndarray, np.ndarray], first: int, second: int, size_known: bool
) -> None:
    p, q = pair
    tops = TopTokens.of(p, m=first), TopTokens.of(q, m=second)
    assert_inside(
        PartialPair(draft=tops[0], target=tops[1], num_tokens=len(p) if size_known else None), p, q
    )


def test_lower_ends_against_enumeration_of_all_sets() -> None:
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


def test_more_knowledge_never_widens() -> None:
    for p, q, _ in _instances(15, seed=6):
        before: dict[str, Interval] | None = None
        for m in range(1, len(p) + 1):
            now = intervals(
                PartialPair(
                    draft=TopTokens.of(p, m=m), target=TopTokens.of(q, m=m), num_tokens=len(p)
                )
            )
            for name in before or {}:
                # Slack grows with the length of the list, by some units of roundoff.
                slack = now[name].slack + before[name].slack
                assert now[name].lower >= before[name].lower - slack
                assert now[name].upper <= before[name].upper + slack
            before = now
        assert before is not None
        values = dense(p, q)
        for name, interval in before.items():
            assert (
                interval.lower - interval.slack <= values[name] <= interval.upper + interval.slack
            )
            assert (
                interval.width <= 3 * interval.slack
                or math.isinf(values[name])
                or name.startswith("recursive")
            )


def test_by_hand() -> None:
    # p = (½, ¼ | tail ¼), q = (¼, ·, ¼ | tail ½), caps ¼. V unknown. Disjoint tails: overlap ¼ on
    # token 0 alone.
    one, two = (
        TopTokens(tokens=[0, 1], probabilities=[0.5, 0.25]),
        TopTokens(tokens=[0, 2], probabilities=[0.25, 0.25]),
    )
    pair = PartialPair(draft=one, target=two)
    ends = overlap_of(pair)
    # Closest: ρ solves ½ − ρ/4 = ρ(¼ − 1/(4ρ)), so ρ = 3/2; q(1) = min(3/8, ¼) is capped, hence ½ −
    # ¼ = ρ/4 − ¼ and ρ = 2: q(1) = ¼, p(2) = 1/8, and the spare tokens have p-mass 1/8, q-mass ¼.
    # Overlap ¼ + ¼ + 1/8 + 1/8 = ¾.
    np.testing.assert_allclose(pair.closest.draft, [0.5, 0.25, 0.0, 0.125, 0.125], atol=1e-15)
    np.testing.assert_allclose(pair.closest.target, [0.25, 0.25, 0.0, 0.25, 0.25], atol=1e-15)
    assert ends.upper == pytest.approx(0.75, abs=1e-13)
    assert ends.lower == pytest.approx(0.25, abs=1e-13)
    # With V = 4 there is one spare token. p's tail takes it, q's takes it too and then token 1: ¼ +
    # ¼ + ¼.
    crowded = PartialPair(draft=one, target=two, num_tokens=4)
    assert overlap_of(crowded).lower == pytest.approx(0.75, abs=1e-13)
    # With V = 5 q's tail goes to token 4 and half of … to token 1: two tokens at cap ¼ are needed,
    # p's one and q's two exceed two.
    assert overlap_of(PartialPair(draft=one, target=two, num_tokens=5)).lower == pytest.approx(
        0.5, abs=1e-13
    )
    assert overlap_of(PartialPair(draft=one, target=two, num_tokens=6)).lower == pytest.approx(
        0.25, abs=1e-13
    )


class TestMutants:
    """What is wrong without a cap, or with a token known to one model taken as impossible in the
    other.
    """

    def test_without_the_cap_ends_are_not_attained(self) -> None:
        caught = [0, 0]
        for _, _, pair in _instances(40, seed=7):
            draft, target = (
                dataclasses.replace(side, cap=0 * side.cap + 1) for side, _ in pair.layout.sides
            )
            no_cap = dataclasses.replace(pair.layout, draft=draft, target=target)
            for i, (complete, oracle) in enumerate(
                ((complete_closely, highest_overlap), (complete_furthest, lowest_overlap))
            ):
                caught[i] += (
                    abs(curve(complete(no_cap, ()), 1.0) - oracle(pair, pair.num_tokens, 1.0))
                    > 1e-3
                )
        assert min(caught) >= 5, caught

    def test_a_token_known_to_one_model_only_is_not_impossible_in_the_other(self) -> None:
        outside = 0
        for p, q, pair in _instances(40, seed=8):
            known = pair.layout
            draft, target = (
                dataclasses.replace(side, alone=np.zeros_like(side.alone))
                for side, _ in known.sides
            )
            spare = known.spare + draft.mass.shape[1]
            mutant = complete_closely(
                dataclasses.replace(known, draft=draft, target=target, spare=spare), ()
            )
            outside += curve(mutant, 1.0) < np.minimum(p, q).sum() - 1e-3
        assert outside >= 5, outside

    def test_without_the_number_of_tokens_lower_ends_are_lower(self) -> None:
        loose = 0
        for _, _, pair in _instances(40, seed=9):
            free = PartialPair(draft=pair.draft, target=pair.target)
            assert overlap_of(free).lower <= overlap_of(pair).lower + ROUNDING
            loose += overlap_of(free).lower < overlap_of(pair).lower - 1e-3
        assert loose >= 5, loose


def test_recursive_rejection_is_not_monotone_in_the_curve() -> None:
    # Merging tokens 0 and 2 raises the curve everywhere and lowers the acceptance: 1 − 1/16 against
    # 1 − .0975.
    p, q = np.array([0.25, 0.35, 0.4]), np.array([0.0, 0.5, 0.5])
    near_p, near_q = np.array([0.65, 0.35]), np.array([0.5, 0.5])
    for level in LEVELS:
        assert np.minimum(near_q, level * near_p).sum() >= np.minimum(q, level * p).sum() - ROUNDING
    far, near = (
        otm.acceptance(otm.RecursiveRejection(), _iid(*pair, 2))
        for pair in ((p, q), (near_p, near_q))
    )
    assert far == pytest.approx(0.9375, abs=1e-14)
    assert near == pytest.approx(0.9025, abs=1e-14)


def test_kseq_at_a_given_factor() -> None:
    for p, q, pair in _instances(20, seed=13):
        highest = float(partial.gamma_star(pair, k=[3]).upper[0])
        star = float(otm.verifiers.gamma_star(_iid(p, q, 3)))
        assert partial.gamma_star(pair, k=[3]).contains(star).all() or overlap_of(pair).upper < 1e-9
        ends = partial.acceptance(otm.KSeq(highest + 0.25), pair, k=[3])
        assert ends.contains(
            otm.acceptance(otm.KSeq(gamma=highest + 0.25), _iid(p, q, 3), by="rule")
        ).all()
        for completion, end in ((pair.furthest, ends.lower), (pair.closest, ends.upper)):
            problem = _iid(*spread(pair, completion, pair.num_tokens), 3)
            value = otm.acceptance(otm.KSeq(gamma=highest + 0.25), problem, by="rule")
            assert abs(end[0] - value) <= 2 * ends.slack[0] + ROUNDING
        if highest > 1.01:
            with pytest.raises(otm.errors.InvalidParameter, match="largest gamma"):
                partial.acceptance(otm.KSeq(1.0), pair, k=[3])


def test_batches_are_rows_and_padding_is_nothing() -> None:
    rng = np.random.default_rng(14)
    p, q = rng.dirichlet(np.ones(9), size=(2, 3)), rng.dirichlet(np.ones(9), size=(2, 3))
    first, second = TopTokens.of(p, m=4), TopTokens.of(q, m=6)
    padded = TopTokens(
        tokens=np.concatenate([first.tokens, np.full((2, 3, 2), -1)], axis=-1),
        probabilities=np.concatenate([first.probabilities, np.zeros((2, 3, 2))], axis=-1),
        tail=first.tail,
    )
    whole, wide = (PartialPair(draft=side, target=second, num_tokens=9) for side in (first, padded))
    curves = {
        pair: (partial.optimal_acceptance(pair, k=KS), partial.acceptance(otm.KSeq(), pair, k=KS))
        for pair in (whole, wide)
    }
    assert curves[whole][0].lower.shape == (4, 2, 3)
    for i, j in np.ndindex(2, 3):
        row = PartialPair(
            draft=TopTokens.of(p[i, j], m=4), target=TopTokens.of(q[i, j], m=6), num_tokens=9
        )
        for pair in (whole, wide):
            for batch, single in zip(
                curves[pair],
                (partial.optimal_acceptance(row, k=KS), partial.acceptance(otm.KSeq(), row, k=KS)),
                strict=True,
            ):
                np.testing.assert_allclose(batch.lower[:, i, j], single.lower, atol=ROUNDING)
                np.testing.assert_allclose(batch.upper[:, i, j], single.upper, atol=ROUNDING)
    assert partial.optimal_acceptance(row, k=[1]).lower.shape == (1,)
    assert isinstance(partial.divergences(row).total_variation.lower, float)


def test_tails_without_mass_and_lists_of_one() -> None:
    sure = TopTokens(tokens=[3], probabilities=[1.0], tail=0.0)
    assert float(sure.tail) == 0.0
    other = TopTokens(tokens=[3], probabilities=[0.25])
    pair = PartialPair(draft=sure, target=other)
    ends = overlap_of(pair)
    assert (ends.lower, ends.upper) == (
        pytest.approx(0.25, abs=1e-13),
        pytest.approx(0.25, abs=1e-13),
    )
    divergences = partial.divergences(pair)
    assert divergences.kl_target_draft.lower == math.inf
    assert divergences.kl_draft_target.upper == pytest.approx(math.log(4), abs=1e-9)
    apart = PartialPair(
        draft=TopTokens(tokens=[0], probabilities=[1.0]),
        target=TopTokens(tokens=[1], probabilities=[1.0]),
    )
    assert partial.optimal_acceptance(apart, k=[5]).upper[0] <= 1e-13
    nothing = PartialPair(
        draft=TopTokens(tokens=[-1], probabilities=[0.0]),
        target=TopTokens(tokens=[-1], probabilities=[0.0]),
    )
    free = overlap_of(nothing)
    assert (free.lower, free.upper) == (0.0, 1.0)
    assert free.is_tight


def test_at_real_size() -> None:
    # V = 128,256 with flat tails: both together need more tokens than there are, so V matters, and
    # the witness is checked.
    rng = np.random.default_rng(15)
    num_tokens = 128_256
    p, q = rng.dirichlet(np.full(num_tokens, 20.0)), rng.dirichlet(np.full(num_tokens, 20.0))
    pair = PartialPair(
        draft=TopTokens.of(p, m=50), target=TopTokens.of(q, m=50), num_tokens=num_tokens
    )
    low, high = (
        spread(pair, completion, num_tokens) for completion in (pair.furthest, pair.closest)
    )
    ends, true = (
        partial.optimal_acceptance(pair, k=[1, 4]),
        otm.optimal_acceptance_curve(_iid(p, q, 1), k=[1, 4]),
    )
    assert ends.contains(true).all()
    for i, k in enumerate((1, 4)):
        # Running sums of 128,256 masses err by √V·u in practice, V·u = 1.4e-11 at worst.
        assert otm.optimal_acceptance(_iid(*low, k)) == pytest.approx(ends.lower[i], abs=2e-11)
        assert otm.optimal_acceptance(_iid(*high, k)) == pytest.approx(ends.upper[i], abs=2e-11)
    free = PartialPair(draft=pair.draft, target=pair.target)
    assert ends.lower[0] > overlap_of(free).lower + 1e-3


def test_a_tail_shared_out_by_the_smallest_weights_is_shared_out_whole() -> None:
    """The level at which .1 is spread over a weight of 1.5e-323 is beyond the largest float: the
    token got its cap, .2, instead.
    """
    p, q = np.array([0.7, 0.1, 0.2]), np.array([1.0, 1.5e-323, 1.5e-323])
    pair = PartialPair(draft=TopTokens.of(p, m=2), target=TopTokens.of(q, m=2), num_tokens=3)
    ends = partial.acceptance(otm.KSeq(), pair, k=[2])
    true = otm.acceptance(otm.KSeq(), _iid(p, q, 2))
    assert ends.contains(true).all()
    assert (ends.lower <= ends.upper).all()
