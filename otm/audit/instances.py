"""Standard instances, on which the mistakes show that pass unseen elsewhere.

For one token: zeros of the target under the draft and the reverse, ties, equal and disjoint laws, point masses, a truncated (top-p)
target, masses below the clamps found in code (1e-8), vocabulary rows that neither model uses, and pairs on which the second draft
is accepted with a probability strictly between 0 and 1, without which a uniform reused for it does not show. A vocabulary of one
token and k > V come with them. For blocks: toy models whose laws are the same everywhere, or not, and zeros.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm.drafts import Law
from otm.errors import InvalidParameter
from otm.problem import Problem
from otm.sequence.models import TableModel

INSTANCES: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "two tokens": ((0.75, 0.25), (0.5, 0.5)),
    "three tokens": ((0.2, 0.5, 0.3), (0.55, 0.4, 0.05)),
    "later drafts matter": ((0.5, 0.3, 0.15, 0.05), (0.2, 0.35, 0.2, 0.25)),
    "ties": ((0.25, 0.25, 0.25, 0.25), (0.125, 0.125, 0.375, 0.375)),
    "zeros": ((0.5, 0.5, 0.0, 0.0), (0.0, 0.25, 0.25, 0.5)),
    "equal": ((0.5, 0.3, 0.2), (0.5, 0.3, 0.2)),
    "disjoint": ((0.75, 0.25, 0.0, 0.0), (0.0, 0.0, 0.5, 0.5)),
    "truncated target": ((0.4, 0.3, 0.2, 0.1), (0.625, 0.375, 0.0, 0.0)),
    "truncated draft": ((0.625, 0.375, 0.0, 0.0), (0.4, 0.3, 0.2, 0.1)),
    "one draft token": ((0.0, 1.0, 0.0), (0.3, 0.3, 0.4)),
    "one target token": ((0.2, 0.3, 0.5), (0.0, 1.0, 0.0)),
    "one token each": ((1.0, 0.0), (0.0, 1.0)),
    "tiny masses": ((0.6, 0.4 - 1e-9, 1e-9), (0.3, 0.7 - 4e-9, 4e-9)),
    "unused rows": ((0.5, 0.5, 0.0, 0.0), (0.25, 0.75, 0.0, 0.0)),
    "vocabulary of one": ((1.0,), (1.0,)),
}
"""Pairs (draft, target) by name."""


def standard_problems(law: Law) -> Iterator[tuple[str, Problem]]:
    """Yield the standard instances that the law can draft from, with their names."""
    for name, (draft, target) in INSTANCES.items():
        try:
            yield name, Problem(draft=one_per_drafter(draft, law), target=target, law=law)
        except InvalidParameter:  # more drafts than tokens
            continue


def one_per_drafter(draft: Sequence[float] | NDArray[Any], law: Law) -> NDArray[Any]:
    """Return a distribution `(V,)` as the law takes it: itself, or for different drafters itself turned by 0, 1, 2, … tokens."""
    shape = law.draft_shape(len(draft))
    return np.stack([np.roll(draft, turn) for turn in range(math.prod(shape[:-1]))]).reshape(shape)


def standard_models(gamma: int) -> dict[str, tuple[TableModel, TableModel]]:
    """Return the standard toy pairs (draft, target), complete for blocks of γ drafts, by name."""
    swap = ([2 / 3, 1 / 3], [1 / 3, 2 / 3])
    rows = ([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.25, 0.25, 0.5]], [[0.2, 0.3, 0.5], [0.4, 0.2, 0.4], [0.3, 0.6, 0.1]])
    zeros = ([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [1.0, 0.0, 0.0]], [[0.0, 0.25, 0.75], [0.5, 0.5, 0.0], [0.0, 0.5, 0.5]])

    def pair(p: Callable[[tuple[int, ...]], Any], q: Callable[[tuple[int, ...]], Any], num_tokens: int) -> Any:
        return table_model(p, num_tokens, gamma), table_model(q, num_tokens, gamma)

    return {
        "same at every position": pair(lambda c: swap[0], lambda c: swap[1], 2),
        "equal models": pair(lambda c: rows[0][_last(c)], lambda c: rows[0][_last(c)], 3),
        "after the token before": pair(lambda c: rows[0][_last(c)], lambda c: rows[1][_last(c)], 3),
        "by position": pair(lambda c: rows[0][len(c) % 3], lambda c: rows[1][len(c) % 3], 3),
        "zeros": pair(lambda c: zeros[0][_last(c)], lambda c: zeros[1][_last(c)], 3),
    }


def _last(context: tuple[int, ...]) -> int:
    return context[-1] if context else 0


def table_model(law: Callable[[tuple[int, ...]], Any], num_tokens: int, depth: int) -> TableModel:
    """Return a model with `law(context)` after every context of at most `depth` tokens.

    Args:
        law: the next-token distribution `(V,)` after a context, a tuple of tokens.
        num_tokens: V.
        depth: length of the longest context.

    Returns:
        TableModel.

    Raises:
        InvalidDistribution: if `law` returns something else.

    Cost: (V^{depth+1} − 1)/(V − 1) calls of `law`.

    >>> table_model(lambda context: [0.5, 0.5], 2, 1).next([1])
    array([0.5, 0.5])
    """
    contexts = [path for length in range(depth + 1) for path in itertools.product(range(num_tokens), repeat=length)]
    return TableModel({context: law(context) for context in contexts})
