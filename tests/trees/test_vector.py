"""Acceptance vectors against the joint laws of drafts and output, and estimates against counts that
are their own expectation.
"""

import itertools
import math

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
from tests import strategies
from tests.tolerance import COLLECTED, rounding

NESTED = [
    (otm.RecursiveRejection(), otm.IID),
    (otm.RecursiveRejection(), otm.WithoutReplacement),
    (otm.Race(), otm.WithoutReplacement),
    (otm.Naive(), otm.IID),
]


@settings(max_examples=60)
@given(strategies.pairs(max_tokens=4), st.integers(1, 3), st.sampled_from(NESTED))
def test_it_is_where_the_output_stands_among_the_drafts(pair, k, scheme):
    """None of these accepts a token that it has rejected, or puts out one that it did not accept
    but drafted.
    """
    (draft, target), (verifier, law) = pair, scheme
    k = min(k, len(draft))
    problem = otm.Problem(draft=draft, target=target, law=law.of_size(k))
    joint = otm.coupling(verifier, problem)
    wanted = np.zeros(k)
    for drafts, row in zip(joint.drafts.tolist(), joint.joint.toarray(), strict=True):
        for i, token in enumerate(drafts):
            if token >= 0 and token not in drafts[:i]:
                wanted[i] += row[token]
    np.testing.assert_allclose(acceptance_vector(verifier, problem), wanted, atol=COLLECTED, rtol=0)


def test_batches_go_row_by_row():
    rows = otm.Problem(
        draft=[[0.9, 0.1], [0.5, 0.5]],
        target=[[0.1, 0.9], [0.5, 0.5]],
        law=otm.WithoutReplacement(2),
    )
    found = acceptance_vector(otm.RecursiveRejection(), rows)
    np.testing.assert_allclose(found, [[0.2, 0.8], [1.0, 0.0]], atol=1e-15)


@pytest.mark.parametrize("verifier", [otm.KSeq(), otm.TransportPlan()], ids=repr)
def test_verifiers_that_look_at_all_drafts_have_no_acceptance_vector(
    verifier,
):
    problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))
    with pytest.raises(
        otm.errors.Unsupported,
        match=r"nested in k.*Choose Naive, NaiveTree, RecursiveRejection, Race",
    ):
        acceptance_vector(verifier, problem)
    single = problem.with_law(otm.IID(1))
    assert acceptance_vector(verifier, single) == pytest.approx([0.75])


def test_estimates_allow_for_vertices_with_few_children():
    """Eight visits each to vertices of one, two and three children, accepted as A = (1/2, 1/4, 1/8)
    has it: divided by all visits, A(3) would be 1/24.
    """
    accepting = [[0] * 4, [0] * 4 + [1] * 2, [0] * 4 + [1] * 2 + [2]]
    ranks = list(itertools.chain(*([*some, *[-1] * (8 - len(some))] for some in accepting)))
    accepted, tried = rank_counts(ranks, np.repeat([1, 2, 3], 8))
    assert (accepted.tolist(), tried.tolist()) == ([12, 4, 1], [24, 8, 2])
    assert empirical_acceptance(accepted, tried).tolist() == [1 / 2, 1 / 4, 1 / 8]
    accepted, tried = rank_counts([0, -1], [3, 1])  # ranks that nobody came to count as well
    assert (accepted.tolist(), tried.tolist()) == ([1, 0, 0], [2, 0, 0])


@pytest.mark.parametrize(
    ("function", "given"),
    [
        *((rank_counts, bad) for bad in (([], []), ([0], [0]), ([1], [1]), ([-2], [1]))),
        *((rank_counts, bad) for bad in (([0.0], [1]), ([0, 0], [1]), ([0, -2], [1, 1]))),
        *((empirical_acceptance, bad) for bad in (([3], [2]), ([0], [0]), ([-1], [2]), ([], []))),
        *((empirical_acceptance, bad) for bad in (([1, 1], [2]), ([math.nan], [2.0]))),
        *((check_acceptance, (bad,)) for bad in ([], [[0.5]], [0.6, 0.5], [-0.1], [math.nan])),
        *((check_acceptance, (bad,)) for bad in ([math.inf], ["a"], 0.5, [True])),
        *((entropy_bits, (bad,)) for bad in ([0.5, -0.1], [math.nan], [[0.5]])),
    ],
)
def test_what_is_refused(function, given):
    counts = function in (rank_counts, empirical_acceptance)
    error = otm.errors.InvalidParameter if counts else otm.errors.InvalidDistribution
    with pytest.raises(error):
        function(*given)


def test_the_gate():
    assert check_acceptance([1]).tolist() == [1.0]
    # float32 rounding above 1 is divided out
    assert check_acceptance(np.float32([0.1] * 10)).sum() <= 1
    assert (rejected_mass([0.1] * 10), rejected_mass([0.25])) == (0.0, 0.75)
    assert entropy_bits([0.5, 0.5, 0.0]) == 1.0
    assert math.copysign(1, entropy_bits([1.0])) == 1


def test_a_float32_row_passes_the_gate_once():
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
