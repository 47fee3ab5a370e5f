"""Independent drafts from different drafters."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import Array, inverse_cdf, quiet, unit_rows
from otm.drafts.base import IndependentDrafts
from otm.drafts.product_cut import product_containment, product_values, product_worst_set
from otm.errors import ShapeMismatch
from otm.pmf import align_pair, shared_namespace


@dataclasses.dataclass(frozen=True)
class Product(IndependentDrafts):
    """k independent drafts, each from a separate distribution.

    For several draft models, or one at several temperatures.

    Pr(x₁..x_k) = Π_d p_d(x_d), b(T) = Π_d P_d(T). A problem's draft has shape `(..., k, V)`, one
    row per drafter, so the number of drafts is a matter of the draft and `of_size` fits only
    another draft.

    Args:
        k: number of drafters, an integer ≥ 1.

    Raises:
        InvalidParameter: unless k is an integer ≥ 1.
        ShapeMismatch: if a problem's draft is not `(..., k, V)`.

    The optimum is exact where it is given: equal drafters at any V (the value of `IID`); two
    different drafters up to 4,096 tokens, by a sweep of orders; more up to 128 tokens, by
    submodular minimisation, certified to 1e-11. Beyond, `TooLarge`. No single order of the tokens
    suffices (docs/theory.md, "Different drafters"; `otm.drafts.product_cut`).
    Reference: Hu et al. 2025 (the cut formula holds for any draft law).

    >>> import otm
    >>> drafts = [[0.9, 0.09, 0.01, 0.0], [0.5, 0.01, 0.09, 0.4]]
    >>> problem = otm.Problem(draft=drafts, target=[0.0, 0.066, 0.07, 0.864], law=Product(2))
    >>> round(otm.optimal_acceptance(problem), 4)
    0.5331
    """

    title = "different drafters"
    one_drafter = False

    def align(self, draft: Array, target: Array) -> tuple[Array, Array]:
        """Broadcast the leading axes of draft `(..., k, V)` and target `(..., V)`."""
        if draft.ndim < 2 or int(draft.shape[-2]) != self.k:
            raise ShapeMismatch(
                f"{self!r} needs a draft of shape (..., {self.k}, V), one row per drafter; got "
                f"{tuple(draft.shape)}. Stack the drafters' distributions, or use otm.IID for "
                "drafts from a single one."
            )
        xp = shared_namespace(draft, target)
        rows, spread = align_pair(
            draft,
            xp.broadcast_to(target[..., None, :], (*target.shape[:-1], self.k, target.shape[-1])),
        )
        return rows, spread[..., 0, :]

    def optimal_values(self, draft: Array, target: Array, ks: Sequence[int]) -> Array:
        """Return the minimum cut by a search; every k must be the number of drafters."""
        wrong = [k for k in ks if k != self.k]
        if wrong:
            raise ShapeMismatch(
                f"A draft for {self.k} drafters has an optimum for k = {self.k} only; got k = "
                f"{wrong[0]}. Stack that many drafters."
            )
        return shared_namespace(draft, target).stack([product_values(draft, target)] * len(ks))

    def worst_set(self, draft: NDArray[Any], target: NDArray[Any]) -> NDArray[np.bool_]:
        """Return the set that the search ends with."""
        return product_worst_set(draft, target)

    def containment(self, draft: NDArray[Any], members: NDArray[np.bool_]) -> float:
        """Return Π_d P_d(T)."""
        return product_containment(draft, members)

    def inclusion(self, draft: Array) -> Array:
        """Return 1 − Π_d (1 − p_d)."""
        xp = shared_namespace(draft, draft)
        with quiet():
            logs = xp.log1p(-xp.clip(unit_rows(draft), 0.0, 1.0))
            return -xp.expm1(xp.sum(logs, axis=-2))

    def draw(self, draft: NDArray[Any], uniforms: NDArray[Any]) -> NDArray[np.int64]:
        """Invert the distribution function of each drafter at one uniform."""
        return np.stack([inverse_cdf(p, uniforms[:, d]) for d, p in enumerate(draft)], axis=1)
