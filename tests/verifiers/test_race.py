"""The race: exact values against rational references that share no code with them."""

import itertools
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import otm
from otm import IID, MinHash, Problem, Race, WithoutReplacement, races
from otm.overlap.curve import Containment
from otm.overlap.rows import SHORTEST_BINNED
from otm.verifiers import race
from tests import exact, strategies
from tests.overlap.instances import problems
from tests.verifiers.race_references import INTEGRATED


def race_exactly(p, q, k):
    """Expand the Poisson-binomial probabilities into exponentials, each integrated in closed form:
    rational, 3^V terms.
    """
    value = Fraction(0)
    for i in range(len(p)):
        if p[i] == 0:
            continue
        rates = [max(q[i] * p[j] / p[i] - q[j], Fraction(0)) for j in range(len(p)) if j != i]
        for size in range(min(k, len(rates) + 1)):
            for overtaking in itertools.combinations(range(len(rates)), size):
                stay = 1 + sum((r for j, r in enumerate(rates) if j not in overtaking), Fraction(0))
                for late in exact.subsets(size):
                    both = stay + sum((rates[overtaking[j]] for j in late), Fraction(0))
                    value += q[i] * (-1) ** len(late) / both
    return value


class TestRaceValue:
    @settings(max_examples=60)
    @given(pair=strategies.pairs(max_tokens=5), data=st.data())
    def test_against_rational_arithmetic(self, pair, data):
        p, q = pair
        k = data.draw(st.integers(1, len(p)))
        wanted = float(race_exactly(exact.exact(p), exact.exact(q), k))
        for law in [WithoutReplacement(k), IID(1)][: 2 if k == 1 else 1]:
            assert otm.acceptance(Race(), Problem(draft=p, target=q, law=law)) == pytest.approx(
                wanted, abs=INTEGRATED
            )

    def test_tiny_masses(self):
        p, q = np.array([0.6, 0.3, 1e-300, 0.1, 1e-8]), np.array([0.2, 1e-300, 0.5, 1e-12, 0.3])
        p, q = p / p.sum(), q / q.sum()
        value = otm.acceptance(Race(), Problem(draft=p, target=q, law=WithoutReplacement(2)))
        wanted = float(race_exactly(exact.exact(p), exact.exact(q), 2))
        assert value == pytest.approx(wanted, abs=INTEGRATED)

    def test_beyond_512_draftable_tokens_is_refused_with_what_to_call(self):
        p = otm.examples.zipf(600)
        problem = Problem(draft=p, target=otm.examples.uniform(600), law=WithoutReplacement(2))
        with pytest.raises(
            otm.errors.TooLarge,
            match=r"512 draftable.*there are 600.*poisson_representation_lower.*otm\.estimate",
        ):
            otm.acceptance(Race(), problem)
        restricted = Problem(
            draft=otm.normalise(np.where(np.arange(600) < 40, p, 0)),
            target=otm.examples.uniform(600),
            law=problem.law,
        )
        assert 0 < otm.acceptance(Race(), restricted) < 40 / 600


@pytest.mark.parametrize("way", ["compiled", "arrays"])
def test_long_rows_against_the_sum_as_written(way, monkeypatch):
    """h = 1/Σ_j max(q_i p_j/(c p_i), q_j), the winner's own term being q_i, in extended precision;
    rows in which ratios are ∞ or 0/0, or fill one bin.
    """
    if way == "arrays":
        monkeypatch.setattr(races, "compiled", lambda _, seconds: None)
    sizes = [*(Containment(c=c) for c in (1.0, 1.5, 40.0)), Containment(k=8)]
    for name, p, q in problems(SHORTEST_BINNED, 5):
        possible = np.flatnonzero((p > 0) & (q > 0))
        wide, own = p.astype(np.longdouble), (np.arange(len(possible)), possible)
        found = races.race_match(p, q, sizes)
        for size, value in zip(sizes, found, strict=True):
            others = np.maximum(q[possible, None] / wide[possible, None] * wide / size.c, q)
            others[own] = q[possible]
            missed = (1 - 1 / others.sum(axis=1)) ** size.k
            assert abs(value - (q[possible] * (1 - missed)).sum()) <= 1e-13, (name, size)


def test_the_strip_of_the_quadrature_holds_what_is_integrated(
    monkeypatch,
):
    """Many tokens that overtake rarely: Pr(Poisson(t) ≤ 1) = e^{−t} (1 + t) on a ray."""
    asked = mock.Mock(wraps=races.exponential_nodes)
    monkeypatch.setattr(race, "exponential_nodes", asked)
    problem = Problem(draft=[0.5, 0.3, 0.2], target=[0.2, 0.3, 0.5], law=WithoutReplacement(2))
    assert otm.coupling(Race(), problem).acceptance == pytest.approx(
        otm.acceptance(Race(), problem), abs=INTEGRATED
    )
    cosine = 0.1
    t = np.linspace(0.0, 50.0, 500) * (cosine + 1j * np.sqrt(1 - cosine**2))
    grown = np.log(np.abs(np.exp(-t) * (1 + t)).max())
    assert all(1.0 < grown <= call.args[0](cosine) for call in asked.call_args_list)


def test_only_what_is_drafted_is_coupled():
    """Distance .5: [diag(min) + (p − q)₊ qᵀ + p ((q − p)₊)ᵀ] / 1.5, no row for token 1."""
    joint = otm.coupling(MinHash(), Problem(draft=[0.5, 0, 0.5], target=[0, 0.5, 0.5], law=IID(1)))
    assert joint.drafts.tolist() == [[0], [2]]
    wanted = np.array([[0, 0.5, 0.25], [0, 0.25, 0.5]]) / 1.5
    np.testing.assert_allclose(joint.joint.toarray(), wanted, atol=1e-15)


@pytest.mark.parametrize("smallest", [1e-307, 5e-324])
def test_coupling_where_likelihood_ratios_overflow(smallest):
    """What happens among the last tokens depends on the ratios of their masses only, 4 to 3 here,
    however small they are; and ratios of 1e250 and 1e252 are two joining times, not one.
    """
    joints = []
    for draft, target in (
        ([1, 4 * 2.0**-500, 3 * 2.0**-500], [0.2, 0.4, 0.4]),
        ([1, 4 * smallest, 3 * smallest], [0.2, 0.4, 0.4]),
        ([1, 1e-250, 1e-251, 1e-252], np.array([3, 2, 3, 3]) / 11),
    ):
        problem = Problem(draft=draft, target=target, law=WithoutReplacement(2))
        joint = otm.coupling(Race(), problem)
        assert joint.acceptance == pytest.approx(otm.acceptance(Race(), problem), abs=1e-9)
        assert joint.acceptance <= otm.optimal_acceptance(problem) + 1e-9
        np.testing.assert_allclose(joint.output_marginal, target, atol=1e-9)
        joints.append(joint.joint.toarray())
    np.testing.assert_allclose(joints[1], joints[0], atol=1e-9)
