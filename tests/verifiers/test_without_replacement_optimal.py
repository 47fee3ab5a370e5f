"""The optimal verifier without replacement: by hand, against all cuts, at full vocabulary, and
where it is refused.
"""

import numpy as np
import pytest

import otm
from otm.verifiers import without_replacement_optimal
from otm.verifiers.base import enumerated_acceptance
from otm.verifiers.without_replacement_optimal import Weights


def problem(draft, target, k):
    return otm.Problem(draft=draft, target=target, law=otm.WithoutReplacement(k))


def test_by_hand():
    """Two of three tokens: T = {0, 1} is drafted alone with .5·.6 + .3·.5/.7, and whenever 2 is
    there it is chosen.

    α* = 1 + .3 − (.3 + .15/.7). Within T token 1 must have .2 at least, and a choice at random
    gives it .2571.
    """
    rule = otm.prepare(
        otm.WithoutReplacementOptimal(), problem([0.5, 0.3, 0.2], [0.1, 0.2, 0.7], 2)
    )
    both = 0.5 * 0.6 + 0.3 * 0.5 / 0.7
    np.testing.assert_allclose(rule.law, [both / 2, both / 2, 1 - both], atol=1e-14)
    np.testing.assert_allclose(
        rule.selection(rule.problem, np.array([[0, 1], [2, 0]])), [[0.5, 0.5], [1.0, 0.0]]
    )


@pytest.mark.parametrize("seed", range(20))
def test_it_is_lossless_and_attains_the_optimum(seed, monkeypatch):
    monkeypatch.setattr(without_replacement_optimal, "_MOST_EVALUATIONS", 30)  # "some 10"
    rng = np.random.default_rng([13, seed])
    num_tokens = int(rng.integers(1, 8))
    k, spread = int(rng.integers(1, min(num_tokens, 4) + 1)), rng.choice([0.3, 1.0, 3.0, 8.0])
    p, q = np.exp(spread * rng.normal(size=(2, num_tokens)))
    if seed % 3 == 0:
        p[rng.random(num_tokens) < 0.2], q[rng.random(num_tokens) < 0.3] = 0.0, 0.0
    if seed % 5 == 0:
        p, q = np.round(3 * p) + 1, np.round(3 * q) + 1  # ties
    p[0], q[-1] = p[0] + 1e-3, q[-1] + 1e-3
    here = problem(otm.normalise(p), otm.normalise(q), k)
    best, verifier = otm.optimal_acceptance(here), otm.WithoutReplacementOptimal()
    plan = otm.coupling(verifier, here)
    np.testing.assert_allclose(plan.output_marginal, here.target, rtol=0, atol=1e-13)
    rule, member = (float(otm.acceptance(verifier, here, by=by)) for by in ("rule", "membership"))
    assert best - 1e-6 - 1e-13 <= rule <= member + 1e-14 <= best + 1e-13


@pytest.mark.parametrize("k", [2, 3])
def test_membership_counts_the_residual_s_luck(k):
    """A coarse search leaves some: against every draft sequence."""
    rng = np.random.default_rng(k)
    lucky = 0.0
    for _ in range(6):
        here = problem(*rng.dirichlet(np.full(6, 0.5), size=2), k)
        verifier = otm.WithoutReplacementOptimal(tolerance=0.5)
        member = float(otm.acceptance(verifier, here))
        assert member == pytest.approx(
            enumerated_acceptance(otm.prepare(verifier, here), "membership"), abs=1e-13
        )
        lucky = max(lucky, member - float(otm.acceptance(verifier, here, by="rule")))
    assert lucky > 1e-3


def test_at_full_vocabulary():
    """A long tail, 2,000 tokens: the optimum by another code, and above it for i.i.d. drafts."""
    rng = np.random.default_rng(3)
    p, q = (otm.normalise(np.exp(2.5 * rng.normal(size=2_000))) for _ in range(2))
    here = problem(p, q, 4)
    rule = otm.prepare(otm.WithoutReplacementOptimal(tolerance=1e-4), here)
    accepted, best = np.minimum(rule.law, q).sum(), otm.optimal_acceptance(here)
    assert best - 1e-4 <= accepted <= best + 1e-13
    assert accepted > otm.optimal_acceptance(here.with_law(otm.IID(4)))
    assert rule.law.sum() == pytest.approx(1.0, abs=1e-13)


def test_drafts_that_the_law_never_draws():
    choice = Weights(first=np.array([0.0, 0.0, 1.0, 0.0]), second=np.zeros(4))
    drafts = np.array([[0, 1], [2, -1], [0, -1]])
    np.testing.assert_array_equal(
        choice(problem([0.5, 0.3, 0.2], [0.1, 0.2, 0.7], 2), drafts), [[0.5, 0.5], [1, 0], [1, 0]]
    )
