"""The most likely tokens as drafts, nothing drawn."""

import math

import pytest
from hypothesis import given, strategies as st

import otm
from otm.drafts.base import PAD, enumerate_drafts
from tests import strategies
from tests.tolerance import rounding


class TestDeterministic:
    @given(pair=strategies.pairs(max_tokens=6), k=st.integers(1, 4))
    def test_the_optimum_is_the_targets_mass_on_the_drafts(self, pair, k):
        draft, target = pair
        k = min(k, len(draft))
        problem = otm.Problem(draft=draft, target=target, law=otm.TopK(k))
        ranked = sorted(range(len(draft)), key=lambda x: (-problem.draft[x], x))
        top = [x for x in ranked[:k] if problem.draft[x] > 0]
        value = pytest.approx(math.fsum(problem.target[top]), abs=rounding(len(draft), k))
        assert otm.optimal_acceptance(problem) == value
        assert otm.acceptance(otm.Naive(), problem) == value
        assert enumerate_drafts(problem.law, problem.draft).tokens.tolist() == [
            top + [PAD] * (k - len(top))
        ]
