"""Top-k drafts: the most likely tokens, without randomness."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import Array, by_rows, gather, namespace, total
from otm.drafts.base import DistinctDrafts, DraftTable, check_enough_tokens
from otm.drafts.greedy import certain_drafts, likeliest, likely_order


@dataclasses.dataclass(frozen=True)
class TopK(DistinctDrafts):
    """The k most likely tokens, always: beam or top-k drafting.

    b(T) = 1{top ⊆ T}, so α* = Q(top), which sampling the target and looking (`otm.Naive`) attains.
    Ties go to the lowest index. A token without mass is never drafted: with fewer than k tokens of
    positive mass the row is padded with −1.

    Args:
        k: number of drafts, an integer ≥ 1, at most V (checked when the problem is made).

    Raises:
        InvalidParameter: unless k is an integer ≥ 1; if k > V on use.

    Cost of the optimum: one sort, O(V log V). Reference: docs/theory.md, "Draft laws".

    >>> import otm
    >>> problem = otm.Problem(draft=[0.5, 0.3, 0.2], target=[0.25, 0.25, 0.5], law=TopK(2))
    >>> otm.optimal_acceptance(problem)
    0.5
    """

    title = "top k"
    differentiable = True

    def optimal_values(self, draft: Array, target: Array, ks: Sequence[int]) -> Array:
        """Return Q(top) for each k from one sort."""
        check_enough_tokens(max(ks), int(draft.shape[-1]))

        def values(p: Array, q: Array) -> Array:
            xp = namespace(p, q)
            drafted = gather(xp.where(p > 0, q, xp.zeros_like(q)), likely_order(p))
            return xp.stack([total(drafted[..., :k]) for k in ks], axis=0)

        return by_rows(values, draft, target)

    def worst_set(self, draft: NDArray[Any], target: NDArray[Any]) -> NDArray[np.bool_]:
        """Return the drafted tokens."""
        members = np.zeros(len(draft), dtype=bool)
        members[likeliest(draft, self.k)] = True
        return members

    def containment(self, draft: NDArray[Any], members: NDArray[np.bool_]) -> float:
        """Return 1 if T holds the drafted tokens, else 0."""
        return float(members[likeliest(draft, self.k)].all())

    def inclusion(self, draft: Array) -> Array:
        """Return 1 on the drafted tokens, 0 elsewhere."""
        xp = namespace(draft)
        rank = xp.argsort(likely_order(draft), axis=-1)
        return xp.astype((rank < self.k) & (draft > 0), xp.float64)

    def num_sequences(self, num_tokens: int) -> int:
        """Return 1."""
        return 1

    def enumerate(self, draft: NDArray[Any]) -> DraftTable:
        """List the one sequence, of mass one."""
        return certain_drafts(likeliest(draft, self.k), draft, self.k)

    def num_uniforms(self, num_tokens: int) -> int:
        """Return 0."""
        return 0

    def draw(self, draft: NDArray[Any], uniforms: NDArray[Any]) -> NDArray[np.int64]:
        """Repeat the one sequence for each row of uniforms `(n, 0)`."""
        return np.repeat(self.enumerate(draft).tokens, len(uniforms), axis=0)
