"""Relative entropies of what is partly known."""

from __future__ import annotations

import numpy as np

from otm.divergences import kl_divergence


def test_relative_entropy_by_its_curve() -> None:
    # With shifts 0 the integral that bounds the relative entropy from below is the relative entropy.
    from otm.partial.distances import _shifted_kl

    rng = np.random.default_rng(12)
    p, q = rng.dirichlet(np.ones(6), size=20), rng.dirichlet(np.ones(6), size=20)
    none = np.zeros(20)
    np.testing.assert_allclose(_shifted_kl(p, q, none, none), kl_divergence(draft=p, target=q), atol=1e-12)
    assert (_shifted_kl(p, q, none + 0.01, none + 0.02) < kl_divergence(draft=p, target=q)).all()
    np.testing.assert_array_equal(_shifted_kl(p, p, none, none), none)
