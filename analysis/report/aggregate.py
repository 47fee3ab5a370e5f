"""From rows to averages in two passes over a run: settings and edges of bins, then means."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import Floats
from otm.results.statistics import Estimate, ratio_of_means

from ..errors import AnalysisError
from ..statistics import MOST_CLUSTERS, CellCounts, ClusterSums, Histograms, clustered_covariance
from .reading import Run

_DISTANCE, _PROBABILITY = "tv", "probability"
_SIGNED = "lost_rounding"
"""A difference of two acceptances: rounded drafts may be accepted more often."""
_MOST_BYTES = 512 << 20
_FEWEST_CLUSTERS = 32
_MOST_LISTED_PROMPTS = 100_000


@dataclasses.dataclass(frozen=True, eq=False)
class Binned:
    """Means of every column in bins of a quantity, for one setting.

    Attributes:
        centre: mean of the quantity in each bin `(bins,)`.
        rows: number of positions in each bin.
        lower, upper: means of the schemes' lower and upper columns, one `Estimate` per bin; the
            same object unless intervals.
    """

    centre: Floats
    rows: Floats
    lower: tuple[Estimate, ...]
    upper: tuple[Estimate, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Aggregates:
    """Everything that the report shows, by setting, columns in the order of `run.schemes`.

    Attributes:
        strata: what was measured.
        num_clusters: how many clusters of prompts the intervals rest on.
        lower, upper: means of the schemes' lower and upper columns; the same unless the run holds
            intervals.
        covariance: of the lower columns' means over prompts, `(columns, columns)`; NaN with one
            cluster.
        covariance_upper: of the upper ones; the same unless the run holds intervals.
        gap_low, gap_high: means of the least and largest distance to the optimum.
        by_entropy, by_position: the same in bins.
        histograms: distribution over positions; group = setting.
        statistics: means of the statistics' lower columns, then of their upper ones; infinite
            values left out.
        infinite: share of infinite values, in the same order.
        prompts: prompts' numbers and their mean 1 − TV, hardest first, of each setting; None where
            they are too many.
    """

    strata: Strata
    num_clusters: int
    lower: tuple[Estimate, ...]
    upper: tuple[Estimate, ...]
    covariance: tuple[Floats, ...]
    covariance_upper: tuple[Floats, ...]
    gap_low: tuple[Estimate, ...]
    gap_high: tuple[Estimate, ...]
    by_entropy: tuple[Binned, ...]
    by_position: tuple[Binned, ...]
    histograms: Histograms
    statistics: tuple[Estimate, ...]
    infinite: tuple[Floats, ...]
    prompts: tuple[tuple[NDArray[np.int64], Floats], ...] | None


def aggregate(run: Run) -> Aggregates:
    """Average a run by setting, over all positions and in bins.

    Memory: at most about 512 MiB of tables, whatever the number of rows and prompts; the number of
    clusters that prompts are spread over gives way first.

    Raises:
        AnalysisError: if the run has so many columns and settings that the tables would not fit.
    """
    found = strata_of(run)
    columns = _Columns(run)
    clusters = _num_clusters(found, columns)
    tables = _Tables(run, found, columns, clusters)
    for batch in run.batches(columns.wanted):
        tables.add(batch)
    return tables.finish()


class _Columns:
    """The columns to read, and the place of each in a row of values."""

    def __init__(self, run: Run) -> None:
        schemes, statistics = run.schemes, run.statistics
        self.intervals = any(column.is_interval for column in schemes)
        self.schemes = [c.lower for c in schemes] + (
            [c.upper for c in schemes] if self.intervals else []
        )
        self.statistics = [c.lower for c in statistics] + [c.upper for c in statistics]
        self.least_described = np.tile([-1.0 if c.name == _SIGNED else 0.0 for c in statistics], 2)
        self.most_described = np.tile(
            [1.0 if c.unit == _PROBABILITY else np.inf for c in statistics], 2
        )
        self.num_schemes = len(schemes)
        self.entropy = run.statistic(ENTROPY)
        self.distance = run.statistic(_DISTANCE)
        place = {c.name: i for i, c in enumerate(schemes)}
        self.with_optimum = [i for i, c in enumerate(schemes) if c.optimum in place]
        self.optimum = [place[str(schemes[i].optimum)] for i in self.with_optimum]
        self.wanted = list(
            dict.fromkeys(
                ["prompt", "position", *run.setting_columns, *self.schemes, *self.statistics]
            )
        )


class _Tables:
    """The running sums of the second pass."""

    def __init__(self, run: Run, found: Strata, columns: _Columns, clusters: int) -> None:
        self.run, self.found, self.columns, self.clusters = run, found, columns, clusters
        # the last column is the binned quantity itself
        settings, wide = (
            len(found.settings),
            len(columns.schemes) + 1,
        )
        self.index = {key: i for i, key in enumerate(found.settings)}
        self.by_entropy = ClusterSums(groups=settings * BINS, clusters=clusters, columns=wide)
        self.by_position = ClusterSums(groups=settings * BINS, clusters=clusters, columns=wide)
        self.gaps = ClusterSums(groups=settings, clusters=clusters, columns=2 * columns.num_schemes)
        self.described = ClusterSums(
            groups=settings, clusters=clusters, columns=len(columns.statistics)
        )
        self.infinite = np.zeros((settings, len(columns.statistics)))
        self.histograms = Histograms(groups=settings, columns=columns.num_schemes)
        listed = (
            0 < found.num_prompts * settings <= _MOST_LISTED_PROMPTS
            and columns.distance is not None
        )
        self.prompts = (
            ClusterSums(groups=settings, clusters=found.num_prompts, columns=1) if listed else None
        )

    def add(self, batch: dict[str, NDArray[Any]]) -> None:
        """Sum one batch of rows."""
        columns = self.columns
        keys, where = setting_keys(self.run, batch)
        setting = np.array([self.index[key] for key in keys])[where]
        prompt = self.found.rank[batch["prompt"]].astype(np.int64)
        position = batch["position"].astype(np.float64)
        values = np.stack([batch[name] for name in columns.schemes], axis=1)
        self.by_position.add(
            setting * BINS + _bins(self.found.position_edges, setting, position),
            prompt,
            np.column_stack([values, position]),
        )
        if columns.entropy:
            entropy = midpoint(batch[columns.entropy.lower], batch[columns.entropy.upper])
            group = setting * BINS + _bins(self.found.entropy_edges, setting, entropy)
            self.by_entropy.add(group, prompt, np.column_stack([values, entropy]))
        self.gaps.add(setting, prompt, self._gaps(values))
        if columns.statistics:
            described = np.stack([batch[name] for name in columns.statistics], axis=1)
            self.described.add(setting, prompt, described)
            np.add.at(self.infinite, setting, np.isinf(described))
        self.histograms.add(setting, values[:, : columns.num_schemes])
        if self.prompts is not None and columns.distance:
            overlap = 1.0 - batch[columns.distance.upper]
            self.prompts.add(setting, prompt, overlap[:, None])

    def _gaps(self, values: Floats) -> Floats:
        """Return least and largest distances to the optimum `(n, 2 schemes)`, NaN without one."""
        columns, count = self.columns, self.columns.num_schemes
        gaps = np.full((len(values), 2 * count), np.nan)
        lower, upper = values[:, :count], values[:, -count:]
        gaps[:, columns.with_optimum] = lower[:, columns.optimum] - upper[:, columns.with_optimum]
        gaps[:, [count + i for i in columns.with_optimum]] = (
            upper[:, columns.optimum] - lower[:, columns.with_optimum]
        )
        if columns.intervals:  # a certified gap is never negative, however loose its ends
            gaps = np.maximum(gaps, 0.0)
        return gaps

    def finish(self) -> Aggregates:
        """Turn sums into means with intervals."""
        settings, count = range(len(self.found.settings)), self.columns.num_schemes
        totals = [self.by_position.tables([s * BINS + b for b in range(BINS)]) for s in settings]
        both = [self._means(tables) for tables in totals]
        spreads = [clustered_covariance(sums[:, :-1], counts[:, :-1]) for sums, counts in totals]
        part = slice(count, 2 * count) if self.columns.intervals else slice(0, count)
        gaps = [ratio_of_means(*self.gaps.tables([s])) for s in settings]
        rows = np.maximum(1, np.array(self.found.rows))[:, None]
        return Aggregates(
            strata=self.found,
            num_clusters=min(self.clusters, self.found.num_prompts),
            lower=tuple(lower for lower, _ in both),
            upper=tuple(upper for _, upper in both),
            covariance=tuple(spread[:count, :count] for spread in spreads),
            covariance_upper=tuple(spread[part, part] for spread in spreads),
            gap_low=tuple(_part(gap, slice(0, count)) for gap in gaps),
            gap_high=tuple(_part(gap, slice(count, 2 * count)) for gap in gaps),
            by_entropy=tuple(self._binned(self.by_entropy, s) for s in settings),
            by_position=tuple(self._binned(self.by_position, s) for s in settings),
            histograms=self.histograms,
            statistics=tuple(
                ratio_of_means(*self.described.tables([s])).clipped(
                    self.columns.least_described, self.columns.most_described
                )
                for s in settings
            ),
            infinite=tuple(self.infinite / rows),
            prompts=self._prompts(),
        )

    def _means(self, tables: tuple[Floats, Floats]) -> tuple[Estimate, Estimate]:
        count = self.columns.num_schemes
        means = ratio_of_means(*tables).clipped(0.0, 1.0)
        lower = _part(means, slice(0, count))
        return lower, (_part(means, slice(count, 2 * count)) if self.columns.intervals else lower)

    def _binned(self, table: ClusterSums, setting: int) -> Binned:
        tables = [table.tables([setting * BINS + b]) for b in range(BINS)]
        filled = [t for t in tables if t[1][:, -1].sum() > 0]
        means = [self._means(t) for t in filled]
        return Binned(
            centre=np.array([t[0][:, -1].sum() / t[1][:, -1].sum() for t in filled]),
            rows=np.array([t[1][:, -1].sum() for t in filled]),
            lower=tuple(lower for lower, _ in means),
            upper=tuple(upper for _, upper in means),
        )

    def _prompts(self) -> tuple[tuple[NDArray[np.int64], Floats], ...] | None:
        """Return prompts' numbers and mean overlaps by setting, hardest first."""
        if self.prompts is None:
            return None
        found = []
        for setting in range(len(self.found.settings)):
            sums, counts = self.prompts.tables([setting])
            there = np.flatnonzero(counts)
            means = (sums[there] / counts[there])[:, 0]
            order = np.argsort(means, kind="stable")
            found.append((self.found.prompts[there[order]], means[order]))
        return tuple(found)


def _num_clusters(found: Strata, columns: _Columns) -> int:
    """Return the number of clusters that fit into memory, a cluster for each prompt if possible."""
    settings, wide = len(found.settings), len(columns.schemes) + 1
    fixed = 8 * settings * columns.num_schemes * Histograms.BINS
    # sums and counts: two tables by bins, the gaps of schemes at both ends, and statistics
    cells = 2 * BINS * wide + 2 * columns.num_schemes + len(columns.statistics)
    per_cluster = 2 * 8 * settings * cells
    affordable = (_MOST_BYTES - fixed) // per_cluster
    if affordable < min(_FEWEST_CLUSTERS, found.num_prompts):
        needed = fixed + per_cluster * _FEWEST_CLUSTERS
        raise AnalysisError(
            f"The tables of a report must fit into {_MOST_BYTES / 2**20:g} MiB; "
            f"{columns.num_schemes} scheme columns at {settings} "
            f"sampling settings need {needed / 2**20:.0f} MiB. Measure fewer numbers of drafts, "
            "temperatures or top-p values."
        )
    return int(min(affordable, MOST_CLUSTERS, max(1, found.num_prompts)))


def _bins(
    edges: tuple[Floats, ...], setting: NDArray[np.int64], values: Floats
) -> NDArray[np.int64]:
    found = np.zeros(len(values), dtype=np.int64)
    for i in np.unique(setting):
        rows = setting == i
        found[rows] = np.searchsorted(edges[i], values[rows], side="right")
    return found


def _part(means: Estimate, columns: slice) -> Estimate:
    return Estimate(means.value[columns], means.low[columns], means.high[columns])


ENTROPY = "target_entropy"
BINS = 10

_MOST_SETTINGS = 200
_MOST_PROMPTS = 10_000_000

SettingValues = tuple[float, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Strata:
    """Settings, prompts and bin edges of a run, from one pass over the small columns.

    Attributes:
        settings: the distinct sampling settings, ascending; one value per setting column.
        rows: number of rows of each setting.
        prompts: the numbers of those with at least one row, ascending.
        rank: of each prompt number, how many smaller ones have rows: numbers without gaps, for
            clusters of equal size.
        entropy_edges, position_edges: inner edges of the bins of each setting.
    """

    settings: tuple[SettingValues, ...]
    rows: tuple[int, ...]
    prompts: NDArray[np.int64]
    rank: NDArray[np.int32]
    entropy_edges: tuple[Floats, ...]
    position_edges: tuple[Floats, ...]

    @property
    def num_prompts(self) -> int:
        """Number of prompts with rows."""
        return len(self.prompts)


def strata_of(run: Run) -> Strata:
    """Read the small columns once: settings, prompts, and edges of bins of equal counts."""
    entropy = run.statistic(ENTROPY)
    wanted = [
        "prompt",
        "position",
        *run.setting_columns,
        *({entropy.lower, entropy.upper} if entropy else ()),
    ]
    seen = np.zeros(_MOST_PROMPTS, dtype=bool)
    tallies: dict[SettingValues, tuple[CellCounts, CellCounts]] = {}
    # Numbers are a stranger's: both tables are bounded before memory is taken for them.
    for batch in run.batches(wanted):
        top = int(batch["prompt"].max(initial=-1))
        if top >= _MOST_PROMPTS:
            raise AnalysisError(
                f"Prompts must be numbered below {_MOST_PROMPTS}; a shard has number {top}. "
                "Renumber them."
            )
        seen[batch["prompt"]] = True
        keys, where = setting_keys(run, batch)
        # Bins are cut per setting, as other settings have other entropies and positions.
        for i, key in enumerate(keys):
            if key not in tallies and len(tallies) == _MOST_SETTINGS:
                raise AnalysisError(
                    f"A report shows at most {_MOST_SETTINGS} sampling settings. Report fewer at a "
                    "time."
                )
            chosen = tallies.setdefault(
                key, (CellCounts(width=0.01, cells=3_000), CellCounts(width=1.0, cells=1 << 14))
            )
            rows = where == i
            chosen[1].add(batch["position"][rows].astype(np.float64))
            if entropy:
                chosen[0].add(midpoint(batch[entropy.lower][rows], batch[entropy.upper][rows]))
    settings, prompts = tuple(sorted(tallies)), np.flatnonzero(seen)
    return Strata(
        settings=settings,
        rows=tuple(int(tallies[key][1].counts.sum()) for key in settings),
        prompts=prompts,
        rank=np.cumsum(seen[: prompts[-1] + 1], dtype=np.int32) - np.int32(1),
        entropy_edges=tuple(tallies[key][0].edges(BINS) for key in settings),
        position_edges=tuple(tallies[key][1].edges(BINS) for key in settings),
    )


def first_setting(settings: tuple[SettingValues, ...]) -> int:
    """Return the index of the setting nearest to plain sampling, where all values are 1."""
    return min(range(len(settings)), key=lambda i: sum(abs(value - 1.0) for value in settings[i]))


def setting_keys(
    run: Run, batch: dict[str, NDArray[Any]]
) -> tuple[list[SettingValues], NDArray[np.int64]]:
    """Return the distinct settings of a batch, and the index of each row's setting."""
    table = np.column_stack([batch[name] for name in run.setting_columns])
    if not np.isfinite(table).all():
        raise AnalysisError(
            "Temperatures and top-p values must be finite numbers; a shard holds others. Measure "
            "it again."
        )
    keys, where = np.unique(table, axis=0, return_inverse=True)
    return [tuple(row) for row in keys.tolist()], np.asarray(where).reshape(-1)


def midpoint(lower: Floats, upper: Floats) -> Floats:
    """Return the middle of an interval, or the lower end if there is no upper bound."""
    return np.where(np.isfinite(upper), (lower + upper) / 2, lower)
