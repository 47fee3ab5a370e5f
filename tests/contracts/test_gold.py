"""Hand values worked out in rational arithmetic: docs/theory.md ("Gold instances", "Errors in the
sources") and SpecTr.
"""

import fractions
import itertools

import numpy as np
import pytest

import otm
from otm import IID, KSeq, Problem, RecursiveRejection
from tests import exact
from tests.tolerance import rounding

F = fractions.Fraction


def _problem(target, draft, k):
    return Problem(draft=[float(x) for x in draft], target=[float(x) for x in target], law=IID(k))


THREE_TOKENS_TWO_DRAFTS = (
    [F(309, 500), F(177, 500), F(7, 250)],
    [F(373, 1000), F(29, 50), F(47, 1000)],
    2,
)
THREE_TOKENS_THREE_DRAFTS = (
    [F(469, 1000), F(31, 250), F(407, 1000)],
    [F(201, 1000), F(11, 40), F(131, 250)],
    3,
)
TWO_TOKENS_TWO_DRAFTS = ([F(777, 1000), F(223, 1000)], [F(937, 1000), F(63, 1000)], 2)
BERNOULLI = ([F(1, 2), F(1, 2)], [F(3, 4), F(1, 4)], 2)


@pytest.mark.parametrize(
    ("instance", "optimum", "recursive"),
    [
        pytest.param(THREE_TOKENS_TWO_DRAFTS, F(988871, 1000000), F(169277, 200000), id="row 1"),
        pytest.param(THREE_TOKENS_THREE_DRAFTS, F(1), F(207227133, 250000000), id="row 2"),
        pytest.param(TWO_TOKENS_TWO_DRAFTS, F(899031, 1000000), None, id="row 3, i.i.d."),
        pytest.param(BERNOULLI, F(15, 16), F(13, 16), id="row 5"),
    ],
)
def test_gold_rows(instance, optimum, recursive):
    """By the rational oracles, the optimum and recursive rejection."""
    target, draft, k = instance
    assert exact.optimum_iid(draft, target, k) == optimum
    stages = exact.recursive_rejection(draft, target, k)
    assert recursive in (None, stages)
    problem, slack = _problem(*instance), rounding(3, 3)
    assert otm.optimal_acceptance(problem) == pytest.approx(float(optimum), abs=slack)
    assert otm.acceptance(RecursiveRejection(), problem) == pytest.approx(float(stages), abs=slack)


def test_row_5_kseq_on_bernoullis():
    # f(γ) = 1 − (3/4 − 1/(2γ))² − 1/2 − γ/4 on [1, 2]; times −4·4γ² it is 4γ³ + γ² − 12γ + 4.
    problem = _problem(*BERNOULLI)
    gamma = float(otm.verifiers.gamma_star(problem))
    root = [x.real for x in np.roots([4, 1, -12, 4]) if 1 <= x.real <= 2]
    assert len(root) == 1
    assert gamma == pytest.approx(root[0], abs=1e-14)
    assert gamma == pytest.approx(1.390388, abs=5e-7)
    assert otm.acceptance(KSeq(), problem) == pytest.approx(0.847597, abs=5e-7)
    # p_acc = γβ = q₀ + γp₁
    assert otm.acceptance(KSeq(), problem) == pytest.approx(0.5 + gamma / 4, abs=1e-15)


def test_row_6_uniform_distributions():
    for ratio, k in itertools.product([1, 2, 3, 5, 12], [1, 2, 3, 7, 40]):
        draft = otm.examples.uniform(120)
        target = otm.examples.uniform(120 // ratio, vocabulary=120)
        problem, slack = Problem(draft=draft, target=target, law=IID(k)), rounding(120, k)
        value = float(1 - (1 - F(1, ratio)) ** k)
        stated = otm.examples.uniform_optimum(ratio=ratio, k=k)
        assert stated == pytest.approx(value, abs=4e-16), (ratio, k)
        assert otm.optimal_acceptance(problem) == pytest.approx(value, abs=slack), (ratio, k)
        assert otm.acceptance(KSeq(), problem) == pytest.approx(value, abs=slack), (ratio, k)
        # At r = 1 (p = q) γ* = 1 is a k-fold root of f(γ) = −(1 − 1/γ)^k, so it is only found as
        # well as that allows.
        slack = slack if ratio > 1 else slack ** (1 / k)
        gamma = float(otm.verifiers.gamma_star(problem))
        assert gamma == pytest.approx(ratio * value, rel=slack), (ratio, k)


def test_row_7_two_tokens():
    for p, q, k in itertools.product(
        [0.0, 0.063, 0.25, 0.5, 1.0], [0.0, 0.223, 0.5, 0.9, 1.0], [1, 2, 3, 10, 1000]
    ):
        kept = min(F(q), 1 - (1 - F(p)) ** k), min(1 - F(q), 1 - F(p) ** k)
        value = pytest.approx(float(sum(kept)), abs=rounding(2, k))
        pair = {"draft": otm.examples.bernoulli(p), "target": otm.examples.bernoulli(q)}
        assert otm.examples.two_token_optimum(draft=p, target=q, k=k) == value, (p, q, k)
        assert otm.optimal_acceptance(Problem(**pair, law=IID(k))) == value, (p, q, k)


class TestErrata:
    @pytest.mark.parametrize(
        "instance", [THREE_TOKENS_TWO_DRAFTS, THREE_TOKENS_THREE_DRAFTS, BERNOULLI]
    )
    def test_f_of_gamma_decreases(self, instance):
        # SpecTr's main text: increasing; its appendix: decreasing. f(γ) = p_acc(γ) − γβ(γ), β from
        # p_acc = 1 − (1 − β)^k.
        problem = _problem(*instance)
        k, star = problem.law.k, float(otm.verifiers.gamma_star(problem))
        values = []
        for gamma in np.linspace(star, k, 25):
            accepted = otm.acceptance(KSeq(gamma=float(gamma)), problem, by="rule")
            values.append(accepted - gamma * (1 - (1 - accepted) ** (1 / k)))
        assert values[0] == pytest.approx(0, abs=1e-14)
        assert (np.diff(values) < -1e-6).all()
        below = np.linspace(1, star, 25)
        rational = [
            (float(g), exact.kseq(instance[1], instance[0], k, F(float(g)))[0]) for g in below
        ]
        left = [float(acc) - g * (1 - (1 - float(acc)) ** (1 / k)) for g, acc in rational]
        assert (np.diff(left) < 0).all()
        assert left[0] > 0

    def test_membership_acceptance_can_be_larger_above_gamma_star(self):
        # γ* maximises the *rule* acceptance. p = (.0747, .9253), q = (.4597, .5403), k = 5: .8104
        # at γ = 6.16, .7669 at γ* = 3.035.
        draft, target, k = [F(747, 10000), F(9253, 10000)], [F(4597, 10000), F(5403, 10000)], 5
        problem = _problem(target, draft, k)
        star = float(otm.verifiers.gamma_star(problem))
        assert star == pytest.approx(3.035, abs=5e-4)
        rule, member, output = exact.kseq(draft, target, k, F(616, 100))
        assert output == target
        assert otm.acceptance(KSeq(gamma=6.16), problem) == pytest.approx(
            float(member), abs=rounding(2, 5)
        )
        assert otm.acceptance(KSeq(gamma=6.16), problem, by="rule") == pytest.approx(
            float(rule), abs=rounding(2, 5)
        )
        assert otm.acceptance(KSeq(), problem) == pytest.approx(0.7669, abs=1e-4)
        assert float(member) == pytest.approx(0.8104, abs=1e-4)
        assert otm.acceptance(KSeq(), problem, by="rule") > float(rule)
