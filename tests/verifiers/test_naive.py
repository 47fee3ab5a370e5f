"""The baseline that samples the target and looks: against rational enumeration and its closed
forms.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

import otm
from tests import exact, strategies
from tests.tolerance import rounding
from tests.verifiers.rational import problem_of


class TestNaive:
    @given(pair=strategies.pairs(), k=st.integers(1, 5))
    def test_iid_closed_form(self, pair: tuple[np.ndarray, np.ndarray], k: int) -> None:
        problem = problem_of(pair, otm.IID(k))
        p, q = exact.exact(problem.draft), exact.exact(problem.target)
        value = float(sum(b * (1 - (1 - a) ** k) for a, b in zip(p, q, strict=True)))
        for by in ("membership", "rule"):
            assert otm.acceptance(otm.Naive(), problem, by=by) == pytest.approx(
                value, abs=rounding(len(p), k)
            )

    def test_full_vocabulary_without_replacement(self) -> None:
        num_tokens, k = 20_000, 8
        rng = np.random.default_rng(0)
        p, q = (
            otm.examples.dirichlet(num_tokens, rng=rng),
            otm.examples.dirichlet(num_tokens, rng=rng),
        )
        problem = otm.Problem(draft=p, target=q, law=otm.WithoutReplacement(k))
        value = otm.acceptance(otm.Naive(), problem)
        assert value > otm.acceptance(otm.Naive(), problem.with_law(otm.IID(k)))
        uniform = otm.Problem(
            draft=otm.examples.uniform(num_tokens), target=q, law=otm.WithoutReplacement(k)
        )
        assert otm.acceptance(otm.Naive(), uniform) == pytest.approx(k / num_tokens, abs=1e-14)

    def test_it_is_optimal_only_for_deterministic_drafts(self) -> None:
        rng = np.random.default_rng(1)
        p, q = otm.examples.dirichlet(6, rng=rng), otm.examples.dirichlet(6, rng=rng)
        for law in (otm.TopK(3), otm.IID(3), otm.WithoutReplacement(3), otm.Greedy(3)):
            problem = otm.Problem(draft=p, target=q, law=law)
            gap = otm.optimal_acceptance(problem) - otm.acceptance(otm.Naive(), problem)
            assert gap == pytest.approx(0, abs=1e-15) if isinstance(law, otm.TopK) else gap > 1e-3
