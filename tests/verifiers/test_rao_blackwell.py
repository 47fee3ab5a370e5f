"""The interval from sampled paths: it holds the exact value, also where running sums cannot resolve
masses.
"""

import numpy as np
import pytest

import otm
from tests import exact
from tests.tolerance import rounding

RARE = 4.7e-10
INSTANCES = {
    "six tokens": (*otm.examples.dirichlet(6, rng=np.random.default_rng(4), rows=2), 4),
    # Behind a token of mass 1 − 1e-20 the second stage must still see the others; sums of p in the
    # order of q/p cannot.
    "no running sums": ([1.0, 4e-20, 3e-20, 3e-20], [0.1, 0.2, 0.5, 0.2], 3),
    # The first stage rejects with probability 9e-10; samples drawn without regard to that are 0 but
    # once in 5e8.
    "a rare rejection": (
        [RARE, RARE, 1 - 4 * RARE, RARE, RARE],
        [2e-19, 7e-19, 1 - 4 * RARE, 2 * RARE, 2 * RARE],
        3,
    ),
}


class TestRaoBlackwell:
    @pytest.mark.parametrize("name", INSTANCES)
    def test_the_interval_holds_the_exact_value(self, name):
        draft, target, k = INSTANCES[name]
        problem = otm.Problem(draft=draft, target=target, law=otm.WithoutReplacement(k))
        p, q = exact.exact(problem.draft), exact.exact(problem.target)
        value = float(exact.recursive_rejection(p, q, k, distinct=True))
        verifier, rng = otm.RecursiveRejection(), np.random.default_rng(0)
        assert otm.acceptance(verifier, problem) == pytest.approx(value, abs=rounding(len(p), k))
        is_rare = name == "a rare rejection"
        # false alarm 1e-9
        found = otm.verifiers.rao_blackwell_acceptance(
            problem, samples=200 if is_rare else 20_000, rng=rng, confidence=1 - 1e-9
        )
        assert found.low - 1e-12 <= value <= found.high + 1e-12
        width = found.high - found.low
        assert width < (1e-9 if is_rare else 0.05)
        plain = otm.estimate(verifier, problem, samples=20_000, rng=rng, confidence=1 - 1e-9)
        assert width < plain.high - plain.low

    def test_equal_to_the_last_place(self):
        rng = np.random.default_rng(1)
        for trial in range(100):
            num_tokens = int(rng.integers(2, 9))
            p = otm.examples.dirichlet(num_tokens, rng=rng)
            q = np.nextafter(p, rng.integers(0, 2, num_tokens)) if trial % 2 else p
            law = otm.WithoutReplacement(int(rng.integers(1, min(num_tokens, 5) + 1)))
            found = otm.verifiers.rao_blackwell_acceptance(
                otm.Problem(draft=p, target=q, law=law), samples=20, rng=rng
            )
            assert found.value == pytest.approx(1.0, abs=rounding(8, 5))

    def test_the_width_where_nothing_varies(self):
        """One draft is rejected with TV on every path: Bernstein's second term alone is left."""
        problem = otm.Problem(draft=[0.5, 0.5], target=[0.2, 0.8], law=otm.WithoutReplacement(1))
        found = otm.verifiers.rao_blackwell_acceptance(
            problem, samples=1_000, rng=np.random.default_rng(0), confidence=0.9
        )
        width = 0.3 * 7 * np.log(4 / 0.1) / (3 * 999)
        assert (found.low, found.value, found.high) == pytest.approx(
            (0.7 - width, 0.7, 0.7 + width)
        )

    def test_refusals(self):
        problem = otm.Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=otm.IID(2))
        rng = np.random.default_rng(0)
        with pytest.raises(otm.errors.Unsupported, match="without replacement"):
            otm.verifiers.rao_blackwell_acceptance(problem, samples=10, rng=rng)
        good = problem.with_law(otm.WithoutReplacement(2))
        with pytest.raises(otm.errors.InvalidParameter, match="samples"):
            otm.verifiers.rao_blackwell_acceptance(good, samples=1, rng=rng)
