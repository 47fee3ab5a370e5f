"""Successive sampling: k different tokens, each drawn from the rest of one distribution."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import Array, namespace, running_sum, to_numpy
from otm.drafts.base import DistinctDrafts, DraftTable, padded
from otm.drafts.successive_cut import (
    successive_containment,
    successive_inclusion,
    successive_values,
    successive_worst_set,
)


@dataclasses.dataclass(frozen=True)
class WithoutReplacement(DistinctDrafts):
    """k draws without replacement, each from the draft renormalised over the tokens not drawn yet.

    Pr(x₁..x_k) = Π_i p(x_i) / p(Ω ∖ {x₁..x_{i−1}}): also the first k arrivals of an exponential
    race with rates p. With fewer than k tokens of positive mass all of them are drafted, and the
    row is padded with −1.

    Args:
        k: number of drafts, an integer ≥ 1, at most V (checked when the problem is made).

    Raises:
        InvalidParameter: unless k is an integer ≥ 1; if k > V on use.

    Cost of the optimum: O(V·k·nodes), on long rows one sort and O(V) for some 20 prefixes
        (`otm.drafts.successive_cut`). Accuracy: 1e-14 absolute for masses down to 1e-300.
    Reference: RSD [Jeon et al. 2024]; Hu et al. 2025; as a race: ERSD [Kobus & Gündüz 2025],
        Appendix A, Algorithms 4 and 5.

    >>> import numpy as np
    >>> members = np.array([True, False, True])  # first 0 then 2, or first 2 then 0
    >>> round(WithoutReplacement(2).containment(np.array([0.5, 0.3, 0.2]), members), 12)
    0.325
    """

    title = "without replacement"

    def optimal_values(self, draft: Array, target: Array, ks: Sequence[int]) -> Array:
        """Return the least cut over prefixes for each k (`otm.drafts.successive_cut`)."""
        return successive_values(draft, target, ks)

    def worst_set(self, draft: NDArray[Any], target: NDArray[Any]) -> NDArray[np.bool_]:
        """Return the minimising prefix of supp p in the order of q/p, as a mask."""
        return successive_worst_set(draft, target, self.k)

    def containment(self, draft: NDArray[Any], members: NDArray[np.bool_]) -> float:
        """Return the probability that the first k arrivals of the race lie in T."""
        return successive_containment(draft, members, self.k)

    def inclusion(self, draft: Array) -> Array:
        """Return Pr(x is drafted), on the host row by row."""
        xp = namespace(draft)
        rows = to_numpy(draft).astype(np.float64)
        flat = [successive_inclusion(row, self.k) for row in rows.reshape(-1, rows.shape[-1])]
        return xp.asarray(np.stack(flat).reshape(rows.shape), device=draft.device)

    def num_sequences(self, num_tokens: int) -> int:
        """Return V!/(V − k)!."""
        return math.perm(num_tokens, min(self.k, num_tokens))

    def enumerate(self, draft: NDArray[Any]) -> DraftTable:
        """List the ordered sequences of distinct tokens of supp p, in lexicographic order."""
        support = np.flatnonzero(draft > 0)
        p = draft[support]
        tokens = np.empty((1, 0), dtype=np.int64)
        mass = np.ones(1, dtype=object if draft.dtype == object else np.float64)
        for _ in range(min(self.k, len(support))):
            free = np.ones((len(tokens), len(support)), dtype=bool)
            np.put_along_axis(free, tokens, False, axis=1)
            # What is left is summed, never 1 − what was taken: beside a token of mass 1 − 1e-30
            # that would be 0.
            left = np.where(free, p, 0 * p).sum(axis=1)
            row, column = np.nonzero(free)
            tokens = np.concatenate([tokens[row], column[:, None]], axis=1)
            mass = mass[row] * (p[column] / left[row])
        return DraftTable(tokens=padded(support[tokens], self.k), mass=mass)

    def num_uniforms(self, num_tokens: int) -> int:
        """Return k: one uniform per draft."""
        return self.k

    def draw(self, draft: NDArray[Any], uniforms: NDArray[Any]) -> NDArray[np.int64]:
        """Draw one token after the other from the remaining mass, each at one uniform."""
        remaining = Remaining.of(draft)
        taken = np.empty((len(uniforms), 0), dtype=np.int64)
        for step in range(min(self.k, remaining.size)):
            taken = np.concatenate(
                [taken, remaining.draw(taken, uniforms[:, step])[:, None]], axis=1
            )
        return padded(remaining.tokens[taken], self.k)


@dataclasses.dataclass(frozen=True, eq=False)
class Remaining:
    """The rest of a distribution without a few tokens, to full relative accuracy.

    Tokens stand in ascending order of mass, where the gap between two taken tokens is a difference
    of running sums. The tokens in a gap weigh at least as much as each token below it, so the
    difference loses no more than the small count k of digits' worth: the relative error of the
    total left is about (k + 2) units in the last place, whatever was taken out. (In any other order
    taking out a token of mass 1 − 1e-20 would leave nothing but rounding.)

    Attributes:
        tokens: the tokens of positive mass in ascending order of mass `(S,)`.
        ends: running sums of their masses with a leading 0 `(S + 1,)`.
    """

    tokens: NDArray[np.int64]
    ends: NDArray[np.float64]

    @classmethod
    def of(cls, draft: NDArray[Any]) -> Remaining:
        """Sort a distribution `(V,)`."""
        order = np.argsort(draft, kind="stable")
        order = order[draft[order] > 0]
        return cls(
            tokens=order.astype(np.int64), ends=np.concatenate([[0.0], running_sum(draft[order])])
        )

    @property
    def size(self) -> int:
        """S, the number of tokens of positive mass."""
        return len(self.tokens)

    def mass(self, taken: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the mass left when positions `(n, j)` of `tokens` are taken out, `(n,)`."""
        low, high = gaps_between(taken, self.size)
        return np.asarray((self.ends[high] - self.ends[low]).sum(axis=1))

    def draw(self, taken: NDArray[np.int64], uniforms: NDArray[Any]) -> NDArray[np.int64]:
        """Return a position for each uniform `(n,)`, drawn from the rest without `taken`."""
        low, high = gaps_between(taken, self.size)
        gap, inside = choose_gap(self.ends[high] - self.ends[low], uniforms)
        low, high = (np.take_along_axis(edges, gap, axis=1) for edges in (low, high))
        found = np.searchsorted(self.ends, self.ends[low] + inside, side="right") - 1
        return np.asarray(np.clip(found, low, high - 1)[:, 0], dtype=np.int64)


def gaps_between(
    taken: NDArray[np.int64], size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return both ends of the half-open runs between taken positions of [0, size), `(n, j + 1)`."""
    cuts = np.sort(taken, axis=1)
    edge = np.zeros((len(taken), 1), dtype=np.int64)
    return np.concatenate([edge, cuts + 1], axis=1), np.concatenate([cuts, edge + size], axis=1)


def choose_gap(
    mass: NDArray[np.float64], uniforms: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Choose a gap of each row ∝ mass `(n, j + 1)`; return gap and point inside, `(n, 1)`."""
    reach = np.cumsum(mass, axis=1)
    point = (uniforms * reach[:, -1])[:, None]
    # Rounding may put the point on the very end: then it is the last gap with mass.
    last = mass.shape[1] - 1 - np.argmax((mass > 0)[:, ::-1], axis=1, keepdims=True)
    gap = np.minimum((reach <= point).sum(axis=1, keepdims=True), last)
    before = np.where(gap > 0, np.take_along_axis(reach, np.maximum(gap - 1, 0), axis=1), 0.0)
    return gap, point - before
