"""Tokens that stand for each other: what rules of image and action models know of a vocabulary."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._arrays import Array, namespace
from otm.drafts.base import PAD
from otm.errors import InvalidParameter, ShapeMismatch
from otm.pmf import check_count, plain_reals

Neighbours = int | tuple[tuple[int, ...], ...]
"""How many tokens next to each in an order, below and above in turn; or the neighbours of each
token, the nearest first, as many for all, filled up with −1.
"""


def check_neighbours(value: Any, *, name: str) -> Neighbours:
    """Return a count of at least 1 or a table of other tokens as tuples, none twice for a token."""
    if isinstance(value, int | np.integer):
        return check_count(value, name=name)
    table = np.asarray(plain_reals(value, name))
    if table.ndim == 2 and table.dtype.kind == "i" and table.size:
        ordered = np.sort(np.column_stack([table, np.arange(len(table))]), axis=1)
        twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != PAD)
        if not (twice.any() or table.min() < PAD or table.max() >= len(table)):
            return tuple(map(tuple, table.tolist()))
    raise InvalidParameter(
        f"{name} must be a count or an array (V, m) of tokens, no token beside itself, none twice "
        f"in a row, −1 for none; got {value!r:.80}. Pass the nearest codebook entries, for example."
    )


def neighbour_table(neighbours: Neighbours, num_tokens: int) -> NDArray[np.int64]:
    """Return the neighbours of each token `(V, m)`, −1 for none.

    >>> neighbour_table(3, 4).tolist()
    [[-1, 1, -1], [0, 2, -1], [1, 3, 0], [2, -1, 1]]
    """
    if not isinstance(neighbours, int):
        if len(neighbours) != num_tokens:
            raise ShapeMismatch(
                f"neighbours are given for {len(neighbours)} tokens, the problem has {num_tokens}. "
                "Pass a row for each token."
            )
        return np.asarray(neighbours)
    place = np.arange(neighbours)
    table = np.arange(num_tokens)[:, None] + (place // 2 + 1) * np.where(place % 2, 1, -1)
    return np.where((table >= 0) & (table < num_tokens), table, PAD)


def at_neighbours(mass: Array, table: NDArray[np.int64]) -> Array:
    """Return the masses of each token's neighbours `(..., V, m)`, 0 for none."""
    xp, device = namespace(mass), mass.device
    places = xp.asarray(np.maximum(table, 0).reshape(-1), device=device)
    found = xp.reshape(xp.take(mass, places, axis=-1), (*mass.shape[:-1], *table.shape))
    return found * xp.asarray(np.where(table == PAD, 0.0, 1.0), device=device)
