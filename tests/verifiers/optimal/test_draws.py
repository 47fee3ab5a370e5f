"""Draws of the residual in one pass against the inverse of its running sum."""

import numpy as np
import pytest

import otm
from otm._machine.arrays import inverse_cdf
from otm.verifiers.optimal import draws


def agrees(residual, uniforms, drawn):
    """Same token, or one whose share of [0, 1) ends within rounding of the uniform; never one
    without mass.
    """
    assert (residual[drawn] > 0).all()
    ends = np.cumsum(residual) / residual.sum()
    wanted = inverse_cdf(residual, uniforms)
    for d in np.flatnonzero(drawn != wanted):
        low, high = sorted((int(drawn[d]), int(wanted[d])))
        between = np.concatenate([ends[low : low + 1], ends[high - 1 : high]])
        assert np.abs(between - uniforms[d]).max() <= 4 * len(residual) * 2.0**-53


def uniforms_of(rng):
    return np.concatenate([[0.0, 2.0**-60, 0.5, 1 - 2.0**-53], rng.random(300)])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", [np.int16, np.int32])
def test_binned(dtype, kind):
    rng = np.random.default_rng(3)
    for width in (1, 511, 512, 513, 3000):
        p, q = (otm.examples.dirichlet(width, rng=rng, rows=4).astype(dtype) for _ in range(2))
        p[2] = q[2]  # at level 1 nothing is left, and the target is drawn from
        index, level = rng.integers(0, 9, (4, width)).astype(kind), 2 * rng.random((4, 9))
        level[2] = 1.0
        p_sum, q_sum = (a.sum(axis=1, dtype=np.float64) for a in (p, q))
        rows, u = np.array([2, 0]), np.stack([uniforms_of(rng) for _ in range(2)])
        drawn = draws.binned(p, q, p_sum, q_sum, index, level, rows, u)
        for m, r in enumerate(rows):
            scaled = p[r].astype(np.float64) / p_sum[r] * level[r][index[r]]
            residual = np.maximum(q[r].astype(np.float64) / q_sum[r] - scaled, 0.0)
            # A token whose excess is rounding may have some in one form and none in the other.
            residual = np.where(residual > 1e-15, residual, 0.0)
            agrees(residual if residual.sum() > 0 else q[r].astype(np.float64), u[m], drawn[m])


def test_a_rule_draws_one_or_many_from_the_same_law(monkeypatch):
    rng = np.random.default_rng(4)
    p, q = otm.examples.dirichlet(2000, rng=rng, rows=2)
    rule = otm.prepare(otm.Optimal(), otm.Problem(draft=p, target=q, law=otm.IID(3)))
    drafts = np.full((6, 3), int(np.argmin(q / np.maximum(rule.selection_law, 1e-300))))
    uniforms = np.column_stack([rng.random((6, 3)), np.full(6, 1 - 2.0**-53), rng.random(6)])
    output, accepted = rule.verify(drafts, uniforms, None)
    assert not accepted.any()
    agrees(rule.residual, uniforms[:, -1], output)
    monkeypatch.setattr("otm.verifiers.optimal.verifier.compiled", lambda _, seconds: None)
    np.testing.assert_array_equal(
        rule.verify(drafts, uniforms, None)[0], inverse_cdf(rule.residual, uniforms[:, -1])
    )
