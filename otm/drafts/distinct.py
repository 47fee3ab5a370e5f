"""Drafts that differ from one another."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._arrays import Array
from otm.drafts.base import PAD, Law
from otm.drafts.successive_cut import check_enough_tokens
from otm.pmf import align_pair


@dataclasses.dataclass(frozen=True)
class DistinctDrafts(Law, abc.ABC):
    """A law of one drafter that drafts no token twice and none without mass: with fewer than k
    tokens of mass rows are padded.
    """

    one_drafter = True
    distinct = True

    def align(self, draft: Array, target: Array) -> tuple[Array, Array]:
        """Broadcast the leading axes of draft and target `(..., V)`; k ≤ V."""
        check_enough_tokens(self.k, int(draft.shape[-1]))
        return align_pair(draft, target)


def padded(tokens: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """Extend rows `(n, j)` to `(n, k)` with −1."""
    rows = np.full((len(tokens), k), PAD, dtype=np.int64)
    rows[:, : tokens.shape[1]] = tokens
    return rows


def likeliest(draft: NDArray[Any], count: int) -> NDArray[np.int64]:
    """Return the `count` most likely tokens, without those of no mass; ties go to the lowest index;
    one row.
    """
    top = np.argsort(-draft, kind="stable")[:count]
    return top[draft[top] > 0].astype(np.int64)
