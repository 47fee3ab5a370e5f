"""The first pass over a run: which settings and prompts there are, and where bins of equally many
positions lie.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import AnalysisError
from ..statistics import Floats, Tally
from .reading import Run

ENTROPY = "target_entropy"
BINS = 10

_MOST_SETTINGS = 200
_MOST_PROMPTS = 10_000_000

Setting = tuple[float, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Survey:
    """What the first pass found.

    Attributes:
        settings: the distinct sampling settings, ascending; one value per setting column.
        rows: number of rows of each setting.
        num_prompts: distinct prompts with at least one row.
        rank: of each prompt number, how many smaller ones have rows: numbers without gaps, for
            clusters of equal size.
        entropy_edges, position_edges: inner edges of the bins of each setting.
    """

    settings: tuple[Setting, ...]
    rows: tuple[int, ...]
    num_prompts: int
    rank: NDArray[np.int32]
    entropy_edges: tuple[Floats, ...]
    position_edges: tuple[Floats, ...]


def survey(run: Run) -> Survey:
    """Read the small columns once: settings, prompts, and where bins of equally many positions lie."""
    entropy = run.statistic(ENTROPY)
    wanted = [
        "prompt",
        "position",
        *run.setting_columns,
        *({entropy.lower, entropy.upper} if entropy else ()),
    ]
    seen = np.zeros(0, dtype=bool)
    tallies: dict[Setting, tuple[Tally, Tally]] = {}
    for batch in run.batches(wanted):
        seen = _mark(seen, batch["prompt"])
        keys, where = setting_keys(run, batch)
        for i, key in enumerate(keys):
            if key not in tallies and len(tallies) == _MOST_SETTINGS:
                raise AnalysisError(
                    f"A report shows at most {_MOST_SETTINGS} sampling settings. Report fewer at a "
                    "time."
                )
            chosen = tallies.setdefault(
                key, (Tally(width=0.01, cells=3_000), Tally(width=1.0, cells=1 << 14))
            )
            rows = where == i
            chosen[1].add(batch["position"][rows].astype(np.float64))
            if entropy:
                chosen[0].add(middle(batch[entropy.lower][rows], batch[entropy.upper][rows]))
    settings = tuple(sorted(tallies))
    return Survey(
        settings=settings,
        rows=tuple(int(tallies[key][1].counts.sum()) for key in settings),
        num_prompts=int(seen.sum()),
        rank=np.cumsum(seen, dtype=np.int32) - np.int32(1),
        entropy_edges=tuple(tallies[key][0].edges(BINS) for key in settings),
        position_edges=tuple(tallies[key][1].edges(BINS) for key in settings),
    )


def first_setting(settings: tuple[Setting, ...]) -> int:
    """Return the setting that a report shows first: the one nearest to all ones, that is, to plain
    sampling.
    """
    return min(range(len(settings)), key=lambda i: sum(abs(value - 1.0) for value in settings[i]))


def setting_keys(
    run: Run, batch: dict[str, NDArray[Any]]
) -> tuple[list[Setting], NDArray[np.int64]]:
    """Return the distinct settings of a batch, and which each row has."""
    table = np.column_stack([batch[name] for name in run.setting_columns])
    if not np.isfinite(table).all():
        raise AnalysisError(
            "Temperatures and top-p values must be finite numbers; a shard holds others. Measure "
            "it again."
        )
    keys, where = np.unique(table, axis=0, return_inverse=True)
    return [tuple(row) for row in keys.tolist()], np.asarray(where).reshape(-1)


def _mark(seen: NDArray[np.bool_], prompt: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mark prompts as seen, in an array of one byte per prompt that grows by doubling."""
    top = int(prompt.max(initial=-1))
    if top >= _MOST_PROMPTS:
        raise AnalysisError(
            f"Prompts must be numbered below {_MOST_PROMPTS}; a shard has number {top}. Renumber "
            "them."
        )
    if top >= len(seen):
        seen = np.concatenate([seen, np.zeros(max(top + 1, 2 * len(seen)) - len(seen), dtype=bool)])
    seen[prompt] = True
    return seen


def middle(lower: Floats, upper: Floats) -> Floats:
    """Return the middle of an interval, its lower end where nothing bounds it above."""
    return np.where(np.isfinite(upper), (lower + upper) / 2, lower)
