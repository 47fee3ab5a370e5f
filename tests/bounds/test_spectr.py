"""Theorem 1 and its tightness."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

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


@settings(max_examples=60)
@given(strategies.iid_problems(max_tokens=5, max_k=4), st.floats(1e-6, 1.0))
def test_sequences_likelier_than_the_target_outside_are_gone_through(problem, scale):
    """A target with next to no mass outside the set, where the sum is no closed form."""
    chosen = [0]
    q = problem.target * np.where(np.arange(problem.num_tokens) > 0, scale, 1.0)
    if not q.sum() > 0:
        return
    q /= q.sum()
    other = otm.Problem(draft=problem.draft, target=q, law=problem.law)
    wanted = exact.theorem_1(
        exact.exact(other.draft), exact.exact(other.target), problem.law.k, chosen
    )
    found = otm.bounds.spectr_upper(other, subset=chosen)
    assert abs(found - float(wanted)) <= rounding(problem.num_tokens, problem.law.k)


@pytest.mark.parametrize("k", [1, 3, 16])
def test_theorem_1_at_a_vocabulary_of_real_models(k):
    rng = np.random.default_rng(k)
    p, q = rng.dirichlet(np.full(128_256, 0.01), 2)
    problem = otm.Problem(draft=p, target=q, law=otm.IID(k))
    best = otm.bounds.spectr_minimum_upper(problem)
    optimum = otm.optimal_acceptance(problem)
    assert optimum <= best <= optimum + rounding(128_256, k)
    everything = otm.bounds.spectr_upper(problem, subset=range(128_256))
    assert best <= everything == pytest.approx(np.minimum(q, problem.law.inclusion(p)).sum())


def test_theorem_1_by_enumeration_at_a_middle_size():
    """Forty tokens, three drafts, sets of every size, and a target that lacks half the tokens."""
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.full(40, 0.1), 2)
    q = np.where(rng.random(40) < 0.5, q, 0.0) + 1e-9 * rng.random(40)
    problem = otm.Problem(draft=p, target=q / q.sum(), law=otm.IID(3))
    p, q = problem.draft, problem.target
    for size in (0, 5, 20, 35):
        inside = np.isin(np.arange(40), rng.permutation(40)[:size])
        tokens = np.stack(np.meshgrid(*[np.arange(40)] * 3, indexing="ij")).reshape(3, -1)
        a, b, c = np.where(inside, 0.0, q)[tokens]
        x, y, z = tokens
        outside = a + b * (y != x) + c * ((z != x) & (z != y))
        second = np.minimum(p[tokens].prod(axis=0), outside).sum()
        wanted = np.minimum(q, problem.law.inclusion(p))[inside].sum() + second
        found = otm.bounds.spectr_upper(problem, subset=inside)
        assert abs(found - wanted) <= 64_000 * rounding(1, 3)


def test_what_is_too_much_to_go_through_is_said():
    p = np.full(300, 1 / 300)
    q = np.full(300, 1e-12)
    q[0] = 1.0 - q[1:].sum()
    problem = otm.Problem(draft=p, target=q, law=otm.IID(4))
    with pytest.raises(otm.errors.TooLarge, match="more"):
        otm.bounds.spectr_upper(problem, subset=[0])
