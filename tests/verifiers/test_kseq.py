"""K-SEQ against rational arithmetic: γ*, acceptances, losslessness, and the refusal of γ < γ*."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import otm
from otm import IID, KSeq, Problem
from otm.overlap import rows
from tests import exact, strategies
from tests.tolerance import UNIT_ROUNDOFF, rounding


@pytest.mark.parametrize("k", [2, 5, 100])
@pytest.mark.parametrize("num_tokens", [2, 50])
def test_gamma_star_to_machine_precision(num_tokens, k):
    # These instances are well conditioned: an error ε in f moves γ* by the relative amount
    # ε/(γ*·(−f′)) < 10 ε.
    draft, target = otm.examples.dirichlet(
        num_tokens, rng=np.random.default_rng(1), rows=2, concentration=0.7
    )
    problem = Problem(draft=draft, target=target, law=IID(k))
    star, steepness = exact.gamma_star(exact.exact(problem.draft), exact.exact(problem.target), k)
    assert star * steepness > 0.1
    assert abs(float(otm.verifiers.gamma_star(problem)) / star - 1) <= 1e-14


@settings(max_examples=150)
@given(strategies.iid_problems(max_tokens=5, max_k=4))
def test_acceptance_at_gamma_star_against_a_rational_solve(problem):
    # The acceptance is well conditioned even where γ* is not: |dp_acc/dγ| ≤ |f′|, so an error ε in
    # f moves p_acc by at most ε.
    p, q = exact.exact(problem.draft), exact.exact(problem.target)
    star, _ = exact.gamma_star(p, q, problem.law.k)
    # f is evaluated to ε, so no root can be told from another where |f| ≤ ε: the residue, exactly.
    gamma = Fraction(float(otm.verifiers.gamma_star(problem)))
    assert 1 <= gamma <= problem.law.k
    beta = sum((min(a, b / gamma) for a, b in zip(p, q, strict=True)), Fraction(0))
    residue = abs(1 - (1 - beta) ** problem.law.k - gamma * beta)
    assert residue <= rounding(problem.num_tokens, problem.law.k)
    with mpmath.workdps(60):
        beta = mpmath.fsum(min(_mp(a), _mp(b) / star) for a, b in zip(p, q, strict=True))
        wanted = float(1 - (1 - beta) ** problem.law.k)
    tolerance = 2 * rounding(problem.num_tokens, problem.law.k)
    assert abs(otm.acceptance(KSeq(), problem) - wanted) <= tolerance
    assert abs(otm.acceptance(KSeq(), problem, by="rule") - wanted) <= tolerance
    # Nor is the residual drawn from by luck at γ*: both definitions agree by enumeration of the
    # kernel, too.
    assert abs(otm.coupling(KSeq(), problem).acceptance - wanted) <= tolerance


def _mp(x):
    return mpmath.mpf(x.numerator) / x.denominator


@settings(max_examples=100)
@given(
    strategies.iid_problems(max_tokens=4, max_k=3),
    st.sampled_from([0.0, 0.1, 0.5, 1.0, 3.0, 100.0]),
)
def test_any_larger_gamma_is_lossless_and_exact(problem, extra):
    gamma = float(otm.verifiers.gamma_star(problem)) + extra
    k, tolerance = problem.law.k, 2 * rounding(problem.num_tokens, problem.law.k)
    p, q = exact.exact(problem.draft), exact.exact(problem.target)
    rule, member, _ = exact.kseq(p, q, k, Fraction(gamma))
    verifier = KSeq(gamma=gamma)
    np.testing.assert_allclose(
        otm.coupling(verifier, problem).output_marginal, problem.target, atol=tolerance
    )
    assert abs(otm.acceptance(verifier, problem, by="rule") - float(rule)) <= tolerance
    if extra > 0:
        # At γ* the residual is dust off the accepted tokens, and what little of it is drawn is
        # below rounding.
        assert abs(otm.acceptance(verifier, problem) - float(member)) <= tolerance
    assert (
        otm.acceptance(verifier, problem, by="rule") <= otm.acceptance(KSeq(), problem) + tolerance
    )


class TestGammaBelowGammaStar:
    problem = Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=IID(2))

    def test_is_refused_everywhere(self):
        """One bad row of a batch, or one bad k of several, is enough."""
        batch = Problem(draft=[[0.5, 0.5], [0.75, 0.25]], target=[0.5, 0.5], law=IID(2))
        verifier = KSeq(gamma=1.39)
        for call in (
            lambda: otm.acceptance(verifier, self.problem, by="rule"),
            lambda: otm.acceptance_curve(verifier, self.problem, k=[1, 2]),
            lambda: otm.prepare(verifier, self.problem),
            lambda: otm.acceptance(verifier, batch),
        ):
            with pytest.raises(
                otm.errors.InvalidParameter,
                match=r"at least gamma\* = 1\.39038.*got 1\.39.*Use KSeq\(\)",
            ):
                call()

    def test_it_is_harmless_where_nothing_is_clipped(self):
        # Every token with q > 0 has q/p ≥ p_acc/β: p = (.5, .5, 0), q = (0, 1, 0) has β = ½ at any
        # γ ≤ 2, p_acc = ¾, q/p = 2.
        problem = Problem(draft=[0.5, 0.5, 0.0], target=[0.0, 1.0, 0.0], law=IID(2))
        assert float(otm.verifiers.gamma_star(problem)) == pytest.approx(1.5, abs=1e-14)
        assert otm.acceptance(KSeq(gamma=1.1), problem) == pytest.approx(0.75, abs=1e-15)
        np.testing.assert_allclose(
            otm.coupling(KSeq(gamma=1.1), problem).output_marginal, problem.target, atol=1e-15
        )


@pytest.mark.parametrize(
    ("draft", "target", "k", "gamma"),
    [
        pytest.param([0.5, 0.5], [0.5, 0.5], 3, 1.0, id="p = q: the root of −(1 − 1/γ)^k"),
        pytest.param([1.0, 0.0], [0.0, 1.0], 3, 1.0, id="disjoint: every γ solves it"),
        pytest.param([0.3, 0.7], [0.8, 0.2], 1, 1.0, id="k = 1 is the maximal coupling"),
        pytest.param([1.0], [1.0], 4, 1.0, id="V = 1"),
        # All drafts fail with probability (1 − β)^k < 1e-300, so p_acc = 1 = γβ: γ* = q₀ + γ* p₁
        # gives γ* = (1 − .1)/.4 = q₁/p₁.
        pytest.param([0.6, 0.4], [0.1, 0.9], 10_000, 2.25, id="k far beyond the vocabulary"),
        pytest.param(
            [1.0, 0.0],
            [0.5, 0.5],
            2,
            0.5 / (1 - 0.5**0.5),  # 1 − (1 − 1/(2γ))² = ½
            id="one draft token: β = q/γ, root where 1 − (1 − q/γ)² = q",
        ),
    ],
)
def test_gamma_star_at_the_edges(
    draft,
    target,
    k,
    gamma,
    monkeypatch,
):
    problem = Problem(draft=draft, target=target, law=IID(k))
    # From a sort and in bins, which find another root to rounding where p_acc is 1 up to k/37.
    for shortest in (1 << 16, 1)[: 1 if k > 37 * gamma else 2]:
        monkeypatch.setattr(rows, "_SHORTEST_ON_HOST", shortest)
        found = float(otm.verifiers.gamma_star(problem))
        assert found == pytest.approx(gamma, rel=4 * UNIT_ROUNDOFF)


def test_gradients_where_nothing_is_accepted():
    """Supports are disjoint: at γ* = 1 what either model gives a token of the other is accepted."""
    torch = pytest.importorskip("torch")
    p, q = torch.eye(2, dtype=torch.float64).requires_grad_()
    problem = Problem(draft=p, target=q, law=IID(3))
    slopes = torch.autograd.grad(otm.acceptance(KSeq(), problem), (p, q))
    assert torch.stack(slopes).tolist() == [[0.0, 1.0], [1.0, 0.0]]
