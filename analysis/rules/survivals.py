"""Survivals of rules on the average text, with intervals over texts, clustered by prompt.

Everything that is said of rules is linear in their survivals S_i, the expected share of steps that
accept at least i drafts: tokens per call are 1 + Σ S_i, and a rule's lead over another the
difference of two such sums. All are ratios of totals over the same prompts, so that one covariance
answers for all, paired as the texts are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from otm._machine.arrays import Floats
from otm.results.statistics import Estimate, t_quantile

from ..advise.walk import Walk
from ..statistics import CONFIDENCE, clustered_covariance, sums_by_group


@dataclasses.dataclass(frozen=True, eq=False)
class Survivals:
    """Survivals of R rules at L positions.

    Attributes:
        mean: `(R, L)`.
        covariance: `(R, L, R, L)`, of these means.
        clusters: C, the number of prompts.
        texts: their number.
    """

    mean: Floats
    covariance: Floats
    clusters: int
    texts: int

    @classmethod
    def of(cls, walks: Sequence[Sequence[Walk]], prompts: Sequence[int]) -> Survivals:
        """Average the walks of rules, clustered by prompt.

        Args:
            walks: of all rules along each text.
            prompts: the prompt of each text.
        """
        accepted = np.array([[walk.accepted for walk in row] for row in walks])
        steps = np.array([[walk.steps for walk in row] for row in walks])
        shape = accepted.shape[1:]
        sums = sums_by_group(accepted, prompts)
        counts = sums_by_group(np.broadcast_to(steps[..., None], accepted.shape), prompts)
        flat = [one.reshape(len(sums), -1) for one in (sums, counts)]
        covariance = clustered_covariance(flat[0], flat[1]).reshape(*shape, *shape)
        return cls(sums.sum(axis=0) / counts.sum(axis=0), covariance, len(sums), len(walks))

    @property
    def blocks(self) -> Floats:
        """Covariance of each rule's survivals, `(R, L, L)`."""
        return np.array([one[:, rule] for rule, one in enumerate(self.covariance)])

    def tokens(self, rule: int) -> Estimate:
        """Return tokens per call of a rule."""
        variance = self.covariance[rule, :, rule].sum()
        found = self._estimate(1.0 + self.mean[rule].sum(), variance)
        return found.clipped(1.0, 1.0 + len(self.mean[rule]))

    def lead(self, rule: int, other: int) -> Estimate:
        """Return the lead in tokens per call of a rule over another."""
        whole = self.covariance.sum(axis=(1, 3))
        variance = whole[rule, rule] + whole[other, other] - 2.0 * whole[rule, other]
        return self._estimate((self.mean[rule] - self.mean[other]).sum(), variance)

    def _estimate(self, value: float, variance: float) -> Estimate:
        half = float(t_quantile(self.clusters, CONFIDENCE) * np.sqrt(max(variance, 0.0)))
        return Estimate(float(value), value - half, value + half, self.clusters, CONFIDENCE)
