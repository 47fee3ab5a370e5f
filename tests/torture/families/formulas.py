"""Closed formulas of one or two numbers, in 60 digits."""

from __future__ import annotations

from collections.abc import Iterator

import mpmath
import numpy as np

import otm
from tests.torture.frame import Trial, family

UNIT_ROUNDOFF = 2.0**-53


@family("formulas")
def formulas(random: np.random.Generator) -> Iterator[Trial]:
    """1 − (1 − 1/k)^k for k up to 10⁹, within 4 units in the last place."""
    while True:
        k = int(10 ** random.uniform(0, 9))
        with mpmath.workdps(60):
            truth = 1 - (1 - mpmath.mpf(1) / k) ** k
            error = abs(mpmath.mpf(otm.bounds.kseq_factor(k)) - truth) / truth
        yield Trial(
            "otm.bounds.kseq_factor",
            1,
            float(error / (4 * UNIT_ROUNDOFF)),
            f"import otm\notm.bounds.kseq_factor({k})",
            f"{truth}",
        )
