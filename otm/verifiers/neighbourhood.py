"""Neighbourhoods of tokens, for rules of image and action models."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import Array, namespace
from otm.drafts.base import PAD
from otm.errors import InvalidParameter, ShapeMismatch
from otm.pmf import check_count, plain_integers


@dataclasses.dataclass(frozen=True)
class NeighbourTable:
    """The neighbours of each token; two tables are equal if all entries are.

    Attributes:
        tokens: the neighbours `(V, m)`, the nearest first, −1 for none; read-only.
        digest: of shape and entries, in hexadecimal; it stands for them in `repr`, `==` and `hash`,
            as millions of entries would be slow there.
    """

    tokens: NDArray[np.int64] = dataclasses.field(repr=False, compare=False)
    digest: str


Neighbours = int | NeighbourTable
"""Number of neighbours of each token in the order of tokens, below and above in turn; or a
table.
"""


def check_neighbours(value: Any, *, name: str) -> Neighbours:
    """Return a count of at least 1, or a table of other tokens without repetitions in a row."""
    if isinstance(value, NeighbourTable):
        return value  # from another scheme
    if isinstance(value, int | np.integer):
        return check_count(value, name=name)
    table = plain_integers(value, name)
    if table.ndim == 2 and table.size:
        ordered = np.sort(np.column_stack([table, np.arange(len(table))]), axis=1)
        twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != PAD)
        if not (twice.any() or table.min() < PAD or table.max() >= len(table)):
            table.setflags(write=False)
            digest = hashlib.blake2b(table.tobytes(), digest_size=16, salt=b"%d" % len(table))
            return NeighbourTable(table, digest.hexdigest())
    raise InvalidParameter(
        f"{name} must be a count or an array (V, m) of tokens, no token beside itself, none twice "
        f"in a row, −1 for none; got {value!r:.80}. Pass the nearest codebook entries, for example."
    )


def num_neighbours(neighbours: Neighbours) -> int:
    """Return m."""
    return neighbours if isinstance(neighbours, int) else neighbours.tokens.shape[1]


def neighbour_table(neighbours: Neighbours, num_tokens: int) -> NDArray[np.int64]:
    """Return the neighbours of each token `(V, m)`, −1 for none.

    >>> neighbour_table(3, 4).tolist()
    [[-1, 1, -1], [0, 2, -1], [1, 3, 0], [2, -1, 1]]
    """
    if not isinstance(neighbours, int):
        if len(neighbours.tokens) != num_tokens:
            raise ShapeMismatch(
                f"neighbours are given for {len(neighbours.tokens)} tokens, the problem has "
                f"{num_tokens}. Pass a row for each token."
            )
        return neighbours.tokens
    place = np.arange(neighbours)
    table = np.arange(num_tokens)[:, None] + (place // 2 + 1) * np.where(place % 2, 1, -1)
    return np.where((table >= 0) & (table < num_tokens), table, PAD)


def at_neighbours(mass: Array, table: NDArray[np.int64]) -> Array:
    """Return the masses of each token's neighbours `(..., V, m)`, 0 for none."""
    xp, device = namespace(mass), mass.device
    # a mass of 0 behind the last token is that of none
    places = xp.asarray((table % (len(table) + 1)).reshape(-1), device=device)
    masses = xp.concat([mass, 0.0 * mass[..., :1]], axis=-1)
    return xp.reshape(xp.take(masses, places, axis=-1), (*mass.shape[:-1], *table.shape))
