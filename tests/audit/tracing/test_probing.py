"""Probing a black box: the laws that tracing finds, and what the check at random points is for."""

import numpy as np
import pytest

import otm
from otm import audit
from otm.audit.standard_problems import INSTANCES
from otm.audit.tracing.probing import GRID, probe
from tests.audit.callables import as_floats, maximal


def problem_of(draft, target):
    return otm.Problem(draft=draft, target=target, law=otm.IID(1))


@pytest.mark.parametrize("name", ["two tokens", "truncated target", "later drafts matter"])
def test_a_black_box_is_found_to_do_the_same(name):
    problem = problem_of(*INSTANCES[name])
    seen, hidden = audit.exact(maximal, problem), audit.exact(as_floats(maximal), problem)
    assert (seen.method, hidden.method) == ("traced", "probed")
    assert (hidden.verdict, hidden.error) == ("lossless", 0.0)
    np.testing.assert_allclose(
        hidden.coupling.joint.toarray(), seen.coupling.joint.toarray(), atol=1e-15
    )


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("low", "high"), [(0.1, 0.1 + 1 / GRID), (2.4 / GRID, 2.6 / GRID)])
def test_breakpoints_on_each_axis_are_found_to_the_last_bit(axis, low, high):
    """As wide as the grid, or narrower around the middle of one of its cells."""

    def inside(u):
        assert len(u) == 2
        return bool(low <= u[axis] < high)

    assert probe(inside, 2).law().mass[True] == pytest.approx(high - low, abs=1e-15)


def test_a_black_box_with_a_cell_too_narrow_is_not_called_lossless():
    """At resolution 1/64 a cell of 1/200 may hide; among 256 random points some are likely to fall
    into it.
    """

    def striped(p, q, drafts, uniforms):
        return int(drafts[0]) ^ (int(np.float64(uniforms[0]) * 200) % 2 == 0)

    result = audit.exact(striped, problem_of([0.5, 0.5], [0.5, 0.5]))
    assert result.verdict != "lossless" or result.cells > 100


def test_randomness_of_its_own_is_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(otm.errors.InvalidParameter, match=r"otm\.audit\.sampled"):
        audit.exact(lambda p, q, d, u: int(rng.integers(2)), problem_of([0.5, 0.5], [0.2, 0.8]))


@pytest.mark.parametrize("mass", [5e-4, 3e-3, 6e-3])
def test_a_lossless_one_with_a_narrow_cell_is_not_accused(mass):
    """Token 1 with probability .4 · q(1)/.4 = q(1): the cells are .00125, .0075 and .015 wide; the
    grid's first midpoint is 1/128, which the last one holds.
    """
    result = audit.exact(
        lambda p, q, d, u: int(np.float64(u[0]) < 0.4 and np.float64(u[1]) * 0.4 < q[1]),
        problem_of([0.6, 0.4], [1.0 - mass, mass]),
    )
    assert result.method == "probed"
    missed = result.total_variation <= result.unproved + result.tolerance
    assert result.verdict == "lossless" or (result.verdict == "undecided" and missed)


def test_random_narrow_cells_accuse_nobody():
    """Token 1 in [a, a + w): where the grid misses it, the law is wrong by w, up to 1/64."""
    rng = np.random.default_rng(4)
    found = {
        audit.exact(
            lambda p, q, d, u, a=start, w=width: int(a <= np.float64(u[0]) < a + w),
            problem_of([0.5, 0.5], [1.0 - width, width]),
            tolerance=1e-12,
        ).verdict
        for start, width in zip(rng.random(8) * 0.98, rng.random(8) / 64, strict=True)
    }
    assert found == {"lossless", "undecided"}


def test_a_small_fault_is_proved_by_more_points():
    """Token 0 with 1/2 + .008 for 1/2: below the 1.8 % that 1,200 points leave unproved, above the
    .5 % that 4,800 do (no prediction fails).
    """
    problem = problem_of([0.5, 0.5], [0.5, 0.5])
    result = audit.exact(lambda p, q, d, u: int(np.float64(u[0]) >= 0.508), problem)
    assert result.verdict == "not lossless"
    assert result.total_variation == pytest.approx(0.008, abs=1e-15)
    assert result.unproved == pytest.approx(0.0045, abs=1e-4)


def test_drafts_count_by_their_probability():
    """What a draft of probability 1e-3 does wrongly is at most 1e-3 of everything, however much
    of its cube it is.
    """
    hidden = as_floats(
        lambda p, q, d, u: int(d[0]) if d[0] == 0 or int(np.float64(u[0]) * 400) % 2 else 0
    )
    assert audit.exact(hidden, problem_of([0.999, 0.001], [0.999, 0.001])).error < 0.02
