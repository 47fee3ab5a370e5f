"""The trees of a run by setting and scheme, computed from finished shards (`analysis.run.ranks`).

`measure --bounds` writes them to `trees.json` in the run's folder; `--check` decodes such trees
with the samplers at the positions that it looks at.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from otm._display import tabular
from otm._machine.arrays import Floats
from otm.results.statistics import ratio_of_means

from ..files import TREES, json_values, write_json
from ..models.processing import setting_text
from ..statistics import CONFIDENCE, MOST_CLUSTERS, ClusterSums, clustered_covariance
from .manifest import Manifest, table_column
from .ranks import TreeRow, acceptance_by_rank, by_rank, tree_rows
from .shards import SAMPLING, shard_batches, shard_files


@dataclasses.dataclass(frozen=True)
class SchemeTrees:
    """The trees of one scheme under one setting.

    Attributes:
        scheme, law, label: as the columns of the run.
        ks: measured numbers of drafts.
        acceptance: A, by rank.
        rows: by budget, ascending.
    """

    scheme: str
    law: str
    label: str
    ks: tuple[int, ...]
    acceptance: tuple[float, ...]
    rows: tuple[TreeRow, ...]


@dataclasses.dataclass(frozen=True)
class SettingTrees:
    """The trees under one setting of sampling, the schemes whose largest tree yields most first."""

    setting: Mapping[str, float]
    positions: int
    prompts: int
    schemes: tuple[SchemeTrees, ...]

    def __str__(self) -> str:
        best = self.schemes[0]
        at = ", ".join(setting_text(name, value) for name, value in self.setting.items())
        head = ("drafted tokens", "optimal tree, tokens a call", "no such tree passes (Tunstall)")
        rows = [(f"{row.nodes}", row.tokens.words(3), row.upper.words(3)) for row in best.rows]
        lines = [
            f"trees    {at}: {best.label}, at most {best.ks[-1]} children a vertex,",
            f"         every vertex as the mean of {self.positions:,} positions",
            *tabular.columns([head, *rows], right=range(len(head))),
        ]
        return "\n".join(lines)


def trees_of_run(out: Path, manifest: Manifest) -> tuple[SettingTrees, ...]:
    """Return the trees of every setting; nothing where no scheme accepts by rank.

    Cost: one pass over those columns, some rows in memory at a time.
    """
    families = by_rank(table_column(entry) for entry in manifest["schemes"])
    found = []
    for key, sums in sorted(
        _sums(out, [column.name for family in families for column in family]).items()
    ):
        total, counts = sums.tables([0])
        means, covariance = ratio_of_means(total, counts).value, clustered_covariance(total, counts)
        clusters = int((counts[:, 0] > 0).sum())
        schemes = scheme_trees(families, means, covariance, clusters)
        found.append(SettingTrees(dict(key), int(counts[:, 0].sum()), clusters, schemes))
    return tuple(found)


def scheme_trees(
    families: Sequence[Sequence[Any]], means: Floats, covariance: Floats, clusters: int
) -> tuple[SchemeTrees, ...]:
    """Return the trees of schemes from the means of the schemes' columns, one family after another.

    The scheme whose largest tree yields most comes first.
    """
    schemes, place = [], 0
    for family in families:
        part = slice(place, place := place + len(family))
        ks, one = tuple(column.k for column in family), family[0]
        rows = tree_rows(ks, means[part], covariance[part, part], clusters)
        vector = tuple(acceptance_by_rank(ks, means[part]).tolist())
        schemes.append(SchemeTrees(one.scheme, one.law, one.label, ks, vector, rows))
    return tuple(sorted(schemes, key=lambda one: -one.rows[-1].tokens.value))


def _sums(out: Path, names: list[str]) -> dict[tuple[tuple[str, float], ...], ClusterSums]:
    """Return the sums of some columns over prompts, by setting."""
    sums: dict[tuple[tuple[str, float], ...], ClusterSums] = {}
    for path in shard_files(out).values() if names else ():
        with pq.ParquetFile(path, pre_buffer=False) as shard:
            there = set(shard.schema_arrow.names)
            keys = [name for name in SAMPLING if name in there]
            for batch in shard_batches(shard, ["prompt", *keys, *names]):
                prompts, *values = map(np.asarray, batch)
                settings, where = np.unique(
                    np.stack(values[: len(keys)], axis=1), axis=0, return_inverse=True
                )
                rows = np.stack(values[len(keys) :], axis=1)
                for number, setting in enumerate(settings.tolist()):
                    mine = np.flatnonzero(where.reshape(-1) == number)
                    key = tuple(zip(keys, setting, strict=True))
                    if key not in sums:
                        sums[key] = ClusterSums(
                            groups=1, clusters=MOST_CLUSTERS, columns=len(names)
                        )
                    sums[key].add(np.zeros(len(mine), dtype=np.int64), prompts[mine], rows[mine])
    return sums


def write_trees(out: Path, manifest: Manifest) -> tuple[SettingTrees, ...]:
    """Write the trees of a run with bounds to the run's folder, and return the trees."""
    found = trees_of_run(out, manifest) if manifest["settings"].get("bounds") else ()
    about = {
        "format": "otm.trees",
        "version": 1,
        "confidence": CONFIDENCE,
        "shards": len(shard_files(out)),
    }
    if found:
        write_json(
            out / TREES,
            about | {"settings": json_values(found)},
        )
    return found
