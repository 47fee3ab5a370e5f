"""Probing a black box: the laws that tracing finds, and what the check at random points is for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import otm
import otm.tracing.probing
from otm import audit
from otm.audit.standard_problems import INSTANCES
from otm.tracing import probing
from tests.audit.callables import as_floats, maximal


@pytest.mark.parametrize("name", ["two tokens", "truncated target", "later drafts matter"])
def test_a_black_box_is_found_to_do_the_same(name: str) -> None:
    draft, target = INSTANCES[name]
    problem = otm.Problem(draft=draft, target=target, law=otm.IID(1))
    seen, hidden = audit.exact(maximal, problem), audit.exact(as_floats(maximal), problem)
    assert (seen.method, hidden.method, hidden.verdict, hidden.error) == (
        "traced",
        "probed",
        "lossless",
        0.0,
    )
    np.testing.assert_allclose(
        hidden.coupling.joint.toarray(), seen.coupling.joint.toarray(), atol=1e-15
    )


def test_a_black_box_with_a_cell_too_narrow_is_not_called_lossless() -> None:
    """At resolution 1/64 a cell of 1/200 may hide; among 256 random points some are likely to fall
    into it.
    """
    problem = otm.Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=otm.IID(1))

    def striped(p: Any, q: Any, drafts: Any, uniforms: Any) -> int:
        u = float(uniforms[0])
        return int(drafts[0]) if int(u * 200) % 2 else 1 - int(drafts[0])

    result = audit.exact(striped, problem)
    assert result.verdict != "lossless" or result.cells > 100


def test_randomness_of_its_own_is_refused() -> None:
    rng = np.random.default_rng(0)
    problem = otm.Problem(
        draft=[0.5, 0.3, 0.15, 0.05], target=[0.2, 0.35, 0.2, 0.25], law=otm.IID(1)
    )
    with pytest.raises(otm.errors.InvalidParameter, match=r"otm\.audit\.sampled"):
        audit.exact(lambda p, q, d, u: int(rng.integers(4)), problem)


class TestWhatProbingDoesNotSee:
    """A lossless black box with a narrow cell: the cell is not found, and the volume not proved
    must not pass for a fault.
    """

    @staticmethod
    def narrow(p: Any, q: Any, drafts: Any, uniforms: Any) -> int:
        """Token 1 with probability .4 · q(1)/.4 = q(1), in a cell q(1)/.4 wide."""
        return int(float(uniforms[0]) < 0.4 and float(uniforms[1]) * 0.4 < q[1])

    @pytest.mark.parametrize("mass", [5e-4, 3e-3, 6e-3])
    def test_a_lossless_one_is_not_accused(self, mass: float) -> None:
        """The cells are .00125, .0075 and .015 wide; the grid's first midpoint is 1/128, which the
        last one holds.
        """
        problem = otm.Problem(draft=[0.6, 0.4], target=[1.0 - mass, mass], law=otm.IID(1))
        result = audit.exact(self.narrow, problem)
        assert result.method == "probed"
        assert result.verdict in ("lossless", "undecided")
        assert (
            result.verdict == "lossless"
            or result.total_variation <= result.unproved + result.tolerance
        )

    def test_random_narrow_cells_accuse_nobody(self) -> None:
        """Token 1 in [a, a + w): where the grid misses it, the law is wrong by w, up to 1/64."""
        rng = np.random.default_rng(4)
        found = []
        for start, width in zip(rng.random(8) * 0.98, rng.random(8) / 64, strict=True):
            problem = otm.Problem(draft=[0.5, 0.5], target=[1.0 - width, width], law=otm.IID(1))
            result = audit.exact(
                lambda p, q, d, u, a=start, w=width: int(a <= float(u[0]) < a + w),
                problem,
                tolerance=1e-12,
            )
            found.append(result.verdict)
        assert set(found) == {"lossless", "undecided"}

    def test_a_small_fault_is_proved_by_more_points(self) -> None:
        """Token 0 with 1/2 + .008 for 1/2: below what 1,200 points leave unproved, above what 4,800
        do (no prediction fails).
        """
        problem = otm.Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=otm.IID(1))
        result = audit.exact(lambda p, q, d, u: int(float(u[0]) >= 0.508), problem)
        assert result.verdict == "not lossless"
        assert result.total_variation == pytest.approx(0.008, abs=1e-15)
        # Clopper–Pearson, none missed
        bounds = [1.0 - (probing.FALSE_ALARM / 3) ** (1 / n) for n in probing.CHECKS]
        assert bounds[1] < result.total_variation < bounds[0]
        assert result.unproved == pytest.approx(bounds[1], rel=1e-9)

    def test_drafts_count_by_their_probability(self) -> None:
        """What a draft of probability 1e-3 does wrongly is at most 1e-3 of everything, however much
        of its cube it is.
        """
        problem = otm.Problem(draft=[0.999, 0.001], target=[0.999, 0.001], law=otm.IID(1))
        hidden = as_floats(
            lambda p, q, d, u: int(d[0]) if d[0] == 0 or int(float(u[0]) * 400) % 2 else 0
        )
        assert audit.exact(hidden, problem).error < 0.02
