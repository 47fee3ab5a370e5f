"""Thresholds on sample and match: the kernel's loop over siblings, in exact fractions."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st

import otm
from tests.verifiers.lossy_instances import ROUNDING


def by_the_loop(q, drafts, single, accumulated):
    """Integrate the loop over the coin: each sibling is accepted on an interval of coins."""
    law, lower, mass = [Fraction(0)] * len(q), Fraction(0), Fraction(0)
    for draft in drafts:
        mass += q[draft]
        upper = Fraction(1) if q[draft] >= single else min(Fraction(1), mass / accumulated)
        law[draft] += max(upper - lower, Fraction(0))
        lower = max(upper, lower)
    off = sum(q[y] for y in range(len(q)) if y not in drafts)
    if lower < 1:
        law = [m if y in drafts else m + (1 - lower) * q[y] / off for y, m in enumerate(law)]
    return law


@given(
    weights=st.lists(st.integers(0, 20), min_size=3, max_size=6).filter(any),
    single=st.integers(0, 16),
    accumulated=st.integers(1, 16),
    k=st.integers(1, 3),
)
def test_law_of_likeliest_drafts(weights, single, accumulated, k):
    q = [Fraction(w, sum(weights)) for w in weights]
    s, a = Fraction(single, 16), Fraction(accumulated, 16)
    draft = otm.examples.zipf(len(q))
    problem = otm.Problem(draft=draft, target=[float(x) for x in q], law=otm.TopK(k))
    verifier = otm.ThresholdMatching(float(s), float(a))
    due = by_the_loop(q, list(range(k)), s, a)
    np.testing.assert_allclose(
        otm.lossy.output_law(verifier, problem), [float(x) for x in due], rtol=0, atol=ROUNDING
    )
    for by in ("rule", "membership"):
        assert otm.acceptance(verifier, problem, by=by) == pytest.approx(
            float(sum(due[:k])), abs=ROUNDING
        )


def test_a_limit_near_nothing_is_the_kernels():
    assert otm.ThresholdMatching(accumulated=1e-300).accumulated == 1e-9
