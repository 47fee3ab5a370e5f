"""Acceptance vectors against stage-by-stage enumeration in fractions, against joint laws, and
against simulated counts.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import otm
from otm.trees.vector import (
    acceptance_vector,
    check_acceptance,
    empirical_acceptance,
    entropy_bits,
    rank_counts,
    rejected_mass,
)
from tests import exact, strategies
from tests.tolerance import COLLECTED, rounding


def rejection_stages(
    p: list[Fraction], r: list[Fraction], stages: int, *, replace: bool
) -> list[Fraction]:
    """A(i) by the steps of recursive rejection: draw, compare with the residual, go on with what is
    left.
    """
    left = sum(p)
    if stages == 0:
        return []
    if left == 0:
        return [Fraction(0)] * stages
    law = [x / left for x in p]
    accepted = [Fraction(0)] * stages
    excess = [max(b - a, Fraction(0)) for a, b in zip(law, r, strict=True)]
    mass = sum(excess)
    for x in range(len(p)):
        if law[x] == 0:
            continue
        keep = min(Fraction(1), r[x] / law[x])
        accepted[0] += law[x] * keep
        if keep < 1:
            remaining = p if replace else [Fraction(0) if y == x else p[y] for y in range(len(p))]
            later = rejection_stages(
                remaining, [e / mass for e in excess], stages - 1, replace=replace
            )
            for i, a in enumerate(later, start=1):
                accepted[i] += law[x] * (1 - keep) * a
    return accepted


@settings(max_examples=50)
@given(strategies.pairs(max_tokens=4), st.integers(1, 4), st.booleans())
def test_recursive_rejection_stage_by_stage(
    pair: tuple[np.ndarray, np.ndarray], k: int, replace: bool
) -> None:
    draft, target = pair
    if not replace and k > len(draft):
        return
    law = otm.IID(k) if replace else otm.WithoutReplacement(k)
    problem = otm.Problem(draft=draft, target=target, law=law)
    wanted = rejection_stages(
        exact.exact(problem.draft), exact.exact(problem.target), k, replace=replace
    )
    found = acceptance_vector(otm.RecursiveRejection(), problem)
    # Differences of two acceptances.
    np.testing.assert_allclose(
        found, [float(a) for a in wanted], atol=2 * rounding(len(draft), k), rtol=0
    )


@settings(max_examples=12)
@given(strategies.pairs(min_tokens=2, max_tokens=4))
def test_the_race_by_its_joint_law(pair: tuple[np.ndarray, np.ndarray]) -> None:
    draft, target = pair
    k = min(3, len(draft))
    problem = otm.Problem(draft=draft, target=target, law=otm.WithoutReplacement(k))
    joint = otm.coupling(otm.Race(), problem)
    table = joint.joint.toarray()
    wanted = [
        sum(
            table[row, tokens[i]]
            for row, tokens in enumerate(joint.drafts.tolist())
            if tokens[i] >= 0
        )
        for i in range(k)
    ]
    np.testing.assert_allclose(
        acceptance_vector(otm.Race(), problem), wanted, atol=COLLECTED, rtol=0
    )


def test_naive_by_hand() -> None:
    # Y ~ (½, ½), i.i.d. drafts (¾, ¼): first match at draft i with probability Σ q p (1 − p)^{i−1}.
    problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(3))
    wanted = [0.5 * sum(p * (1 - p) ** i for p in (0.75, 0.25)) for i in range(3)]
    np.testing.assert_allclose(acceptance_vector(otm.Naive(), problem), wanted, atol=1e-15)


def test_gsd_need_not_be_sorted_and_batches_go_row_by_row() -> None:
    # Recursive rejection: A(1) = .1 + .1; a rejected draft leaves the other token, which is then
    # certain to be accepted.
    rows = otm.Problem(
        draft=[[0.9, 0.1], [0.5, 0.5]],
        target=[[0.1, 0.9], [0.5, 0.5]],
        law=otm.WithoutReplacement(2),
    )
    for verifier in (otm.RecursiveRejection(), otm.Race()):
        found = acceptance_vector(verifier, rows)
        assert found.shape == (2, 2)
        for i in range(2):
            row = otm.Problem(draft=rows.draft[i], target=rows.target[i], law=rows.law)
            np.testing.assert_array_equal(found[i], acceptance_vector(verifier, row))
        np.testing.assert_allclose(found[1], [1, 0], atol=1e-11)
    np.testing.assert_allclose(
        acceptance_vector(otm.RecursiveRejection(), rows)[0], [0.2, 0.8], atol=1e-15
    )


@pytest.mark.parametrize(
    "verifier",
    [otm.KSeq(), otm.TransportPlan()],
    ids=repr,
)
def test_verifiers_that_look_at_all_drafts_have_no_acceptance_vector(
    verifier: otm.Verifier,
) -> None:
    problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))
    with pytest.raises(
        otm.errors.Unsupported,
        match=r"nested in k.*Choose Naive, NaiveTree, RecursiveRejection, Race",
    ):
        acceptance_vector(verifier, problem)
    single = problem.with_law(otm.IID(1))
    if verifier.supports(otm.IID(1)):
        assert acceptance_vector(verifier, single) == pytest.approx(
            [float(otm.acceptance(verifier, single))]
        )


def test_counts_of_visits() -> None:
    accepted, tried = rank_counts([0, 2, -1, -1], [1, 3, 2, 3])
    assert (accepted.tolist(), tried.tolist()) == ([1, 0, 1], [4, 3, 2])
    for bad in (([], []), ([0], [0]), ([1], [1]), ([-2], [1]), ([0.0], [1]), ([0, 0], [1])):
        with pytest.raises(otm.errors.InvalidParameter):
            rank_counts(*bad)


def test_estimates_allow_for_vertices_with_few_children() -> None:
    # 400,000 visits with 1 to 4 children each; a vertex with c children accepts rank i < c with
    # A(i), else none.
    rng, truth, visits = np.random.default_rng(3), np.array([0.4, 0.3, 0.15, 0.05]), 400_000
    children = rng.integers(1, 5, size=visits)
    rank = np.searchsorted(np.cumsum(truth), rng.random(visits), side="right")
    rank = np.where(rank < children, rank, -1)
    accepted, tried = rank_counts(rank, children)
    found = empirical_acceptance(accepted, tried)
    # Each hazard rests on at least n ≥ 10,000 trials: by Hoeffding it errs by ε with probability 2
    # exp(−2nε²) < 2.5e-10 at ε = √(ln(8e9)/2n), so all four are within ε but for 1e-9; an error of
    # ε in each of the hazards moves A by at most 4ε.
    assert tried.min() > 10_000
    assert np.abs(found - truth).max() < 4 * math.sqrt(math.log(8e9) / (2 * tried.min()))
    # Dividing by visits instead, the mutant, misses A(4) by a factor of four, and A(2) by .075.
    assert abs(accepted[1] / visits - truth[1]) > 0.05
    assert abs(found[1] - truth[1]) < 0.01


def test_with_equal_numbers_of_children_the_estimate_is_the_frequency() -> None:
    accepted = np.array([5, 3, 1])
    tried = np.array([10, 5, 2])
    np.testing.assert_allclose(empirical_acceptance(accepted, tried), accepted / 10, rtol=1e-15)
    for bad in (([3], [2]), ([0], [0]), ([-1], [2]), ([1, 1], [2]), ([math.nan], [2.0]), ([], [])):
        with pytest.raises(otm.errors.InvalidParameter):
            empirical_acceptance(*bad)


def test_the_gate() -> None:
    assert check_acceptance([1]).tolist() == [1.0]
    # float32 rounding above 1 is divided out
    assert check_acceptance(np.float32([0.1] * 10)).sum() <= 1
    assert rejected_mass([0.1] * 10) == 0.0
    assert rejected_mass([0.25]) == 0.75
    assert entropy_bits([0.5, 0.5, 0.0]) == 1.0
    assert math.copysign(1, entropy_bits([1.0])) == 1
    for bad in ([], [[0.5]], [0.6, 0.5], [-0.1], [math.nan], [math.inf], ["a"], 0.5, [True], None):
        with pytest.raises(otm.errors.InvalidDistribution):
            check_acceptance(bad)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ([0.5, -0.1], "≥ 0; it holds -0.1"),
        ([math.nan, 0.5], "it holds nan"),
        ([math.inf], "it holds inf"),
        ([[0.5, 0.5]], r"one row.*shape \(1, 2\)"),
        (0.5, r"shape \(\)"),
        ([True], "bool"),
        (["a"], "<U1"),
        ([[0.5], [0.2, 0.3]], "rectangular"),
    ],
)
def test_masses_without_an_entropy(bad: object, said: str) -> None:
    with pytest.raises(otm.errors.InvalidDistribution, match=said):
        entropy_bits(bad)  # type: ignore[arg-type]


def test_a_float32_row_passes_the_gate_once() -> None:
    """Passed twice it is rounded to float32 twice: 2e-9 from the acceptance of the row as given."""
    draft = np.array([0.375, 0.375, 0.0, 0.25], dtype=np.float32)
    target = np.array(
        [0.2534356415271759, 0.538244366645813, 0.021595265716314316, 0.1867246925830841],
        dtype=np.float32,
    )
    problem = otm.Problem(draft=draft, target=target, law=otm.WithoutReplacement(2))
    whole = otm.acceptance(otm.RecursiveRejection(), problem)
    assert acceptance_vector(otm.RecursiveRejection(), problem).sum() == pytest.approx(
        whole, abs=rounding(4, 2)
    )
