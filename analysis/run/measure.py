"""Measure one shard, to a Parquet file's bytes: prompts through both models, or rows of a trace.

Of a trace the columns are certified intervals over every completion of the tails not recorded.

A shard is a pure function of its task. The batches that go through the models are formed inside the
shard, in order, and run with a fixed number of torch threads, so that a shard measured again, on
another day or by another worker, has the same bytes.
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import otm
from otm import partial
from otm._machine.compiled import compiled
from otm.table import TableColumn, table_columns

from ..models.source import PairSource, load_source
from ..provenance import environment
from ..trace.base import PATH, TraceBatch
from ..trace.traces import TraceSide, top_log_probabilities, write_trace
from .checks import NOTHING_CHECKED, Checked, check_position
from .columns import Arrays, Compared, by_settings, columns_of, in_order
from .scheduling import one_behind
from .settings import Settings
from .shards import encode_shard


@dataclasses.dataclass(frozen=True)
class ShardTask:
    """One shard of prompts."""

    index: int
    models: PairSource
    settings: Settings
    prompts: tuple[tuple[int, str], ...]
    run: str = ""  # the run's identity


@dataclasses.dataclass(frozen=True, eq=False)
class ShardResult:
    """The bytes of a finished shard and of kept logits, with the environment of the computation.

    `seconds` is what the work took, without loading models and compiling.
    """

    index: int
    shard: bytes
    logits: bytes | None
    rows: int
    contexts: int
    environment: dict[str, Any]
    seconds: float
    checked: Checked = NOTHING_CHECKED


def compile_table() -> None:
    """Compile the code of all tables, or load compiled code from the disk; once per process.

    Whichever rows a process begins with, and however often it is killed: the same last digits.
    """
    compiled("otm.table.compiled.driver", seconds=math.inf)


def measure_shard(task: ShardTask) -> ShardResult:
    """Run a shard's prompts through both models and compute every column at every position.

    Raises:
        AnalysisError: on logits with NaN or infinity, naming the model, the prompt and the
            position.
    """
    import torch

    from .positions import batches, compared_logits, windows

    settings = task.settings
    torch.set_num_threads(settings.threads)
    pair = load_source(task.models)
    if pair.device == "cpu":
        compile_table()
    began = time.monotonic()
    stream = (
        window for index, text in task.prompts for window in windows(pair, index, text, settings)
    )
    groups = batches(stream, num_tokens=pair.num_tokens, elements=settings.batch_elements)
    read = (list(compared_logits(pair, group)) for group in groups)
    pieces: list[Arrays] = []
    kept: list[tuple[Any, ...]] = []
    composition = []
    contexts = 0
    checked = NOTHING_CHECKED
    # The models' next forward pass does not wait for the columns of the last one.
    for compared, columns, logits in one_behind(
        lambda compared: (compared, *_measured(pair, compared, settings)), read
    ):
        composition.append([[window.prompt, len(window.tokens)] for window, _, _ in compared])
        contexts += sum(len(window.contexts) for window, _, _ in compared)
        pieces += columns
        checked += _checked(compared[: settings.check - checked.positions], task)
        kept += logits
    joined = in_order(pieces)
    metadata = about_shard(task.index, settings, task.run) | {
        "first_prompt": task.prompts[0][0],
        "num_prompts": len(task.prompts),
        "batches": composition,
    }
    if settings.check:
        metadata["checked"] = dataclasses.asdict(checked)
    return ShardResult(
        index=task.index,
        shard=encode_shard(joined, metadata),
        logits=_encode_logits(kept, pair.num_tokens, task) if settings.save_logits else None,
        rows=len(joined["prompt"]),
        contexts=contexts,
        environment=environment(),
        seconds=time.monotonic() - began,
        checked=checked,
    )


def _checked(compared: Sequence[Compared], task: ShardTask) -> Checked:
    """Check the columns at one position of each of these windows, drawn by the run's seed."""
    found = NOTHING_CHECKED
    for window, draft, target in compared:
        seed = [task.settings.seed, window.prompt, len(window.tokens)]
        place = int(np.random.default_rng(seed).integers(len(window.contexts)))
        found += check_position(
            draft[place].cpu().numpy(),
            target[place].cpu().numpy(),
            window.settings[0],
            task.settings.k,
            place=f"prompt {window.prompt}, position {window.contexts[place]}",
            seed=[*seed, 1],
        )
    return found


def _measured(
    pair: Any, compared: Sequence[Compared], settings: Settings
) -> tuple[list[Arrays], list[tuple[Any, ...]]]:
    """Return a batch's columns, and the windows with the likeliest tokens if logits are kept."""
    parts = by_settings(compared)
    pieces = [columns_of(part, settings) for part in parts]
    if settings.trees:
        from .tree_columns import tree_columns

        for piece, part in zip(pieces, parts, strict=True):
            piece |= tree_columns(pair, part, settings.trees, settings.seed)
    if not settings.save_logits:
        return pieces, []
    return pieces, [
        (
            window,
            *(
                top_log_probabilities(
                    side.double().log_softmax(-1).cpu().numpy(), settings.save_logits
                )
                for side in sides
            ),
        )
        for window, *sides in compared
    ]


def about_shard(index: int, settings: Settings, run: str) -> dict[str, Any]:
    """Return the metadata of a shard: number, run, settings and environment."""
    return {
        "shard": index,
        "run": run,
        "settings": settings.recorded,
        "threads": settings.threads,
        "environment": environment(),
    }


def _encode_logits(kept: Sequence[tuple[Any, ...]], num_tokens: int, task: ShardTask) -> bytes:
    """Return a trace file's bytes: the likeliest tokens and the mass of all others."""

    def joined(sides: Iterator[Any]) -> Any:
        fields = [(side.tokens, side.log_probabilities, side.log_tail) for side in sides]
        tokens, values, tails = (np.concatenate(parts) for parts in zip(*fields, strict=True))
        return TraceSide(tokens=tokens, log_probabilities=values, log_tail=tails)

    about = dict(zip(("draft_model", "target_model"), task.models.names, strict=True))
    about |= {"temperature": "1", "top_p": "1", "positions": task.settings.positions}
    several = task.settings.positions != "text" and len(task.settings.pairs) > 1
    if task.settings.positions != "text" and not several:
        (path,) = task.settings.pairs
        about |= {name: f"{value:g}" for name, value in zip(PATH, path.path, strict=True)}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "logits.safetensors"
        write_trace(
            file,
            draft=joined(draft for _, draft, _ in kept),
            target=joined(target for _, _, target in kept),
            prompt=np.concatenate(
                [np.full(len(w.contexts), w.prompt, dtype=np.int64) for w, _, _ in kept]
            ),
            position=np.concatenate([np.asarray(w.contexts, dtype=np.int64) for w, _, _ in kept]),
            num_tokens=num_tokens,
            metadata=about,
            # Along sampled paths a window is of one setting.
            paths=np.concatenate(
                [np.tile(w.settings[0].path, (len(w.contexts), 1)) for w, _, _ in kept]
            )
            if several
            else None,
            place=(task.run, task.index),
        )
        return file.read_bytes()


@dataclasses.dataclass(frozen=True, eq=False)
class TraceTask:
    """One shard of a trace."""

    index: int
    settings: Settings
    rows: TraceBatch
    run: str = ""  # the run's identity


def measure_trace(task: TraceTask) -> ShardResult:
    """Compute certified intervals of a trace's rows over every completion of the tails."""
    began = time.monotonic()
    batch, ks = task.rows, sorted(set(task.settings.k))
    values = {
        "maximal_iid": partial.acceptance(otm.Maximal(), batch.pair, k=[1]),
        "optimum_iid": partial.optimal_acceptance(batch.pair, k=ks),
        "kseq_iid": partial.acceptance(otm.KSeq(), batch.pair, k=ks),
        "recursive_rejection_iid": partial.acceptance(otm.RecursiveRejection(), batch.pair, k=ks),
    }
    described = partial.divergences(batch.pair)
    columns: Arrays = {
        "prompt": batch.prompt.astype(np.int64),
        "position": batch.position.astype(np.int32),
        "temperature": np.ones(len(batch.prompt)),
        "top_p": np.ones(len(batch.prompt)),
    }
    if batch.path is not None:
        columns |= {name: batch.path[:, i] for i, name in enumerate(PATH)}
    for name, interval in (
        ("tv", described.total_variation),
        ("kl_target_draft", described.kl_target_draft),
        ("kl_draft_target", described.kl_draft_target),
    ):
        columns[f"{name}_lower"], columns[f"{name}_upper"] = interval.lower, interval.upper
    for column in trace_columns(ks):
        place = 0 if column.stem == "maximal_iid" else ks.index(column.k)
        for end in ("lower", "upper"):
            columns[f"{column.name}_{end}"] = np.asarray(
                getattr(values[column.stem], end)[place], dtype=np.float64
            )
    rows = len(batch.prompt)
    metadata = about_shard(task.index, task.settings, task.run) | {"rows": rows}
    shard = encode_shard(columns, metadata)
    return ShardResult(task.index, shard, None, rows, rows, environment(), time.monotonic() - began)


def trace_columns(ks: Sequence[int]) -> tuple[TableColumn, ...]:
    """Return the columns that have certified intervals when only the likeliest tokens are known."""
    stems = ("optimum_iid", "kseq_iid", "recursive_rejection_iid", "maximal_iid")
    return tuple(column for column in table_columns(ks) if column.stem in stems)
