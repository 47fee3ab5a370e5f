"""Smallest counterexamples."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

import otm
from otm import audit
from tests.audit.callables import chain, maximal, one_uniform


def test_a_uniform_reused_needs_two_drafts() -> None:
    found = audit.shrink(one_uniform, law=otm.IID(2))
    assert found is not None
    assert (found.problem.law, found.problem.num_tokens) == (otm.IID(2), 3)
    assert found.verdict == "not lossless"
    for mass in [*found.problem.draft, *found.problem.target]:
        assert math.isclose(mass, Fraction(mass).limit_denominator(32), abs_tol=1e-15)


def test_a_clamp_shows_beyond_rounding() -> None:
    """Draft probabilities clamped at 1e-8 leave a residual that is wrong in the ninth digit."""
    found = audit.shrink(lambda p, q, d, u: maximal(np.maximum(p, 1e-8), q, d, u))
    assert found is not None
    assert 1e-10 < found.total_variation < 1e-8


def test_a_verifier_without_fault_has_none() -> None:
    assert audit.shrink(maximal, budget=100) is None


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert audit.shrink_sequence(chain, budget=100) is None
