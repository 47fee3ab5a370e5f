"""Greedy drafts: all but one are the most likely tokens, the last is drawn from the rest."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import Array, by_rows, gather, inverse_cdf, namespace, total
from otm.drafts.base import DistinctDrafts, DraftTable, check_enough_tokens, padded


@dataclasses.dataclass(frozen=True)
class Greedy(DistinctDrafts):
    """The k − 1 most likely tokens, then one draw from the draft renormalised over the others.

    b(T) = 1{top ⊆ T}·P(T ∖ top)/P(Ω ∖ top), and so, with R = P(Ω ∖ top) summed directly,

        α* = Q(top) + Σ_{i ∉ top} min(q(i), p(i)/R).

    Ties go to the lowest index. A token without mass is never drafted: where fewer than k tokens
    have mass, all of them are drafted and the row is padded with −1 (then α* = Q(supp p)).
    Greedy(1) is a single draft.

    Args:
        k: number of drafts, an integer ≥ 1, at most V (checked when the problem is made).

    Raises:
        InvalidParameter: unless k is an integer ≥ 1; if k > V on use.

    Cost of the optimum: one sort, O(V log V), and O(V) per k. Accuracy: rounding of one sum over
        the vocabulary.
    Reference: greedy draft sampling, Hu et al. 2025; as a law of sets Greedy(2) is SpecHub's pair
        [Sun et al. 2024].

    >>> import otm
    >>> problem = otm.Problem(draft=[0.5, 0.3, 0.2], target=[0.2, 0.2, 0.6], law=Greedy(2))
    >>> round(otm.optimal_acceptance(problem), 12)  # .2 + min(.2, .6) + min(.6, .4)
    0.8
    """

    title = "greedy"
    differentiable = True

    def optimal_values(self, draft: Array, target: Array, ks: Sequence[int]) -> Array:
        """Evaluate the closed form for each k from one sort."""
        check_enough_tokens(max(ks), int(draft.shape[-1]))
        return by_rows(lambda p, q: _values(p, q, ks), draft, target)

    def worst_set(self, draft: NDArray[Any], target: NDArray[Any]) -> NDArray[np.bool_]:
        """Return the top tokens and all others with target mass below draft mass."""
        top, rest = self.parts(draft)
        members = (target < rest) & (rest > 0)
        members[top] = True
        return np.asarray(members)

    def containment(self, draft: NDArray[Any], members: NDArray[np.bool_]) -> float:
        """Return the mass of the last draft inside T if the top tokens are, else 0."""
        top, rest = self.parts(draft)
        if not members[top].all():
            return 0.0
        return math.fsum(rest[members]) if rest.any() else 1.0

    def inclusion(self, draft: Array) -> Array:
        """Return Pr(x is drafted): 1 on the top tokens, p/R on the others."""
        xp = namespace(draft)
        order = likely_order(draft)
        p = gather(xp.astype(draft, xp.float64), order)
        last = _last_draft(p, self.k)
        top = xp.astype(p[..., : self.k - 1] > 0, xp.float64)
        return gather(xp.concat([top, last], axis=-1), xp.argsort(order, axis=-1))

    def num_sequences(self, num_tokens: int) -> int:
        """Return V − k + 1, the number of possible last drafts."""
        return max(1, num_tokens - self.k + 1)

    def enumerate(self, draft: NDArray[Any]) -> DraftTable:
        """List the top tokens with each possible last draft."""
        top, rest = self.parts(draft)
        last = np.flatnonzero(rest > 0)
        if len(last) == 0:
            return certain_drafts(top, draft, self.k)
        return DraftTable(tokens=_followed(top, last), mass=rest[last])

    def num_uniforms(self, num_tokens: int) -> int:
        """Return 1: only the last draft is random."""
        return 1

    def draw(self, draft: NDArray[Any], uniforms: NDArray[Any]) -> NDArray[np.int64]:
        """List the top tokens and draw one from the rest."""
        top, rest = self.parts(draft)
        if not rest.any():
            return np.repeat(padded(top[None], self.k), len(uniforms), axis=0)
        return _followed(top, inverse_cdf(rest, uniforms[:, 0]))

    def parts(self, draft: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Return the top tokens of mass and the law of the last draft `(V,)`, maybe 0; one row."""
        top = likeliest(draft, self.k - 1)
        rest = draft.copy()
        rest[top] = 0 * rest[top]
        left = rest.sum()
        return top, rest / left if left > 0 else rest


def certain_drafts(tokens: NDArray[np.int64], draft: NDArray[Any], k: int) -> DraftTable:
    """Return the table of one sequence, with mass 1 in the draft's number type."""
    one = np.asarray([draft.sum() / draft.sum()], dtype=draft.dtype)
    return DraftTable(tokens=padded(tokens[None], k), mass=one)


def _followed(top: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return rows of the top tokens, each followed by one of `last`."""
    return np.column_stack([np.tile(top, (len(last), 1)), last])


def likeliest(draft: NDArray[Any], count: int) -> NDArray[np.int64]:
    """Return the `count` likeliest tokens of mass, the lowest index first among equals; one row."""
    top = np.argsort(-draft, kind="stable")[:count]
    return top[draft[top] > 0].astype(np.int64)


def likely_order(draft: Array) -> Array:
    """Return the tokens by descending mass along the last axis; the lowest index wins ties."""
    return namespace(draft).argsort(-draft, axis=-1, stable=True)


def _last_draft(p: Array, k: int) -> Array:
    """Return the law of the last draft behind the top tokens, from descending masses."""
    xp = namespace(p)
    rest = p[..., k - 1 :]
    left = total(rest)[..., None]
    return rest / xp.where(left > 0, left, xp.ones_like(left))


def _values(draft: Array, target: Array, ks: Sequence[int]) -> Array:
    xp = namespace(draft, target)
    order = likely_order(draft)
    p = gather(xp.astype(draft, xp.float64), order)
    q = gather(xp.astype(target, xp.float64), order)
    drafted = xp.where(p > 0, q, xp.zeros_like(q))
    rows = [
        total(drafted[..., : k - 1]) + total(xp.minimum(q[..., k - 1 :], _last_draft(p, k)))
        for k in ks
    ]
    return xp.clip(xp.stack(rows, axis=0), 0.0, 1.0)
