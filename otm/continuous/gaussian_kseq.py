"""K-SEQ on Gaussian drafts."""

from __future__ import annotations

import dataclasses
from typing import final

import numpy as np

from otm._arrays import Floats
from otm.continuous.gaussian_curve import GaussianCurve
from otm.continuous.gaussian_rule import InTurnRule
from otm.verifiers.kseq import roots_along


@final
@dataclasses.dataclass(frozen=True)
class GaussianKSeq(InTurnRule):
    """Accept each draft in turn with probability min(1, q/(γ* p)), else draw from (q − γ* p)₊.

    γ* solves 1 − (1 − H(γ)/γ)^k = H(γ), for each row's shift.

    Args:
        num_drafts: k ≥ 1.

    Raises:
        InvalidParameter: unless k is an integer of at least 1.

    Cost: a bisection along the curve, vectorised over rows.
    Reference: SpecTr, Algorithm 2; docs/theory.md, "The curve of other laws".

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> drafts = rng.standard_normal((20_000, 4, 3))
    >>> found = GaussianKSeq(4).verify(
    ...     drafts, draft_mean=np.zeros(3), target_mean=[0, 1, 0], rng=rng
    ... )
    >>> bool(abs(found.accepted.mean() - 0.839) < 0.02)  # nearly six standard errors
    True
    """

    def _stages(self, shift: Floats) -> tuple[Floats, Floats, Floats]:
        """Return 0, γ* and γ*."""
        gamma = roots_along(GaussianCurve(shift), [self.num_drafts])[0, 0, :, None]
        return np.zeros_like(gamma), gamma, gamma
