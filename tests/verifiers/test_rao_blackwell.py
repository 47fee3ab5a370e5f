"""The interval from sampled paths: it holds the exact value, also where running sums cannot resolve
masses.
"""

from __future__ import annotations

import numpy as np
import pytest

import otm
from tests import exact
from tests.tolerance import rounding
from tests.verifiers.rational import recursive_without_replacement


def exact_value(problem: otm.Problem) -> float:
    p, q = exact.exact(problem.draft), exact.exact(problem.target)
    return float(recursive_without_replacement(p, q, problem.law.k)[0])


class TestRaoBlackwell:
    @pytest.mark.parametrize(("num_tokens", "k"), [(4, 2), (6, 4), (12, 5)])
    def test_the_interval_holds_the_exact_value(self, num_tokens: int, k: int) -> None:
        rng = np.random.default_rng(k)
        problem = otm.Problem(
            draft=otm.examples.dirichlet(num_tokens, rng=rng),
            target=otm.examples.dirichlet(num_tokens, rng=rng),
            law=otm.WithoutReplacement(k),
        )
        value = otm.acceptance(otm.RecursiveRejection(), problem)
        # false alarm 1e-9
        found = otm.verifiers.rao_blackwell_acceptance(
            problem, samples=20_000, rng=rng, confidence=1 - 1e-9
        )
        assert found.low <= value <= found.high
        assert found.high - found.low < 0.05
        plain = otm.estimate(
            otm.RecursiveRejection(), problem, samples=20_000, rng=rng, confidence=1 - 1e-9
        )
        assert found.high - found.low < plain.high - plain.low

    def test_masses_that_running_sums_cannot_resolve(self) -> None:
        """Behind a token of mass 1 − 1e-20 the second stage must still see the others; sums of p in
        the order of q/p cannot.
        """
        problem = otm.Problem(
            draft=[1.0, 4e-20, 3e-20, 3e-20],
            target=[0.1, 0.2, 0.5, 0.2],
            law=otm.WithoutReplacement(3),
        )
        value = exact_value(problem)
        assert otm.acceptance(otm.RecursiveRejection(), problem) == pytest.approx(
            value, abs=rounding(4, 3)
        )
        found = otm.verifiers.rao_blackwell_acceptance(
            problem, samples=20_000, rng=np.random.default_rng(0), confidence=1 - 1e-9
        )
        assert found.low <= value <= found.high
        assert found.high - found.low < 0.05

    def test_a_rare_rejection_is_not_estimated_by_none(self) -> None:
        """The first stage rejects with probability 9e-10; samples drawn without regard to that are
        0 but once in 5e8.
        """
        rare = 4.7e-10
        problem = otm.Problem(
            draft=[rare, rare, 1 - 4 * rare, rare, rare],
            target=[2e-19, 7e-19, 1 - 4 * rare, 2 * rare, 2 * rare],
            law=otm.WithoutReplacement(3),
        )
        value = exact_value(problem)
        found = otm.verifiers.rao_blackwell_acceptance(
            problem, samples=200, rng=np.random.default_rng(0), confidence=1 - 1e-9
        )
        assert found.low - 1e-12 <= value <= found.high + 1e-12
        assert found.high - found.low < 1e-9

    @pytest.mark.parametrize("apart", [0, 1])
    def test_equal_to_the_last_place(self, apart: int) -> None:
        rng = np.random.default_rng(apart)
        for _ in range(100):
            num_tokens = int(rng.integers(2, 9))
            p = otm.examples.dirichlet(num_tokens, rng=rng)
            q = np.nextafter(p, rng.integers(0, 2, num_tokens)) if apart else p
            law = otm.WithoutReplacement(int(rng.integers(1, min(num_tokens, 5) + 1)))
            found = otm.verifiers.rao_blackwell_acceptance(
                otm.Problem(draft=p, target=q, law=law), samples=20, rng=rng
            )
            assert found.value == pytest.approx(1.0, abs=rounding(8, 5))

    def test_full_vocabulary_beyond_the_exact_sum(self) -> None:
        rng = np.random.default_rng(0)
        problem = otm.Problem(
            draft=otm.examples.dirichlet(20_000, rng=rng),
            target=otm.examples.dirichlet(20_000, rng=rng),
            law=otm.WithoutReplacement(8),
        )
        found = otm.verifiers.rao_blackwell_acceptance(
            problem, samples=2_000, rng=rng, confidence=1 - 1e-9
        )
        plain = otm.estimate(
            otm.RecursiveRejection(), problem, samples=20_000, rng=rng, confidence=1 - 1e-9
        )
        assert max(found.low, plain.low) <= min(found.high, plain.high)
        assert found.high <= otm.optimal_acceptance(problem)

    def test_refusals(self) -> None:
        problem = otm.Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=otm.IID(2))
        rng = np.random.default_rng(0)
        with pytest.raises(otm.errors.Unsupported, match="without replacement"):
            otm.verifiers.rao_blackwell_acceptance(problem, samples=10, rng=rng)
        good = problem.with_law(otm.WithoutReplacement(2))
        with pytest.raises(otm.errors.InvalidParameter, match="samples"):
            otm.verifiers.rao_blackwell_acceptance(good, samples=1, rng=rng)
