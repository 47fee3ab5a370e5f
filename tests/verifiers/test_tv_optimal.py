"""The optimal verifier within a total variation distance: it attains the frontier and spends no
more than it may.
"""

import numpy as np
import pytest
from hypothesis import given, strategies as st

import otm
from tests import strategies

ROUNDING = 1e-12


@given(pair=strategies.pairs(max_tokens=5), k=st.integers(1, 4), tv=st.floats(0.0, 1.0))
def test_the_frontier_is_attained_within_the_budget(pair, k, tv):
    problem, verifier = (
        otm.Problem(draft=pair[0], target=pair[1], law=otm.IID(k)),
        otm.TvOptimal(tv),
    )
    found = otm.coupling(verifier, problem)
    due = float(otm.lossy.tv_frontier(problem, tv=tv))
    assert found.acceptance == pytest.approx(due, abs=ROUNDING)
    assert otm.acceptance(verifier, problem) == pytest.approx(due, abs=ROUNDING)
    assert otm.lossy.distortion(verifier, problem).total_variation <= tv + ROUNDING
    np.testing.assert_allclose(
        otm.lossy.output_law(verifier, problem), found.output_marginal, atol=ROUNDING
    )
