"""Entropy of the accepted draft's index: exact laws of the index against the bounds, and where the
lower bound fails.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings

import otm
from otm.bounds.index_entropy import (
    greedy_index_entropy_upper,
    index_entropy_lower,
    index_entropy_upper,
)
from otm.trees.vector import acceptance_vector, entropy_bits, rejected_mass
from tests import strategies

_LONGEST = 3_000
_TAIL = 1e-9


def poisson_index(draft, target):
    """The law of the Poisson functional representation's index, by its definition: geometric given
    the winner i.

    Entries before the winner come at rate g_i = Σ_j (q_i p_j/p_i − q_j)₊ per unit of an Exp(1)
    time.
    """
    law = np.zeros(_LONGEST)
    for i in np.flatnonzero((target > 0) & (draft > 0)):
        rate = np.maximum(target[i] * draft / draft[i] - target, 0.0).sum()
        law += target[i] / (1 + rate) * (rate / (1 + rate)) ** np.arange(_LONGEST)
    return law


def divergence(draft, target):
    """D(q‖p) in bits, from the definition."""
    return math.fsum(q * math.log2(q / p) for p, q in zip(draft, target, strict=True) if q > 0)


@settings(max_examples=40)
@given(strategies.pairs(min_tokens=2, max_tokens=5))
def test_indices_into_an_independent_list(pair):
    draft, target = pair
    problem = otm.Problem(draft=draft, target=target, law=otm.IID(_LONGEST))
    p, q = problem.draft, problem.target
    if (q[p < 1e-2] > 0).any():
        return  # the index has a tail beyond the table (infinite divergence is tested below)
    lower, d, list_constant = index_entropy_lower(problem), divergence(p, q), math.log2(4 * math.e)
    assert lower == pytest.approx(d, abs=1e-12)
    assert index_entropy_upper(problem) == pytest.approx(d + math.log2(d + 1) + 4, abs=1e-11)
    assert greedy_index_entropy_upper(problem) == pytest.approx(
        d + math.log2(d + list_constant) + list_constant, abs=1e-11
    )
    for law, upper in (
        (poisson_index(p, q), index_entropy_upper(problem)),
        (acceptance_vector_of_greedy_rejection(p, q), greedy_index_entropy_upper(problem)),
    ):
        assert 1 - math.fsum(law) < _TAIL
        entropy = entropy_bits(law)
        # A tail adds at most tail·(log₂(1/tail) + a few bits per e-fold).
        assert lower <= entropy + 60 * _TAIL
        assert entropy <= upper


def acceptance_vector_of_greedy_rejection(p, q):
    """The law of greedy rejection's index: what each entry of the list takes from the residual q −
    t p.
    """
    law, t, mass = [], 0.0, 1.0
    for _ in range(_LONGEST):
        t += mass
        left = float(np.maximum(q - t * p, 0.0).sum())
        law.append(mass - left)
        mass = left
    return np.asarray(law)


def test_the_lower_bound_fails_without_replacement():
    # ERSD (6) as stated for the drafts that its algorithms use: the rank is one of two, H ≤ 1 bit,
    # and D = 2.329 bits.
    problem = otm.Problem(draft=[0.99, 0.01], target=[0.5, 0.5], law=otm.WithoutReplacement(2))
    d = divergence(problem.draft, problem.target)
    assert d == pytest.approx(2.329, abs=5e-4)
    for verifier in (otm.RecursiveRejection(), otm.Race()):
        law = acceptance_vector(verifier, problem)
        assert rejected_mass(law) == pytest.approx(0, abs=1e-11)
        assert entropy_bits(law) <= 1 < d - 1.3
    # The race's rank is never above the index in the list with repetitions.
    assert entropy_bits(law) <= index_entropy_upper(problem)


def test_batches_infinities_and_laws():
    rows = otm.Problem(draft=[[0.5, 0.5], [1.0, 0.0]], target=[0.75, 0.25], law=otm.IID(1))
    for function in (index_entropy_lower, index_entropy_upper, greedy_index_entropy_upper):
        values = function(rows)
        assert values.shape == (2,)
        single = function(otm.Problem(draft=[0.5, 0.5], target=[0.75, 0.25], law=otm.IID(3)))
        assert isinstance(single, float)
        assert values[0] == pytest.approx(single, rel=1e-15)
        assert values[1] == math.inf
        other = otm.WithoutReplacement if function is not index_entropy_upper else otm.TopK
        with pytest.raises(otm.errors.Unsupported):
            function(rows.with_law(other(1)))
    assert index_entropy_upper(rows.with_law(otm.WithoutReplacement(1)))[1] == math.inf
