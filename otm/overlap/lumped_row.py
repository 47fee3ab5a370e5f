"""One row of the overlap curve in steps: single tokens in order where necessary, groups elsewhere.

A scan along the curve asks at every token and needs few of the answers. `RowSteps` is a row's
tokens in descending order of q/p in which neighbours may be lumped together: a step is one token,
or several of which only the masses are known and two ratios between which they lie. The curve is
exact at the ends of steps whatever they hold, so a scan runs over steps as it would over tokens;
where it finds that a step may hide what it looks for, it has that step resolved (`Steps.resolve`)
and goes on. A row that was sorted has one token a step and nothing to resolve: the same scans serve
both.

Where numba is installed, long rows start as the bins of `otm.overlap.compiled`, a few hundred
steps for 100,000 tokens.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import Floats, running_sum
from otm._machine.compiled import compiled
from otm.overlap.curve import OverlapCurve, ratios
from otm.overlap.rows import SHORTEST_BINNED, SORT_SECONDS

if TYPE_CHECKING:
    from otm.overlap.compiled import Lumps


@dataclasses.dataclass(frozen=True, eq=False)
class Steps(abc.ABC):
    """Two laws in steps of descending q/p: of tokens, or of the points of a line.

    Attributes:
        draft, target: masses P and Q of each step, `(n,)`.
        high, low: between these lie its ratios, `(n,)`, non-increasing; equal where there is one.
    """

    draft: Floats
    target: Floats
    high: Floats
    low: Floats

    @functools.cached_property
    def above_draft(self) -> Floats:
        """P of the first j + 1 steps, `(n,)`."""
        return np.asarray(running_sum(self.draft.copy()))

    @functools.cached_property
    def above_target(self) -> Floats:
        """Q of the first j + 1 steps, `(n,)`."""
        return np.asarray(running_sum(self.target.copy()))

    @functools.cached_property
    def lumped(self) -> NDArray[np.bool_]:
        """A mask of the steps that may hold several ratios, `(n,)`."""
        return np.asarray(self.low < self.high)

    @abc.abstractmethod
    def resolve(self, which: NDArray[np.int64]) -> Self:
        """Return the steps with the lumped steps `which` replaced by finer steps."""


@dataclasses.dataclass(frozen=True, eq=False)
class RowSteps(Steps):
    """A row's tokens in descending order of q/p, with some neighbours lumped together.

    >>> import numpy as np
    >>> steps = RowSteps.of(np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.3, 0.6]))
    >>> steps.above_target.round(12).tolist(), steps.high.round(12).tolist()
    ([0.6, 0.9, 1.0], [3.0, 1.0, 0.2])
    """

    _row: tuple[Floats, Floats]
    _lumps: Lumps | None = None  # of the row, where it was put into bins
    _lump: NDArray[np.int64] | None = None  # of each step, −1 for a token

    @classmethod
    def of(cls, draft: Floats, target: Floats) -> Self:
        """Lump the tokens of a row `(V,)` into bins, or sort short rows."""
        is_long, seconds = len(draft) >= SHORTEST_BINNED, SORT_SECONDS * len(draft)
        engine = compiled("otm.overlap.compiled", seconds=seconds) if is_long else None
        if engine is None:
            return cls.sorted(draft, target)
        p, q = (np.ascontiguousarray(a, dtype=np.float64) for a in (draft, target))
        return cls._in_lumps(engine.Lumps(p, q), p, q, np.empty(0, dtype=np.int64))

    @classmethod
    def sorted(cls, draft: Floats, target: Floats) -> Self:
        """Sort the tokens, so that every step is one token."""
        curve = OverlapCurve.of(draft, target)
        return cls(
            curve.in_order(draft), curve.in_order(target), curve.ratio, curve.ratio, (draft, target)
        )

    @classmethod
    def _in_lumps(cls, lumps: Lumps, p: Floats, q: Floats, resolved: NDArray[np.int64]) -> Self:
        """Replace the lumps `resolved` of a row by tokens; sort the row if these are too many."""
        found = lumps.in_order(resolved)
        if found is None:
            return cls.sorted(p, q)
        tokens, count = found
        is_resolved = np.isin(np.arange(len(count)), resolved)
        lump = np.repeat(np.arange(len(count)), np.where(is_resolved, count, 1))
        single = is_resolved[lump]
        draft, target, high, low = lumps.steps[:, lump]
        draft[single], target[single] = p[tokens], q[tokens]
        high[single] = low[single] = ratios(draft[single], target[single])
        return cls(draft, target, high, low, (p, q), lumps, np.where(single, -1, lump))

    def resolve(self, which: NDArray[np.int64]) -> Self:
        """Return the steps with the lumped steps `which` replaced by tokens in order.

        Cost: one pass over the row and the order of the tokens resolved so far, or a sort where
            they are a quarter of the row.
        """
        assert self._lumps is not None and self._lump is not None, "a sorted row has no lumps"
        before = np.setdiff1d(np.arange(self._lumps.steps.shape[1]), self._lump)
        return self._in_lumps(self._lumps, *self._row, np.union1d(before, self._lump[which]))
