"""Probing a black box: the same laws as tracing finds, and what the check at random points is for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import otm
from otm import audit
from otm.audit.instances import INSTANCES
from tests.audit.callables import as_floats, maximal


@pytest.mark.parametrize("name", ["two tokens", "truncated target", "later drafts matter"])
def test_a_black_box_is_found_to_do_the_same(name: str) -> None:
    draft, target = INSTANCES[name]
    problem = otm.Problem(draft=draft, target=target, law=otm.IID(1))
    seen, hidden = audit.exact(maximal, problem), audit.exact(as_floats(maximal), problem)
    assert (seen.method, hidden.method, hidden.verdict, hidden.error) == ("traced", "probed", "lossless", 0.0)
    np.testing.assert_allclose(hidden.coupling.joint.toarray(), seen.coupling.joint.toarray(), atol=1e-15)


def test_a_black_box_with_a_cell_too_narrow_is_not_called_lossless() -> None:
    """At resolution 1/64 a cell of 1/200 may hide; among 256 random points some are likely to fall into it."""
    problem = otm.Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=otm.IID(1))

    def striped(p: Any, q: Any, drafts: Any, uniforms: Any) -> int:
        u = float(uniforms[0])
        return int(drafts[0]) if int(u * 200) % 2 else 1 - int(drafts[0])

    result = audit.exact(striped, problem)
    assert result.verdict != "lossless" or result.cells > 100


def test_randomness_of_its_own_is_refused() -> None:
    rng = np.random.default_rng(0)
    problem = otm.Problem(draft=[0.5, 0.3, 0.15, 0.05], target=[0.2, 0.35, 0.2, 0.25], law=otm.IID(1))
    with pytest.raises(otm.errors.InvalidParameter, match=r"otm\.audit\.sampled"):
        audit.exact(lambda p, q, d, u: int(rng.integers(4)), problem)
