"""The optimal verifier of Gaussian drafts."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import Floats
from otm.continuous.gaussian_curve import GaussianCurve, GaussianSteps, ratio
from otm.continuous.gaussian_rule import ResidualRule
from otm.overlap.curve import Containment
from otm.verifiers.optimal.scores import Scores, Selection, scores_of_steps


@final
@dataclasses.dataclass(frozen=True)
class GaussianOptimal(ResidualRule):
    """Score every draft independently, select the largest score, and accept with min(1, q/s).

    s = p·clip(q'/p, c, d) is the law of the selected draft, q' the target at a planned shift; if it
    is rejected the output is drawn from (q − s)₊. At a planned shift no verifier accepts more, α* =
    1 + min_x [Φ(x − δ) − Φ(x)^k]. Scores ask of the drafts alone, so plans are lossless at every
    shift. Between two of them one is taken at random with δ for the mean: s is their mixture, and
    what that loses falls with the square of their distance.

    Args:
        num_drafts: k ≥ 1.
        shifts: what is planned for, a δ ≥ 0 or several; beyond the last the last serves.

    Raises:
        InvalidParameter: if one is out of its range. SolverFailure: if the scores fail a
            self-check.

    Cost: some 20 ms a plan, made once; a row O(k log(number of atoms)). Accuracy: law of the
        selected draft, 1e-12 in total variation, checked on every plan (`scores.residuals`).
    Reference: docs/theory.md, "The optimal verifier at full vocabulary", "The curve of other laws".

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> drafts = rng.standard_normal((20_000, 4, 3))
    >>> found = GaussianOptimal(4, 1.0).verify(
    ...     drafts, draft_mean=np.zeros(3), target_mean=[0, 1, 0], rng=rng
    ... )
    >>> bool(abs(found.accepted.mean() - 0.924) < 0.02)  # nearly six standard errors
    True
    """

    shifts: float | Sequence[float]

    def __post_init__(self) -> None:
        super().__post_init__()
        planned = np.unique(GaussianCurve(self.shifts).shift)
        object.__setattr__(self, "shifts", tuple(planned.tolist()))

    @functools.cached_property
    def plans(self) -> list[tuple[Scores, Selection]]:
        """The scores of each shift, and c and d; none for a single draft, which needs no score."""
        size = Containment(k=self.num_drafts)
        if self.num_drafts == 1:
            return []
        steps = [GaussianSteps.of(shift, size) for shift in np.ravel(self.shifts).tolist()]
        return [scores_of_steps(each, 0.0, size, len(each.draft)) for each in steps]

    def _choose(
        self, x: Floats, shift: Floats, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Select by the scores of a plan next to the shift; accept with probability min(1, q/s)."""
        lower, upper, theta = self._around(shift)
        used = np.where(rng.random(len(x)) < theta, upper, lower)
        levels, index = self._level(x, used[:, None]), np.zeros(len(x), dtype=np.int64)
        for number, (scores, _) in enumerate(self.plans):
            rows = np.flatnonzero(used == number)
            # what lies below the lowest atom has its scores
            asked = np.maximum(levels[rows], scores.level[1])
            index[rows] = scores.table.gaps(asked, rng.random(asked.shape)).argmin(axis=1)
        chosen = x[np.arange(len(x)), index]
        taken = self._taken(chosen[:, None], shift[:, None])[:, 0]
        return index, rng.random(len(x)) < ratio(chosen, shift) / taken

    def _taken(self, x: Floats, shift: Floats) -> Floats:
        """Return s/p."""
        lower, upper, theta = self._around(shift)
        taken: Floats = (1.0 - theta) * self._level(x, lower) + theta * self._level(x, upper)
        return taken

    def _around(self, shift: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
        """Return the plans on either side of each shift, and the share of the upper one."""
        planned = np.ravel(self.shifts)
        place = np.interp(shift, planned, np.arange(len(planned)))
        lower, upper = (np.asarray(end(place), dtype=np.int64) for end in (np.floor, np.ceil))
        return lower, upper, place - lower

    def _level(self, x: Floats, plan: NDArray[np.int64]) -> Floats:
        """Return clip(q'/p, c, d) of plans that broadcast with x."""
        if not self.plans:
            return np.ones_like(x)
        low, high = np.array([(found.low, found.high) for _, found in self.plans]).T
        return np.asarray(np.clip(ratio(x, np.ravel(self.shifts)[plan]), low[plan], high[plan]))
