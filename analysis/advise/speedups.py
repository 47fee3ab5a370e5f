"""Speed-ups of plans with simultaneous intervals, and the verdict.

log speed-up = log E[tokens per step] − log (seconds of a step / seconds of plain decoding's). The
first term is a ratio of totals over texts, clustered by prompt; the second a median over rounds of
the clock. Plans stand on the same texts, so their errors are nearly the same error: the critical
value is the quantile of the largest |t| over all plans under their joint law, simulated, instead of
one corrected for their number. It is valid for the plan that was chosen because it looked best.

A measurement that is looked at until it decides errs more often than each look: look r has the
error rate (1 − confidence)/2^r, and all together 1 − confidence at most.

Reference: simultaneous intervals by the multivariate t distribution: Hothorn, Bretz and Westfall
2008.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

import numpy as np

from otm._machine.arrays import Floats
from otm.results.statistics import Estimate, t_quantile

from ..statistics import clustered_error, sums_by_group
from .families import WalkedPlan

Verdict = Literal["speculate", "do not speculate", "undecided"]

_SIMULATED = 20_000


@dataclasses.dataclass(frozen=True, eq=False)
class Tokens:
    """Tokens per step of P plans, from texts of C prompts.

    Attributes:
        mean: `(P,)`.
        influence: `(C, P)`, what each prompt adds to the logarithm of the mean; they sum to 0.
    """

    mean: Floats
    influence: Floats

    @classmethod
    def of(cls, plans: Sequence[WalkedPlan], prompts: Sequence[int]) -> Tokens:
        """Sum tokens and steps of plans by prompt.

        Args:
            plans: with a walk for each text.
            prompts: the prompt of each text.
        """
        steps, tokens = (
            sums_by_group(
                np.array([[getattr(walk, name) for walk in plan.walks] for plan in plans]).T,
                prompts,
            )
            for name in ("steps", "tokens")
        )
        mean = tokens.sum(axis=0) / steps.sum(axis=0)
        return cls(mean, (tokens - mean * steps) / tokens.sum(axis=0))

    @property
    def clusters(self) -> int:
        """C, the number of prompts."""
        return len(self.influence)

    def critical(self, *, error: float, seed: int) -> float:
        """Return the 1 − `error` quantile of the largest |t| over all plans; NaN for one prompt."""
        if self.clusters < 2:
            return float("nan")
        rng, freedom = np.random.default_rng(seed), self.clusters - 1
        scale = clustered_error(self.influence)
        shapes = np.divide(
            self.influence, scale, out=np.zeros_like(self.influence), where=scale > 0
        )
        normal = (
            rng.standard_normal((_SIMULATED, self.clusters))
            @ shapes
            * np.sqrt(self.clusters / freedom)
        )
        largest = np.abs(normal).max(axis=1) / np.sqrt(rng.chisquare(freedom, _SIMULATED) / freedom)
        # With nothing random in the tokens the clock's error is left, which one t covers.
        return float(max(np.quantile(largest, 1.0 - error), t_quantile(self.clusters, 1.0 - error)))


def speedup(ratio: float, influence: Floats, *, clock_error: float, critical: float) -> Estimate:
    """Return a speed-up with an interval from the errors of tokens and times.

    Args:
        ratio: its value.
        influence: `(C,)`, of its logarithm.
        clock_error: the standard error of the logarithm of the times.
        critical: standard errors on each side.
    """
    half = critical * float(np.hypot(clustered_error(influence), clock_error))
    return Estimate(ratio, ratio * float(np.exp(-half)), ratio * float(np.exp(half)))


def verdict_of(best: Estimate, others: Sequence[Estimate]) -> Verdict:
    """Return the verdict on speculation from the intervals of the best and the other plans.

    >>> verdict_of(Estimate(1.2, 1.1, 1.3), [])
    'speculate'
    """
    if best.low > 1.0:
        return "speculate"
    return "do not speculate" if all(one.high < 1.0 for one in (best, *others)) else "undecided"
