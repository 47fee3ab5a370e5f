"""A row of a table of integers, each entry drawn when the code first reads the entry.

Code that decides early looks at few entries: to give it whole rows, one after the other, runs it
once for each, although most runs are the same. A `DrawnRow` draws an entry when it is asked for,
from its law given those drawn before, by a uniform of its own. While code is traced that uniform is
a traced number, so that the run divides by the values of the entries that are looked at, and by no
others.
"""

from __future__ import annotations

import bisect
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm.audit.tracing.traced_numbers import TracedNumber

Seen = tuple[tuple[int, int], ...]
"""(place, value) of the entries that were read, in this order."""


class RowTable:
    """Rows of integers `(N, k)` with masses `(N,)`, to draw from entry by entry.

    The consequences of the entries read are cached, for all draws.
    """

    def __init__(self, rows: NDArray[np.int64], mass: NDArray[np.float64]) -> None:
        self.rows, self.mass = rows, mass
        self._agreeing: dict[Seen, NDArray[np.int64]] = {(): np.arange(len(rows))}
        self._splits: dict[tuple[Seen, int], tuple[list[int], list[float]]] = {}

    def agreeing(self, seen: Seen) -> NDArray[np.int64]:
        """Return the numbers of the rows that agree with the entries read so far."""
        return self._agreeing[seen]

    def split(self, seen: Seen, place: int) -> tuple[list[int], list[float]]:
        """Return the values of the next entry, and the ends in [0, 1) of the values' shares."""
        if (found := self._splits.get((seen, place))) is None:
            agree = self._agreeing[seen]
            values, which = np.unique(self.rows[agree, place], return_inverse=True)
            cumulative = np.cumsum(np.bincount(which, weights=self.mass[agree]))
            ends = cumulative[:-1] / cumulative[-1]
            found = self._splits[seen, place] = values.tolist(), ends.tolist()
            for number, value in enumerate(values.tolist()):
                self._agreeing[*seen, (place, value)] = agree[which == number]
        return found


class DrawnRow(np.lib.mixins.NDArrayOperatorsMixin):
    """A row of integers `(k,)`: an entry is drawn when read; any other use draws all.

    Args:
        table: what it is a row of.
        uniforms: one for each entry `(k,)`, traced numbers or floats.

    Attributes:
        seen: the entries that were read.

    >>> import numpy as np
    >>> table = RowTable(np.array([[0, 1], [2, 3], [2, 4]]), np.array([0.5, 0.25, 0.25]))
    >>> row = DrawnRow(table, [0.7, 0.1])
    >>> int(row[0]), row.seen, table.agreeing(row.seen)
    (2, ((0, 2),), array([1, 2]))
    >>> (row + 1).tolist(), row.seen
    ([3, 4], ((0, 2), (1, 3)))
    """

    def __init__(self, table: RowTable, uniforms: Any) -> None:
        self._table, self._uniforms = table, uniforms
        self.seen: Seen = ()

    def __len__(self) -> int:
        return int(self._table.rows.shape[1])

    def __getitem__(self, place: Any) -> Any:
        if not isinstance(place, (int, np.integer)):
            return self.drawn()[place]
        index, known = range(len(self))[place], dict(self.seen)
        if index not in known:
            values, ends = self._table.split(self.seen, index)
            known[index] = values[_part(self._uniforms[index], ends)]
            self.seen = tuple(known.items())
        return np.int64(known[index])

    def drawn(self) -> NDArray[np.int64]:
        """Return the whole row as a plain array."""
        return np.array([self[place] for place in range(len(self))], dtype=np.int64)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self.drawn().astype(np.int64 if dtype is None else dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        plain = [thing.drawn() if isinstance(thing, DrawnRow) else thing for thing in inputs]
        return getattr(ufunc, method)(*plain, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.drawn(), name)


def _part(uniform: Any, ends: list[float]) -> int:
    """Return the number of the part between ends that a uniform is in: one decision of a trace."""
    if ends and isinstance(uniform, TracedNumber):
        (axis,) = uniform.axes
        return uniform.run.cut(axis, ends)
    return bisect.bisect_right(ends, uniform)
