"""Sums by prompt, histograms and counts, filled in one pass over the rows in bounded memory.

Positions of one prompt resemble each other, so they are not independent observations; prompts are.
The interval of a mean is therefore clustered by prompt (`otm.statistics.ratio_of_means`). A run may
have more prompts than memory should hold sums for. Beyond the number of clusters given here prompts
share one, in the order of their numbers: unions of independent clusters are independent clusters,
so the interval stays valid, and its width is estimated from fewer terms (relative error of the
standard error about 1/√(2C)).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy
from numpy.typing import NDArray

from otm._machine.arrays import Floats
from otm.results.statistics import Estimate, ratio_of_means

CONFIDENCE = 0.95

Groups = Sequence[int] | Sequence[str]
"""The group of each row, by number or name."""

MOST_CLUSTERS = 512
"""Clusters that prompts are spread over at most."""


def limits(estimate: Estimate) -> dict[str, float | None]:
    """Return a mean and both ends under the names in records, None for a number that is not finite.

    >>> limits(Estimate(0.5, 0.25, float("nan")))
    {'mean': 0.5, 'low': 0.25, 'high': None}
    """
    ends = {"mean": estimate.value, "low": estimate.low, "high": estimate.high}
    return {name: float(end) if np.isfinite(end) else None for name, end in ends.items()}


class ClusterSums:
    """Sums and counts of every column for every (group, cluster), filled batch by batch.

    Args:
        groups: number of groups, such as settings × bins.
        clusters: number of clusters that prompts are spread over.
        columns: number of averaged columns.
    """

    def __init__(self, *, groups: int, clusters: int, columns: int) -> None:
        self.clusters = clusters
        self.sums = np.zeros((groups * clusters, columns))
        self.counts = np.zeros((groups * clusters, columns))

    def add(self, group: NDArray[np.int64], prompt: NDArray[np.int64], values: Floats) -> None:
        """Add rows `(n, columns)`; values that are not finite are left out of sum and count."""
        keys, where = np.unique(group * self.clusters + prompt % self.clusters, return_inverse=True)
        rows = len(group)
        membership = scipy.sparse.csr_array(
            (np.ones(rows), (where, np.arange(rows))), shape=(len(keys), rows)
        )
        finite = np.isfinite(values)
        self.sums[keys] += membership @ np.where(finite, values, 0.0)
        self.counts[keys] += membership @ finite.astype(np.float64)

    def tables(self, groups: NDArray[np.int64] | list[int]) -> tuple[Floats, Floats]:
        """Return sums and counts `(clusters, columns)` of the union of some groups."""
        shape = (-1, self.clusters, self.sums.shape[1])
        return self.sums.reshape(shape)[groups].sum(axis=0), self.counts.reshape(shape)[groups].sum(
            axis=0
        )


def sums_by_group(values: Floats, groups: Groups) -> Floats:
    """Return the sums `(groups, …)` of the rows of each group, groups ascending.

    >>> import numpy as np
    >>> sums_by_group(np.array([[1.0], [2.0], [4.0]]), [5, 3, 5]).tolist()
    [[2.0], [5.0]]
    """
    members = np.equal.outer(np.unique(groups), groups)
    return np.asarray(np.tensordot(members, values, axes=1), dtype=np.float64)


def means_by_group(values: Floats, weights: Floats, groups: Groups) -> Estimate:
    """Return Σ values/Σ weights `(columns,)` of rows, with 95 % t intervals over groups of rows.

    >>> import numpy as np
    >>> means_by_group(np.array([[1.0], [3.0]]), np.ones((2, 1)), [0, 1]).value.tolist()
    [2.0]
    """
    return ratio_of_means(sums_by_group(values, groups), sums_by_group(weights, groups))


def clustered_error(influences: Floats) -> Floats:
    """Return the standard error of a number from the influences of clusters `(C, …)`, NaN for one.

    >>> import numpy as np
    >>> float(clustered_error(np.array([0.5, -0.5])))
    1.0
    """
    count = len(influences)
    if count < 2:
        return np.full(influences.shape[1:], np.nan)
    return np.asarray(np.sqrt(count / (count - 1) * (influences**2).sum(axis=0)))


def clustered_covariance(sums: Floats, counts: Floats) -> Floats:
    """Return the covariance of the means of `ratio_of_means`, `(columns, columns)`.

    NaN with fewer than two clusters.

    C/(C − 1) Σ_c r_c r_cᵀ, r_c = (S_c − m n_c)/Σ n_c: its diagonal holds the squared standard
    errors of the intervals.

    >>> import numpy as np
    >>> sums, counts = np.array([[1.0], [3.0]]), np.array([[2.0], [4.0]])
    >>> round(float(clustered_covariance(sums, counts)[0, 0]), 6)
    0.012346
    """
    clusters = int((counts > 0).any(axis=1).sum())
    if clusters < 2:
        return np.full((sums.shape[1], sums.shape[1]), np.nan)
    total = np.maximum(counts.sum(axis=0), 1.0)
    influence = (sums - sums.sum(axis=0) / total * counts) / total
    return np.asarray(influence.T @ influence * (clusters / (clusters - 1)))


class Histograms:
    """Counts of values in [0, 1] on equal bins, one histogram for every (group, column)."""

    BINS = 1_000

    def __init__(self, *, groups: int, columns: int) -> None:
        self.counts = np.zeros((groups, columns, self.BINS), dtype=np.int64)

    def add(self, group: NDArray[np.int64], values: Floats) -> None:
        """Add rows `(n, columns)`; values that are not finite are left out."""
        groups = len(self.counts)
        for column in range(values.shape[1]):
            finite = np.isfinite(values[:, column])
            cell = np.clip((values[finite, column] * self.BINS).astype(np.int64), 0, self.BINS - 1)
            counted = np.bincount(group[finite] * self.BINS + cell, minlength=groups * self.BINS)
            self.counts[:, column] += counted.reshape(groups, self.BINS)

    def quantiles(self, group: int, column: int, levels: tuple[float, ...]) -> Floats:
        """Return quantiles, exact to one bin; NaN where nothing was counted."""
        cumulative = np.cumsum(self.counts[group, column])
        if cumulative[-1] == 0:
            return np.full(len(levels), np.nan)
        cells = np.searchsorted(cumulative, np.asarray(levels) * cumulative[-1])
        return np.asarray((np.minimum(cells, self.BINS - 1) + 0.5) / self.BINS)

    def coarse(self, group: int, column: int, bins: int) -> Floats:
        """Return the share of values in each of `bins` equal bins (a divisor of `BINS`)."""
        counted = self.counts[group, column].reshape(bins, -1).sum(axis=1)
        return np.asarray(counted / max(1, counted.sum()))


class CellCounts:
    """Counts on equal cells from 0 up, from which bins of about equal counts are cut."""

    def __init__(self, *, width: float, cells: int) -> None:
        self.width = width
        self.counts = np.zeros(cells, dtype=np.int64)

    def add(self, values: Floats) -> None:
        """Add values ≥ 0; values beyond the last cell count as in the last cell."""
        cell = np.clip(
            (values[np.isfinite(values)] / self.width).astype(np.int64), 0, len(self.counts) - 1
        )
        self.counts += np.bincount(cell, minlength=len(self.counts))

    def edges(self, bins: int) -> Floats:
        """Return inner edges of at most `bins` bins of about equally many values."""
        cumulative = np.cumsum(self.counts)
        if cumulative[-1] == 0:
            return np.empty(0)
        levels = np.arange(1, bins) / bins * cumulative[-1]
        cells = np.unique(np.searchsorted(cumulative, levels) + 1)
        last = int(np.flatnonzero(self.counts)[-1])
        return np.asarray(cells[cells <= last] * self.width)
