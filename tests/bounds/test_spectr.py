"""Theorem 1 and its tightness."""

import numpy as np
from hypothesis import given, settings

import otm
from tests import exact, strategies
from tests.tolerance import rounding


@settings(max_examples=80)
@given(strategies.iid_problems(max_tokens=4, max_k=3))
def test_theorem_1_holds_for_every_set_and_is_tight(problem):
    p, q, k = exact.exact(problem.draft), exact.exact(problem.target), problem.law.k
    bounds = {
        chosen: exact.theorem_1(p, q, k, chosen) for chosen in exact.subsets(problem.num_tokens)
    }
    assert min(bounds.values()) == exact.optimum_iid(p, q, k)  # rational: an equality
    tolerance = rounding(problem.num_tokens, k)
    for chosen, bound in bounds.items():
        assert (
            abs(otm.bounds.spectr_upper(problem, subset=list(chosen)) - float(bound)) <= tolerance
        ), chosen
    assert abs(otm.bounds.spectr_minimum_upper(problem) - float(min(bounds.values()))) <= tolerance


def test_a_set_may_be_a_mask_or_tokens():
    problem = otm.Problem(draft=[0.5, 0.3, 0.2], target=[0.2, 0.2, 0.6], law=otm.IID(2))
    mask = np.array([True, False, True])
    wanted = otm.bounds.spectr_upper(problem, subset=mask)
    for subset in ([0, 2], np.array([0, 2]), (2, 0)):
        assert otm.bounds.spectr_upper(problem, subset=subset) == wanted
