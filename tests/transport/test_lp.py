"""The optimum six ways on random instances: the cut, the program on sets, the literal program by
HiGHS and by cvxpy, POT, and brute force over all token sets.
"""

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from scipy.optimize import linprog

import otm
from otm.drafts.base import enumerate_drafts, members
from tests import exact, strategies
from tests.tolerance import CERTIFIED_GAP, rounding


def literal_program(problem):
    """SpecTr's program (4) over Ω^k × Ω as it is printed, by HiGHS, without the library's edges."""
    table = enumerate_drafts(problem.law, problem.draft)
    size, num_tokens = len(table.mass), problem.num_tokens
    miss = ~members(table.tokens, num_tokens)
    by_draft = np.kron(np.eye(size), np.ones(num_tokens))
    by_output = np.tile(np.eye(num_tokens), size)
    # One equality is redundant, and totals that differ by rounding make HiGHS call all of them
    # infeasible: the last one goes.
    solved = linprog(
        miss.reshape(-1).astype(float),
        A_eq=np.vstack([by_draft, by_output])[:-1],
        b_eq=np.concatenate([table.mass, problem.target])[:-1],
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    return 1.0 - solved.fun


@settings(max_examples=30)  # powers of fractions are slow
@given(strategies.iid_problems(max_tokens=5, max_k=1))
def test_the_cut_for_many_drafts(problem):
    """k ≫ V, on both sides of the switch from multiplied to exponentiated powers at k = 64."""
    counts = [1, 2, 17, 64, 65, 300, 100_000]
    values = otm.optimal_acceptance_curve(problem, k=counts)
    for k, value in zip(counts, values, strict=True):
        slack, here = rounding(problem.num_tokens, k), problem.with_law(otm.IID(k))
        if k <= 300:
            p, q = exact.exact(problem.draft), exact.exact(problem.target)
            assert abs(value - float(exact.optimum_iid(p, q, k))) <= slack, k
        # The curve multiplies powers on from the previous k; one k alone squares: equal to
        # rounding.
        assert abs(value - otm.optimal_acceptance(here)) <= slack, k
    assert (np.diff(values) >= -rounding(problem.num_tokens, 64)).all()
    # SpecTr, Lemma 1: nothing exceeds Q(supp p), and k → ∞ gets there as soon as (1 − p_min)^k is
    # negligible.
    limit, slack = otm.bounds.support_limit_upper(problem), rounding(problem.num_tokens, 64)
    assert (values <= limit + slack).all()
    smallest = problem.draft[problem.draft > 0].min()
    assert values[-1] >= limit - problem.num_tokens * (1 - smallest) ** 100_000 - slack


@pytest.mark.parametrize("seed", range(12))
def test_cut_and_programs_agree(seed):
    # The ninth has totals that differ in the last place, which a solver once called infeasible.
    rng = np.random.default_rng([1, seed])
    num_tokens, k = int(rng.integers(2, 7)), int(rng.integers(1, 4))
    concentration = [0.1, 0.5, 2.0][seed % 3]
    rows = otm.examples.dirichlet(num_tokens, rng=rng, rows=2, concentration=concentration)
    problem = otm.Problem(draft=rows[0], target=rows[1], law=otm.IID(k))
    p, q = exact.exact(problem.draft), exact.exact(problem.target)
    value, slack = float(exact.optimum_iid(p, q, k)), rounding(num_tokens, k)
    assert otm.optimal_acceptance(problem) == pytest.approx(value, abs=slack)
    assert literal_program(problem) == pytest.approx(value, abs=CERTIFIED_GAP)
    for method in ("sets", "sequences"):
        solved = otm.optimum(problem, method=method)
        assert solved.lower - slack <= value <= solved.upper + slack
        assert (solved.gap <= CERTIFIED_GAP, solved.method) == (True, method)
    program = otm.transport.optimum_program(problem)
    # HiGHS's default feasibility tolerance is 1e-7 in absolute terms.
    assert program.problem().solve(solver="HIGHS") == pytest.approx(value, abs=1e-7)
    assert program.problem().is_dcp()
    table = enumerate_drafts(problem.law, problem.draft)  # POT on the dense membership cost
    cost = 1.0 - members(table.tokens, num_tokens)
    mass = table.mass / table.mass.sum(), problem.target / problem.target.sum()
    moved = ot.emd2(*mass, cost, numItermax=1_000_000)
    assert 1.0 - moved == pytest.approx(value, abs=CERTIFIED_GAP)


@pytest.mark.parametrize(
    ("num_tokens", "k", "method"), [(24, 3, "sets"), (7, 3, "sequences"), (60, 2, "sets")]
)
def test_sizes_that_go_to_the_interior_point_method(num_tokens, k, method):
    rng = np.random.default_rng(num_tokens)
    rows = otm.examples.dirichlet(num_tokens, rng=rng, rows=2, concentration=0.5)
    problem = otm.Problem(draft=rows[0], target=rows[1], law=otm.IID(k))
    solved = otm.optimum(problem, method=method)
    value = otm.optimal_acceptance(problem)
    assert solved.lower - 1e-12 <= value <= solved.upper + 1e-12
    assert solved.gap <= CERTIFIED_GAP
    T = solved.cut
    assert 1 + problem.target[T].sum() - problem.draft[T].sum() ** k == pytest.approx(
        value, abs=CERTIFIED_GAP
    )
    np.testing.assert_allclose(solved.coupling.output_marginal, problem.target, atol=1e-12)
    assert solved.coupling.acceptance == pytest.approx(value, abs=CERTIFIED_GAP)


@pytest.mark.parametrize(
    "law", [otm.IID(3), otm.WithoutReplacement(3), otm.Greedy(3), otm.TopK(2)], ids=str
)
def test_the_lifted_flow_is_an_optimum_of_the_literal_program(law):
    rng = np.random.default_rng(2)
    draft, target = otm.examples.dirichlet(6, rng=rng, rows=2, concentration=0.5)
    problem = otm.Problem(draft=draft, target=target, law=law)
    by_sets, lifted = otm.optimum(problem), otm.optimum(problem, method="sequences")
    assert lifted.value == pytest.approx(by_sets.value, abs=CERTIFIED_GAP)
    coupling = lifted.coupling
    np.testing.assert_allclose(coupling.draft_marginal, lifted.drafts.mass, atol=1e-12)
    np.testing.assert_allclose(coupling.output_marginal, target, atol=1e-12)
    assert coupling.acceptance == pytest.approx(lifted.value, abs=CERTIFIED_GAP)
    # Sequences of one set share its conditional law.
    given_draft = coupling.joint.toarray() / coupling.draft_marginal[:, None]
    accepted = np.where(members(lifted.drafts.tokens, 6), given_draft, 0.0)
    for number in range(len(lifted.sets.mass)):
        of_set = accepted[lifted.sets.of_sequence == number]
        np.testing.assert_allclose(of_set, of_set[:1].repeat(len(of_set), axis=0), atol=1e-9)


def test_extra_constraints_lower_the_value_as_they_should():
    # Forbidding y = 0 as an output of drafts (0, 0) takes away exactly what the optimum puts there
    # beyond what is free.
    problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))
    program = otm.transport.optimum_program(problem)
    both_zero = int(np.flatnonzero((program.drafts == 0).all(axis=1))[0])
    value = program.problem(program.plan[both_zero, 0] == 0).solve(solver="HIGHS")
    # By hand: (0,0) has mass 9/16, so all of token 1's ½ goes there and 1/16 of the row is left,
    # which must output 0: infeasible.
    assert value == -np.inf
    value = program.problem(program.plan[both_zero, 0] <= 1 / 4).solve(solver="HIGHS")
    # At least 9/16 − 1/4 = 5/16 of row (0,0) outputs 1, a miss each; everything else can hit: 1 −
    # 5/16.
    assert value == pytest.approx(11 / 16, abs=1e-7)


def test_real_size_against_an_independent_scan():
    # V = 128,256: the prefix scan in extended precision, without the library's order of operations.
    rng = np.random.default_rng(0)
    V = 128_256
    p, q = (otm.examples.dirichlet(V, rng=rng, concentration=0.05) for _ in range(2))
    q = 0.7 * p + 0.3 * q
    q /= q.sum()
    counts = (1, 2, 8, 64, 300)
    values = otm.optimal_acceptance_curve(otm.Problem(draft=p, target=q, law=otm.IID(1)), k=counts)
    wide_p, wide_q = p.astype(np.longdouble), q.astype(np.longdouble)
    with np.errstate(divide="ignore", invalid="ignore"):
        order = np.argsort(np.where(p > 0, wide_q / wide_p, np.inf), kind="stable")
    P = np.concatenate([[0], np.cumsum(wide_p[order] / wide_p.sum())])
    Q = np.concatenate([[0], np.cumsum(wide_q[order] / wide_q.sum())])
    for k, value in zip(counts, values, strict=True):
        # Running sums of n masses err by at most n·u·(their total), in practice √n of that: V·u =
        # 1.4e-11, √V·u = 4e-14.
        assert float(1 + (Q - P**k).min()) == pytest.approx(float(value), abs=1e-12), k


@pytest.mark.parametrize(
    ("draft", "k"),
    [([1.0, 1e-104], 3), ([1e-40, 0.6, 0.4], 8), ([1e-162, 0.5, 0.5], 2)],
    ids=["1e-312", "1e-320", "1e-324"],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_set_of_subnormal_mass_has_a_plan(draft, k, dtype):
    target = np.full(len(draft), 1 / len(draft), dtype=dtype)
    problem = otm.Problem(draft=np.asarray(draft, dtype=dtype), target=target, law=otm.IID(k))
    plan = otm.prepare(otm.TransportPlan(), problem).solved.plan.toarray()
    assert (plan >= 0).all()
    assert plan.sum(axis=1).max() <= 1 + 1e-9
    assert otm.acceptance(otm.TransportPlan(), problem) == pytest.approx(
        otm.optimal_acceptance(problem), abs=1e-9
    )
    np.testing.assert_allclose(
        otm.coupling(otm.TransportPlan(), problem).output_marginal, target, atol=1e-7
    )
