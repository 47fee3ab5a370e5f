"""The optimal verifier of Gaussian drafts."""

from __future__ import annotations

import dataclasses
import functools
from typing import final

import numpy as np
from numpy.typing import NDArray

from otm.continuous.gaussian_curve import MOST_SHIFT, GaussianSteps, ratio
from otm.continuous.gaussian_rule import Floats, ResidualRule, first_kept
from otm.overlap.curve import Containment
from otm.pmf import check_real, settle_counts
from otm.verifiers.optimal.scores import Scores, scores_of_steps


@final
@dataclasses.dataclass(frozen=True)
class GaussianOptimal(ResidualRule):
    """Give every draft an independent score, select the largest, accept it with min(1, q/s).

    s = p·clip(q'/p, c, d) is the law of the selected draft, q' the target at the planned shift; if
    it is rejected the output is drawn from (q − s)₊. Where the shift is the planned one, no
    verifier accepts more, α* = 1 + min_x [Φ(x − δ) − Φ(x)^k]. Scores ask of the drafts alone, so
    one plan is lossless at every shift, and near its own nearly optimal: acceptance falls by no
    more than the change of the target in total variation and that of α*.

    Args:
        num_drafts: k ≥ 1.
        shift: the δ ≥ 0 that is planned for.

    Raises:
        InvalidParameter: if one is out of its range. SolverFailure: if the scores fail a
            self-check.

    Cost: a plan some 20 ms, made once; a row O(k log(number of atoms)). Accuracy: law of the
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

    shift: float

    def __post_init__(self) -> None:
        settle_counts(self, num_drafts=1)
        shift = check_real(self.shift, name="shift", low=0.0, high=MOST_SHIFT)
        object.__setattr__(self, "shift", shift)

    @functools.cached_property
    def plan(self) -> tuple[Scores | None, float, float]:
        """The scores, c and d; a single draft needs no score."""
        if self.num_drafts == 1:
            return None, 1.0, 1.0
        size = Containment(k=self.num_drafts)
        steps = GaussianSteps.of(self.shift, size)
        scores, chosen = scores_of_steps(steps, 0.0, size, len(steps.draft))
        return scores, chosen.low, chosen.high

    def _choose(
        self, x: Floats, shift: Floats, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Select by scores; accept with probability min(1, q/s)."""
        scores, levels = self.plan[0], self._taken(x, shift)
        index = np.zeros(len(x), dtype=np.int64)
        if scores is not None:
            least = float(scores.level[1])  # of what lies below the lowest atom
            gaps = scores.table.gaps(np.maximum(levels, least), rng.random(x.shape))
            index = np.asarray(gaps.argmin(axis=1))
        at = (np.arange(len(x)), index)
        return index, first_kept((ratio(x[at], shift) / levels[at])[:, None], rng)[1]

    def _taken(self, x: Floats, shift: Floats) -> Floats:
        """Return clip(q'/p, c, d), which is s/p."""
        _, low, high = self.plan
        return np.clip(ratio(x, self.shift), low, high)
