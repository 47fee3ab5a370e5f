"""Both frontiers against programs without structure, certificates, and the shape of the curves."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import otm
from otm import IID, Problem, WithoutReplacement
from otm.divergences import divergence_term
from tests import strategies
from tests.lossy.programs import program, random_problems

# the certificates of the taut string, each a sum of O(V) terms of size at most 1 times O(1/√D)
CLOSED = 1e-11


class TestKullbackLeibler:
    def test_against_the_program_over_couplings(self):
        rng = np.random.default_rng(3)
        for problem in random_problems(4, 12, max_tokens=4):
            budget = float(rng.choice([0.01, 0.1, 0.4]) * (0.5 + rng.random()))
            live = problem.target > 0
            q = problem.target[live]
            best = program(problem, lambda law: q @ (np.log(q) - cp.log(law[live])) <= budget)  # noqa: B023
            found = otm.lossy.kl_frontier(problem, kl=budget)
            assert found.value == pytest.approx(best, abs=2e-7), (problem, budget)

    @settings(max_examples=150)
    @given(
        pair=strategies.pairs(max_tokens=7),
        k=st.integers(1, 6),
        budget=st.one_of(
            st.just(0.0), st.floats(1e-9, 4.0), st.sampled_from([1e-15, 1e-12, 0.01, 0.3, 1.0])
        ),
    )
    def test_the_certificates_meet_for_iid_drafts(self, pair, k, budget):
        problem = Problem(draft=pair[0], target=pair[1], law=IID(k))
        found = otm.lossy.kl_frontier(problem, kl=budget)
        assert -CLOSED <= found.upper - found.lower <= CLOSED
        assert found.kl <= budget * (1 + 1e-9) + 1e-15
        assert found.law.sum() == pytest.approx(1, abs=1e-14)
        # The lower certificate is the acceptance of this very output law.
        reached = otm.optimal_acceptance(Problem(draft=pair[0], target=found.law, law=IID(k)))
        assert found.lower == pytest.approx(reached, abs=1e-14)
        if k == 1:
            value = otm.acceptance(otm.Mentored(budget), problem)
            assert found.value == pytest.approx(value, abs=1e-12)

    def test_target_mass_that_is_never_drafted_and_tiny_is_kept(self):
        draft, target = np.array([0, 1, 1, 4]) / 6, np.array([2e-16 * 6, 1, 1, 4]) / 6
        found = otm.lossy.kl_frontier(Problem(draft=draft, target=target, law=IID(3)), kl=0.0)
        assert found.kl <= 1e-15
        assert found.lower == pytest.approx(1.0, abs=1e-15)

    @settings(max_examples=60)
    @given(pair=strategies.pairs(max_tokens=6), data=st.data(), budget=st.floats(0, 2))
    def test_the_certificates_meet_without_replacement_too(self, pair, data, budget):
        k = data.draw(st.integers(1, len(pair[0])))
        found = otm.lossy.kl_frontier(
            Problem(draft=pair[0], target=pair[1], law=WithoutReplacement(k)), kl=budget
        )
        assert -CLOSED <= found.upper - found.lower <= 1e-10

    def test_three_hundred_tokens_against_the_cone_program(self):
        rng = np.random.default_rng(8)
        p = otm.from_logits(2 * rng.normal(size=300))
        q = otm.from_logits(np.log(p) + rng.normal(size=300), top_k=200)
        problem = Problem(draft=p, target=q, law=IID(4))
        solved = otm.lossy.kl_frontier_program(problem, kl=0.05).problem().solve(solver="CLARABEL")
        # 1e-6: the solver's default tolerance of 1e-8 on the gap, times a sensitivity of a few
        # tens.
        assert otm.lossy.kl_frontier(problem, kl=0.05).value == pytest.approx(solved, abs=1e-6)

    def test_the_program_takes_further_constraints(self):
        problem = Problem(draft=[0.5, 0.3, 0.2], target=[0.2, 0.2, 0.6], law=IID(2))
        stated = otm.lossy.kl_frontier_program(problem, kl=0.2)
        free = otm.lossy.kl_frontier(problem, kl=0.2).value
        kept = stated.problem(stated.law[2] >= 0.55).solve(solver="CLARABEL")
        assert otm.optimal_acceptance(problem) - 1e-7 <= kept < free - 1e-3

    def test_full_vocabulary(self):
        rng = np.random.default_rng(9)
        p = otm.from_logits(3 * rng.normal(size=128_256))
        q = otm.from_logits(np.log(p) + rng.normal(size=128_256))
        for k in (1, 4):
            found = otm.lossy.kl_frontier(Problem(draft=p, target=q, law=IID(k)), kl=0.05)
            assert abs(found.upper - found.lower) <= 1e-10  # running sums over 128,256 tokens
            assert found.kl == pytest.approx(0.05, rel=1e-9)

    def test_refusals(self):
        with pytest.raises(otm.errors.Unsupported, match=r"Greedy\(k=2\).*tv_frontier"):
            otm.lossy.kl_frontier(
                Problem(draft=[0.5, 0.5], target=[0.4, 0.6], law=otm.Greedy(2)), kl=0.1
            )
        with pytest.raises(
            otm.errors.TooLarge,
            match=r"4,096 tokens; there are 5,000.*Call otm\.lossy\.kl_frontier",
        ):
            otm.lossy.kl_frontier_program(
                Problem(
                    draft=otm.examples.zipf(5000), target=otm.examples.uniform(5000), law=IID(2)
                ),
                kl=0.1,
            )


@pytest.mark.parametrize(
    ("draft", "target", "budget"),
    [
        ([1e-300, 0.0, 1.0], [1e-300, 5e-324, 1.0], 50.0),
        ([0.0, 1.0, 0.0], [0.0, 1.0, 5e-324], 0.0),
        (
            [7.62e-04, 0.997714, 7.62e-04, 7.62e-04],
            [1.0, 5e-324, 5e-324, 1e-104],
            50.0,
        ),
    ],
    ids=["not drafted", "no budget", "hull"],
)
def test_the_smallest_masses_of_the_target_keep_a_share(draft, target, budget):
    """A share that underflowed to 0 made the divergence infinite; products of such masses pooled
    steps that belong apart.
    """
    for k in (1, 2):
        problem = Problem(draft=draft, target=target, law=IID(k))
        found = otm.lossy.kl_frontier(problem, kl=budget)
        assert found.kl <= budget * (1 + 1e-12) + 1e-15
        assert found.upper - found.lower <= CLOSED
    law = otm.lossy.output_law(otm.Mentored(budget), problem.with_law(IID(1)))
    assert float(divergence_term(np.asarray(target), law).sum()) <= budget * (1 + 1e-12) + 1e-15


class TestTotalVariation:
    def test_against_the_program(self):
        rng = np.random.default_rng(0)
        for number, problem in enumerate(random_problems(1, 12, max_tokens=4)):
            if number % 5 == 0:
                problem = problem.with_law(otm.Greedy(2))
            distance = float(rng.random() * 0.3)
            best = program(problem, lambda law: cp.norm1(law - problem.target) <= 2 * distance)  # noqa: B023
            # 1e-7: the interior-point solver on a degenerate linear program.
            found = otm.lossy.tv_frontier(problem, tv=distance)
            assert found == pytest.approx(best, abs=1e-7)

    def test_ends_batches_and_parameters(self):
        rng = np.random.default_rng(2)
        p, q = (otm.examples.dirichlet(6, rng=rng, rows=3) for _ in range(2))
        problem = Problem(draft=p, target=q, law=IID(2))
        np.testing.assert_array_equal(
            otm.lossy.tv_frontier(problem, tv=0.0), otm.optimal_acceptance(problem)
        )
        np.testing.assert_array_equal(otm.lossy.tv_frontier(problem, tv=1.0), np.ones(3))
