"""The maximal coupling of the first draft, its residual among the others: against rational
enumeration.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

import otm
from tests import exact, strategies
from tests.tolerance import rounding
from tests.verifiers.rational import F, problem_of


class TestNaiveTree:
    @given(pair=strategies.pairs(), k=st.integers(1, 4))
    def test_closed_form(self, pair: tuple[np.ndarray, np.ndarray], k: int) -> None:
        problem = problem_of(pair, otm.IID(k))
        p, q = exact.exact(problem.draft), exact.exact(problem.target)
        value = sum(
            min(a, b) + max(b - a, F(0)) * (1 - (1 - a) ** (k - 1))
            for a, b in zip(p, q, strict=True)
        )
        for by in ("membership", "rule"):
            assert otm.acceptance(otm.NaiveTree(), problem, by=by) == pytest.approx(
                float(value), abs=rounding(len(p), k)
            )

    def test_one_draft_is_single_draft_rejection(self) -> None:
        rng = np.random.default_rng(0)
        batch = otm.Problem(
            draft=otm.examples.dirichlet(9, rng=rng, rows=5),
            target=otm.examples.dirichlet(9, rng=rng, rows=5),
            law=otm.IID(1),
        )
        np.testing.assert_allclose(
            otm.acceptance(otm.NaiveTree(), batch),
            otm.acceptance(otm.Maximal(), batch),
            atol=rounding(9, 1),
        )
