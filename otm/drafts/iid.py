"""Independent drafts from one distribution, the law of SpecTr: b(T) = P(T)^k."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import Array, at_least_one, inverse_cdf, unit_rows
from otm.drafts.base import IndependentDrafts
from otm.drafts.curve_cut import CurveLaw
from otm.overlap.curve import Containment


@dataclasses.dataclass(frozen=True)
class IID(IndependentDrafts, CurveLaw):
    """k independent draws from the draft distribution.

    Pr(x₁..x_k) = Π_i p(x_i), b(T) = P(T)^k.

    Args:
        k: number of drafts, an integer ≥ 1.

    Raises:
        InvalidParameter: unless k is an integer ≥ 1 (not a bool, not 2.0).

    Reference: SpecTr [Sun et al. 2023], section 5, "Draft selection with i.i.d. draft tokens".

    >>> import numpy as np
    >>> import otm
    >>> round(otm.IID(2).containment(np.array([0.5, 0.3, 0.2]), np.array([True, False, True])), 12)
    0.49
    """

    title = "i.i.d."

    @property
    def contained(self) -> Containment:
        """P(T)^k as a function of the mass outside T."""
        return Containment(k=self.k)

    def containment(self, draft: NDArray[Any], members: NDArray[np.bool_]) -> float:
        """Return P(T)^k, from the mass outside T where that is the smaller one."""
        outside = math.fsum(draft[~members])
        if outside < 0.5:
            return math.exp(self.k * math.log1p(-outside))
        return float(math.fsum(draft[members]) ** self.k)

    def inclusion(self, draft: Array) -> Array:
        """Return 1 − (1 − p)^k."""
        return at_least_one(unit_rows(draft), self.k)

    def draw(self, draft: NDArray[Any], uniforms: NDArray[Any]) -> NDArray[np.int64]:
        """Invert the distribution function of p at each uniform."""
        return inverse_cdf(draft, uniforms)
