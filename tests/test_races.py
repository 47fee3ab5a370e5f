"""The quadrature of the races: probabilities of every scale, and that a coarser rule would be
noticed.
"""

from __future__ import annotations

import numpy as np
import pytest

from otm.races import exponential_nodes
from tests.verifiers.race_references import INTEGRATED


class TestQuadrature:
    @pytest.mark.parametrize("k", [1, 2, 8, 64])
    def test_poisson_probabilities_of_every_scale(self, k: int) -> None:
        # E Pr(Poisson(g t) ≤ k − 1) = 1 − (g/(1+g))^k for t ~ Exp(1): k arrivals at most, growth
        # (1/cos φ)^{k−1}.
        t, weights = exponential_nodes(lambda c: -(k - 1) * np.log(c))
        from scipy.stats import poisson

        for g in 10.0 ** np.arange(-6, 13):
            wanted = -np.expm1(k * np.log(g / (1 + g)))
            assert weights @ poisson.cdf(k - 1, g * t) == pytest.approx(wanted, abs=INTEGRATED)

    def test_a_coarser_rule_would_be_noticed(self) -> None:
        t, weights = exponential_nodes(lambda c: -7 * np.log(c))
        from scipy.stats import poisson

        coarse = abs(4 * weights[::4] @ poisson.cdf(7, 3 * t[::4]) - (1 - 0.75**8))
        assert coarse > 100 * INTEGRATED
