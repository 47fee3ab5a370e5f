"""Series that stand for sums over many tokens."""

import numpy as np
import pytest

from otm._machine.arrays import BLOCK
from otm.table.compiled.common import LIST_RACE, PER_K, POISSON, TERMS, add_moments
from otm.table.compiled.second_pass import NARROW, close_stretch


def test_moments_stand_for_the_powers_and_quotients_of_a_stretch():
    """At the edge of the stretch's width, from tiny match probabilities to 1, for few and many
    drafts; one term less shows.
    """
    add = getattr(add_moments, "py_func", add_moments)  # what is compiled has no way in from here
    y = np.linspace(-NARROW, NARROW, 256)
    for centre in (1e-50, 1e-5, 0.01, 0.3, 0.9, 1.0):
        hit = centre * (1 + y)
        hit, here = hit[hit <= 1], y[hit <= 1]
        q = np.full(len(hit), 1 / len(hit))
        for k in (1, 2, 8, 9, 100, 10**4, 10**6):
            moments = np.zeros((2, TERMS))
            add(*(np.append(a, np.zeros(BLOCK - len(a))) for a in (q, here)), moments[0])
            per_k = np.zeros((len(PER_K), 1))
            close_stretch(moments, centre, np.array([k]), per_k)
            together, missed = per_k[LIST_RACE, 0], per_k[POISSON, 0]
            assert together == pytest.approx((q * hit / (1 + (k - 1) * hit)).sum(), rel=1e-15 * 8)
            with np.errstate(divide="ignore"):
                assert missed == pytest.approx((q * np.exp(k * np.log1p(-hit))).sum(), abs=1e-14)
