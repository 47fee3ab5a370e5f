"""Independent drafts from one distribution, the law of SpecTr: b(T) = P(T)^k."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._arrays import Array, at_least_one, inverse_cdf, unit_rows
from otm.drafts.base import IndependentDrafts
from otm.drafts.iid_cut import iid_values, iid_worst_set
from otm.pmf import align_pair


@dataclasses.dataclass(frozen=True)
class IID(IndependentDrafts):
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
    one_drafter = True

    def align(self, draft: Array, target: Array) -> tuple[Array, Array]:
        """Broadcast the leading axes of draft and target `(..., V)`."""
        return align_pair(draft, target)

    def optimal_values(self, draft: Array, target: Array, ks: Sequence[int]) -> Array:
        """Return the prefix cut for each k, from one order or from bins (`otm.drafts.iid_cut`)."""
        return iid_values(draft, target, ks)

    def worst_set(self, draft: NDArray[Any], target: NDArray[Any]) -> NDArray[np.bool_]:
        """Return the minimising prefix of supp p in the order of q/p, as a mask."""
        return iid_worst_set(draft, target, self.k)

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
