"""Numbers with uncertainty: two types, certified and statistical, and the intervals of statistics.

Names of ends tell what they promise, here and in every result of the library:

* `lower` and `upper` are **certified**. They are proven and rounded outward: the quantity never
  lies outside of them (`Certified`).
* `low` and `high` are **statistical**. They end a confidence interval, computed from samples or
  measurements, that covers the quantity with a stated probability (`Estimate`).
"""

from __future__ import annotations

import abc
import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np
import scipy
from numpy.typing import ArrayLike

from otm._display import drawing
from otm._display.tabular import OneTable, Table
from otm._machine.arrays import Array, Floats, brief_repr

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Certified(abc.ABC):  # abstract by intent: each certificate says what attains its ends
    """A quantity between two proven ends, rounded outward, so that the quantity is never outside.

    Attributes:
        lower, upper: the ends, floats or arrays of one shape `(...)`.
    """

    lower: Array
    upper: Array

    __repr__ = brief_repr

    @property
    def value(self) -> Array:
        """The midpoint of the certified interval."""
        return 0.5 * (self.lower + self.upper)

    @property
    def gap(self) -> Array:
        """The length `upper - lower` of the certified interval."""
        return self.upper - self.lower


@dataclasses.dataclass(frozen=True)
class Estimate(OneTable):
    """A number estimated from samples or measurements, with a confidence interval.

    Attributes:
        value: the estimate, a float or an array `(...)`.
        low, high: ends of the interval, of the same shape; NaN where there is none.
        samples: number of independent samples or groups behind it, where that is known.
        confidence: the probability with which the interval covers the quantity is at least this,
            where that is known.
        quantity: what is estimated, in words.

    >>> str(Estimate(0.5, 0.25, 0.75))
    '0.5000 [0.2500, 0.7500]'
    """

    value: Array
    low: Array
    high: Array
    samples: int | None = dataclasses.field(default=None, repr=False)
    confidence: float | None = dataclasses.field(default=None, repr=False)
    quantity: str = dataclasses.field(default="", repr=False)

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"

    @property
    def has_interval(self) -> Array:
        """True if there is an interval, not the number alone."""
        return ~np.isnan(self.low)

    @property
    def interval_text(self) -> str:
        """The interval in brackets, to six significant digits."""
        return f"[{self.low:.6g}, {self.high:.6g}]"

    def ends(self, digits: int = 4) -> str:
        """Return the interval in words, empty where there is none.

        >>> Estimate(0.5, 0.25, 0.75).ends(2)
        '0.25 to 0.75'
        """
        there = self.has_interval and math.isfinite(self.high)
        return f"{self.low:.{digits}f} to {self.high:.{digits}f}" if there else ""

    def words(self, digits: int = 2, unit: str = "") -> str:
        """Return the number with unit, then the interval, if there is one, in parentheses.

        >>> Estimate(1.9, 1.7, 2.1).words(unit=" x plain decoding")
        '1.90 x plain decoding (1.70 to 2.10)'
        >>> Estimate(1.9, math.nan, math.nan).words()
        '1.90'
        """
        ends = self.ends(digits)
        return f"{self.value:.{digits}f}{unit}" + (f" ({ends})" if ends else "")

    def at(self, index: int) -> Estimate:
        """Return one number of several with the interval.

        >>> import numpy as np
        >>> Estimate(np.array([1.0, 2.0]), np.array([0.5, 1.5]), np.array([1.5, 2.5])).at(1)
        Estimate(value=2.0, low=1.5, high=2.5)
        """
        value, low, high = (float(one[index]) for one in (self.value, self.low, self.high))
        return dataclasses.replace(self, value=value, low=low, high=high)

    def clipped(self, least: ArrayLike, most: ArrayLike) -> Estimate:
        """Return the estimate with ends clipped to [least, most], the known range of the quantity.

        >>> Estimate(0.5, -0.25, 1.25).clipped(0.0, 1.0)
        Estimate(value=0.5, low=0.0, high=1.0)
        """
        low: Array = np.maximum(self.low, least)
        high: Array = np.minimum(self.high, most)
        if np.ndim(self.value) == 0:
            low, high = float(low), float(high)
        return dataclasses.replace(self, low=low, high=high)

    def data(self) -> Table:
        """Return the fields as a table, a row for each number."""
        names = tuple(field.name for field in dataclasses.fields(self))
        ends = (np.ravel(one).tolist() for one in (self.value, self.low, self.high))
        rest = (self.samples, self.confidence, self.quantity)
        return Table(columns=names, rows=tuple((*row, *rest) for row in zip(*ends, strict=True)))

    def _draw(self, ax: Axes) -> None:
        rows = self.data().rows
        found = [(value, low, high) for value, low, high, *_ in rows]
        drawing.draw_intervals(ax, [self.quantity] * len(rows), found, xlabel="estimate")
        if self.samples is not None and self.confidence is not None:
            title = f"{self.samples:,} draws, {self.confidence:.0%} interval"
            ax.set_title(title, fontsize=10)


def t_quantile(groups: ArrayLike, confidence: float = 0.95, *, comparisons: int = 1) -> Floats:
    """Return half the width of Student's t interval over independent groups, in standard errors.

    t_{n−1}(1 − (1 − confidence)/(2 m)); m intervals then hold at once (Bonferroni).

    Args:
        groups: n, their number; one group counts as two.
        confidence: coverage, in (0, 1).
        comparisons: m ≥ 1.

    >>> round(float(t_quantile(40)), 4)
    2.0227
    """
    level = 1 - (1 - confidence) / comparisons
    freedom = np.maximum(np.asarray(groups) - 1, 1)
    return np.asarray(scipy.special.stdtrit(freedom, 0.5 + 0.5 * level))


def binomial_interval(
    hits: int, samples: int, *, confidence: float = 0.95, quantity: str = ""
) -> Estimate:
    """Estimate a probability with the Clopper–Pearson interval, which holds for every sample size.

    Reference: Clopper & Pearson 1934.

    >>> binomial_interval(0, 9, confidence=0.9).interval_text
    '[0, 0.283129]'
    """
    tail, misses = (1.0 - confidence) / 2, samples - hits
    low = scipy.special.betaincinv(hits, misses + 1, tail) if hits else 0.0
    high = scipy.special.betainccinv(hits + 1, misses, tail) if misses else 1.0
    return Estimate(hits / samples, float(low), float(high), samples, confidence, quantity)


def bernstein_deviation(values: Floats, *, span: float, uncertainty: float) -> float:
    """Return the one-sided deviation that the mean of samples exceeds with probability at most δ.

    √(2 v ln(2/δ)/n) + 7 span ln(2/δ)/(3 (n − 1)), v the sample variance: an empirical Bernstein
    bound, which holds for every number of samples.

    Args:
        values: `(n,)`, independent, within an interval of this span.
        span: length of that interval.
        uncertainty: δ in (0, 1).

    Reference: Maurer & Pontil 2009, Theorem 4.

    >>> import numpy as np
    >>> round(bernstein_deviation(np.array([0.0, 1.0] * 500), span=1.0, uncertainty=0.05), 4)
    0.0516
    """
    count = len(values)
    doubt = math.log(2.0 / uncertainty)
    variance = float(values.var(ddof=1)) if count > 1 else span**2
    return math.sqrt(2.0 * variance * doubt / count) + span * 7.0 * doubt / (
        3.0 * max(count - 1, 1)
    )


def jackknife_error(replicates: Floats, multiplicity: Floats | None = None) -> Floats:
    """Return the jackknife's standard error, from estimates with one group left out at a time.

    √((n − 1)/n Σ_g (r_g − r̄)²).

    Args:
        replicates: `(groups, ...)`, the estimates without each group.
        multiplicity: `(groups,)`, how many equal groups each row stands for; one if None.

    Returns:
        `(...)`; NaN with fewer than two groups.

    Reference: Efron & Stein 1981.

    >>> import numpy as np
    >>> float(jackknife_error(np.array([1.0, 2.0, 3.0])).round(6))  # of a sum's replicates
    1.154701
    """
    weights = np.ones(len(replicates)) if multiplicity is None else multiplicity
    count = float(weights.sum())
    if count < 2:
        return np.full(replicates.shape[1:], np.nan)
    weights = weights.reshape(-1, *[1] * (replicates.ndim - 1))
    centre = (weights * replicates).sum(axis=0) / count
    squares = (weights * (replicates - centre) ** 2).sum(axis=0)
    return np.asarray(np.sqrt((count - 1) / count * squares))


def ratio_of_means(sums: Floats, counts: Floats, *, confidence: float = 0.95) -> Estimate:
    """Estimate ratios of means over grouped observations, with cluster-robust t intervals.

    m = Σ S_c/Σ n_c,  m ± t_{C−1} √(C/(C − 1) Σ (S_c − m n_c)²)/Σ n_c  over the C groups that have
    observations. Groups are independent; observations of one group need not be.

    Args:
        sums, counts: `(groups, columns)`, sums and numbers of observations of each group.
        confidence: coverage, in (0, 1).

    Returns:
        Estimate of arrays `(columns,)`; NaN where there is nothing to average, and for the ends
        where there is one group.

    Reference: Liang & Zeger 1986; Cameron & Miller 2015, section II.

    >>> import numpy as np
    >>> found = ratio_of_means(np.array([[1.0], [3.0]]), np.array([[2.0], [4.0]]))
    >>> round(float(found.value[0]), 4)
    0.6667
    """
    total = counts.sum(axis=0)
    groups = (counts > 0).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = sums.sum(axis=0) / total
        squares = ((sums - mean * counts) ** 2).sum(axis=0)
        error = np.sqrt(squares * groups / (groups - 1)) / total
        half = np.where(groups > 1, t_quantile(groups, confidence) * error, np.nan)
    return Estimate(mean, mean - half, mean + half, confidence=confidence)
