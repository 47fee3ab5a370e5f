"""From the logits of both models to the columns of a shard."""

from __future__ import annotations

import concurrent.futures as cf
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm import Processing
from otm._machine.arrays import reserve
from otm._machine.compiled import compiled
from otm.table.table import RequestedColumns, unchecked_table

from ..models.processing import Setting, distributions
from .bound_columns import bound_columns
from .loss_columns import loss_columns
from .settings import Settings

Arrays = dict[str, NDArray[Any]]
Compared = tuple[Any, Any, Any]
"""A window and the logits of both models at its contexts."""

_ROWS_AT_ONCE = 1 << 18  # elements of a chunk on the host: what the table itself works on at once
_ROWS_ON_DEVICE = 1 << 25
_ARRAYS = (
    10  # of a chunk: logits, masses and logarithms of both models, and what the table allocates
)


def table_of_logits(
    draft: Any,
    target: Any,
    settings: Sequence[Setting],
    wanted: RequestedColumns,
    *,
    precision: str = "float64",
    threads: int = 1,
) -> NDArray[np.float64]:
    """Return columns and descriptions `(settings, columns + descriptions, rows)` of logits.

    Logits are `(rows, V)`.

    Rows are independent: on the host chunks of them are shared among `threads`, which changes no
    value.
    """
    width = int(draft.shape[-1])
    on_host = isinstance(draft, np.ndarray)
    step = max(1, (_ROWS_AT_ONCE if on_host else _ROWS_ON_DEVICE) // width)
    starts = range(0, len(draft), step)

    def chunk(start: int) -> NDArray[np.float64]:
        return _chunk(
            draft[start : start + step], target[start : start + step], settings, wanted, precision
        )

    if not on_host or threads == 1 or len(starts) == 1:
        return np.concatenate([chunk(start) for start in starts], axis=-1)
    with cf.ThreadPoolExecutor(threads) as pool:
        return np.concatenate(list(pool.map(chunk, starts)), axis=-1)


def _chunk(
    draft: Any, target: Any, settings: Sequence[Setting], wanted: RequestedColumns, precision: str
) -> NDArray[np.float64]:
    if precision == "float64":
        draft, target = (
            z.astype(np.float64) if isinstance(z, np.ndarray) else z.double()
            for z in (draft, target)
        )
    values = []
    reserve(_ARRAYS * draft.shape[0] * draft.shape[1])
    on_host = isinstance(draft, np.ndarray)
    by_rows = on_host and compiled("otm.table.compiled.driver", seconds=0.0) is not None
    laws = distributions if by_rows else _processed
    for (p, log_p), (q, log_q) in zip(
        laws(draft, [setting.draft for setting in settings]),
        laws(target, [setting.target for setting in settings]),
        strict=True,
    ):
        table = unchecked_table(p, q, log_p, log_q, wanted)
        parts = [table.values, *(table.description[name][None] for name in wanted.descriptions)]
        values.append(
            np.concatenate([x if isinstance(x, np.ndarray) else x.cpu().numpy() for x in parts])
        )
    return np.stack(values)


def _processed(logits: Any, settings: Sequence[Processing]) -> Iterator[tuple[Any, None]]:
    """Yield the probabilities of each setting, without logarithms."""
    return ((one(logits), None) for one in settings)


def by_settings(compared: Sequence[Compared]) -> list[list[Compared]]:
    """Group the windows of a batch by sampling settings."""
    groups: dict[Any, list[Compared]] = {}
    for part in compared:
        groups.setdefault(part[0].settings, []).append(part)
    return list(groups.values())


def columns_of(parts: Sequence[Compared], settings: Settings) -> Arrays:
    """Return the columns of windows with common settings, positions outside, settings inside."""
    import torch

    draft, target = (torch.cat([part[side] for part in parts]) for side in (1, 2))
    logits = (draft.numpy(), target.numpy()) if draft.device.type == "cpu" else (draft, target)
    pairs = parts[0][0].settings
    wanted = settings.wanted
    table = table_of_logits(
        logits[0], logits[1], pairs, wanted, precision=settings.precision, threads=settings.threads
    )
    by_row = table.transpose(2, 0, 1).reshape(-1, table.shape[1])  # (rows · settings, columns)
    contexts = np.concatenate(
        [np.asarray(window.contexts, dtype=np.int32) for window, _, _ in parts]
    )
    owners = np.concatenate(
        [np.full(len(window.contexts), window.prompt, dtype=np.int64) for window, _, _ in parts]
    )
    columns: Arrays = {
        "prompt": np.repeat(owners, len(pairs)),
        "position": np.repeat(contexts, len(pairs)),
        "temperature": np.tile([setting.target.temperature for setting in pairs], len(contexts)),
        "top_p": np.tile([setting.target.top_p for setting in pairs], len(contexts)),
    }
    if settings.draft_temperatures:
        columns["draft_temperature"] = np.tile(
            [setting.draft.temperature for setting in pairs], len(contexts)
        )
    if settings.otherwise.draft.top_p is not None:
        columns["draft_top_p"] = np.tile([setting.draft.top_p for setting in pairs], len(contexts))
    columns |= {
        name: by_row[:, len(wanted.columns) + i] for i, name in enumerate(wanted.descriptions)
    }
    if settings.bounds:
        columns |= bound_columns(draft.cpu().numpy(), target.cpu().numpy(), pairs, settings.k)
    if settings.losses:
        columns |= loss_columns(draft.cpu().numpy(), target.cpu().numpy(), pairs, settings.k)
    return columns | {column.name: by_row[:, i] for i, column in enumerate(wanted.columns)}


def in_order(pieces: Sequence[Arrays]) -> Arrays:
    """Join pieces and sort by prompt, position and setting."""
    joined = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
    keys = [
        name
        for name in (
            "draft_temperature",
            "draft_top_p",
            "top_p",
            "temperature",
            "position",
            "prompt",
        )
        if name in joined
    ]
    order = np.lexsort([joined[name] for name in keys])
    return {name: np.ascontiguousarray(values[order]) for name, values in joined.items()}
