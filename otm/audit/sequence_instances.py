"""Standard toy models, on which the mistakes of a block verifier show: laws that are the same everywhere, or not, and zeros."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from otm.sequence.models import TableModel


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
