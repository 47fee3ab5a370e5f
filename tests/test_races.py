"""The quadrature of the races: probabilities of every scale."""

import numpy as np
import pytest
from scipy.stats import poisson

from otm.races import exponential_nodes
from tests.verifiers.race_references import INTEGRATED


@pytest.mark.parametrize("k", [1, 2, 8, 64])
def test_poisson_probabilities_of_every_scale(k):
    """E Pr(Poisson(g t) ≤ k − 1) = 1 − (g/(1+g))^k for t ~ Exp(1): k arrivals at most, growth
    (1/cos φ)^{k−1}.
    """
    t, weights = exponential_nodes(lambda c: -(k - 1) * np.log(c))
    g = 10.0 ** np.arange(-6, 13)
    wanted = -np.expm1(k * np.log(g / (1 + g)))
    np.testing.assert_allclose(
        poisson.cdf(k - 1, np.outer(g, t)) @ weights, wanted, rtol=0, atol=INTEGRATED
    )
    if k == 8:  # a coarser rule would be noticed
        coarse = 4 * poisson.cdf(7, 3 * t[::4]) @ weights[::4]
        assert abs(coarse - (1 - 0.75**8)) > 100 * INTEGRATED
