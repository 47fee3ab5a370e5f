"""Measure one shard of a run: prompts through both models, or rows of a trace, to a Parquet file's bytes.

A shard is a pure function of its task. The batches that go through the models are formed inside the shard, in order, and run with
a fixed number of torch threads, so that a shard measured again, on another day or by another worker, has the same bytes.
"""

from __future__ import annotations

import concurrent.futures as cf
import dataclasses
import functools
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import otm
from otm.table import TableColumn, table_columns
from otm.table.table import DESCRIPTIONS, unchecked_table

from ..errors import AnalysisError
from ..models.processing import Setting, distributions, settings_of
from ..provenance import environment, weights_digest
from .manifest import meaningful
from .shards import encode_shard

NOTES = {
    "text": "along the given text: every context of it, whatever the models would have written",
    "target": "along continuations sampled from the target at each row's own temperature and top-p",
    "draft": "along continuations sampled from the draft model at each row's own temperature and top-p",
    "on-policy": "at the contexts where a verifier compares the models while single-draft speculative decoding runs at each row's "
    "own temperature and top-p; the token after a fully accepted block is not drafted, so it is not compared",
    "trace": "at the positions of a recorded trace",
}
"""One sentence per kind, for whoever reads the results."""

OF_MODELS = tuple(kind for kind in NOTES if kind != "trace")
"""The positions that models can be compared at; those of a trace are its own."""

Arrays = dict[str, NDArray[Any]]
Compared = tuple[Any, Any, Any]
"""A window and the logits of both models at its contexts."""

_ROWS_AT_ONCE = 1 << 18  # elements of a chunk on the host: what the table itself works on at once
_ROWS_ON_DEVICE = 1 << 25


@dataclasses.dataclass(frozen=True)
class Models:
    """Which models, and how they are loaded."""

    draft: str | None = None
    target: str | None = None
    device: str = "auto"
    device_map: str | None = None
    dtype: str = "float32"
    trust_remote_code: bool = False

    @property
    def names(self) -> tuple[str, str]:
        """The models' names, as a reader of the results should see them."""
        return self.draft or "analysis/pair/draft", self.target or "analysis/pair/target"


@dataclasses.dataclass(frozen=True)
class Settings:
    """What is measured: everything that the values depend on besides models, prompts and software."""

    k: tuple[int, ...] = (1, 2, 4, 8)
    temperatures: tuple[float, ...] = (1.0,)
    draft_temperatures: tuple[float, ...] = ()  # the target's, if empty
    top_ps: tuple[float, ...] = (1.0,)
    positions: str = "text"
    seed: int = 0
    max_tokens: int = 512
    new_tokens: int = 64
    block: int = 4
    shard_prompts: int = 16
    batch_elements: int = 1 << 25
    precision: str = "float64"
    threads: int = 1
    save_logits: int = 0

    @property
    def pairs(self) -> tuple[Setting, ...]:
        """Every combination of temperature, top-p and draft temperature."""
        return tuple(settings_of(self.temperatures, self.top_ps, self.draft_temperatures))

    @property
    def recorded(self) -> dict[str, Any]:
        """What a run says of its settings: with a trace only those that mean something for it."""
        return meaningful(dataclasses.asdict(self))


@dataclasses.dataclass(frozen=True)
class ShardTask:
    """One shard of prompts."""

    index: int
    models: Models
    settings: Settings
    prompts: tuple[tuple[int, str], ...]


@dataclasses.dataclass(frozen=True, eq=False)
class TraceTask:
    """One shard of a trace: a `PartialPair` of some rows, and where they belong."""

    index: int
    settings: Settings
    pair: Any
    prompt: NDArray[np.int64]
    position: NDArray[np.int64]


@dataclasses.dataclass(frozen=True, eq=False)
class ShardResult:
    """The bytes of a finished shard, of its logits if they were asked for, and the environment that it was computed in.

    `seconds` is what the work took, without loading models and compiling.
    """

    index: int
    shard: bytes
    logits: bytes | None
    rows: int
    contexts: int
    environment: dict[str, Any]
    seconds: float


@functools.cache
def compile_table() -> None:
    """Compile what every table needs, or load it from where an earlier process has left it; once per process."""
    otm.acceptance_table(draft=[0.5, 0.5], target=[0.5, 0.5], k=[1])


def measure_shard(task: ShardTask) -> ShardResult:
    """Run a shard's prompts through both models and compute every column at every compared position.

    Raises:
        AnalysisError: on logits with NaN or infinity, naming the model, the prompt and the position.
    """
    import torch

    from .positions import Path as SampledPath
    from .positions import batches, compared_logits, windows

    settings = task.settings
    torch.set_num_threads(settings.threads)
    pair = loaded(task.models)
    if pair.device == "cpu":
        compile_table()
    began = time.monotonic()
    path = SampledPath(
        positions=settings.positions,  # type: ignore[arg-type]
        settings=settings.pairs,
        max_tokens=settings.max_tokens,
        new_tokens=settings.new_tokens,
        block=settings.block,
        seed=settings.seed,
    )
    stream = (window for index, text in task.prompts for window in windows(pair, index, text, path))
    pieces: list[Arrays] = []
    kept: list[tuple[Any, ...]] = []
    composition = []
    contexts = 0
    for group in batches(stream, num_tokens=pair.num_tokens, elements=settings.batch_elements):
        composition.append([[window.prompt, len(window.tokens)] for window in group])
        compared = list(compared_logits(pair, group))
        contexts += sum(len(window.contexts) for window, _, _ in compared)
        pieces += [_columns(part, settings) for part in _by_settings(compared)]
        if settings.save_logits:
            kept += [(window, *(_top(side, settings.save_logits) for side in sides)) for window, *sides in compared]
    columns = _in_order(pieces)
    metadata = _metadata(task.index, settings) | {
        "first_prompt": task.prompts[0][0],
        "num_prompts": len(task.prompts),
        "batches": composition,
    }
    return ShardResult(
        index=task.index,
        shard=encode_shard(columns, metadata),
        logits=_encode_logits(kept, pair.num_tokens, task) if settings.save_logits else None,
        rows=len(columns["prompt"]),
        contexts=contexts,
        environment=environment(),
        seconds=time.monotonic() - began,
    )


def measure_trace(task: TraceTask) -> ShardResult:
    """Compute the certified intervals of a trace's rows: lower and upper columns over every completion of the tails."""
    from otm import partial

    began = time.monotonic()
    ks = sorted(set(task.settings.k))
    values = {
        "maximal_iid": partial.acceptance(otm.Maximal(), task.pair, k=[1]),
        "optimum_iid": partial.optimal_acceptance(task.pair, k=ks),
        "kseq_iid": partial.acceptance(otm.KSeq(), task.pair, k=ks),
        "recursive_rejection_iid": partial.acceptance(otm.RecursiveRejection(), task.pair, k=ks),
    }
    described = partial.divergences(task.pair)
    columns: Arrays = {
        "prompt": task.prompt.astype(np.int64),
        "position": task.position.astype(np.int32),
        "temperature": np.ones(len(task.prompt)),
        "top_p": np.ones(len(task.prompt)),
    }
    for name, interval in (
        ("tv", described.total_variation),
        ("kl_target_draft", described.kl_target_draft),
        ("kl_draft_target", described.kl_draft_target),
    ):
        columns[f"{name}_lower"], columns[f"{name}_upper"] = interval.lower, interval.upper
    for column in trace_columns(ks):
        place = 0 if column.stem == "maximal_iid" else ks.index(column.k)
        for end in ("lower", "upper"):
            columns[f"{column.name}_{end}"] = np.asarray(getattr(values[column.stem], end)[place], dtype=np.float64)
    metadata = _metadata(task.index, task.settings) | {"rows": len(task.prompt)}
    rows = len(task.prompt)
    shard = encode_shard(columns, metadata)
    return ShardResult(task.index, shard, None, rows, rows, environment(), time.monotonic() - began)


def trace_columns(ks: Sequence[int]) -> tuple[TableColumn, ...]:
    """Return the columns that have certified intervals when only the likeliest tokens are known."""
    stems = ("optimum_iid", "kseq_iid", "recursive_rejection_iid", "maximal_iid")
    return tuple(column for column in table_columns(ks) if column.stem in stems)


def describe_models(models: Models) -> dict[str, Any]:
    """Load the pair where this runs and return what its measurements depend on."""
    import torch

    pair = loaded(models)
    device = "cpu" if pair.device == "cpu" else torch.cuda.get_device_name(pair.device)
    sides = (("draft", pair.draft), ("target", pair.target))
    return environment() | {
        "device": device,
        "device_map": models.device_map,
        "num_tokens": pair.num_tokens,
        "notes": list(pair.notes),
        "weights": {name: weights_digest(str(model.config._name_or_path)) for name, model in sides},
        "model_revisions": {name: getattr(model.config, "_commit_hash", None) for name, model in sides},
    }


@functools.lru_cache(maxsize=1)
def loaded(models: Models) -> Any:
    """Return the pair, loaded once per process."""
    import torch

    from ..models.pair import load_pair

    kinds = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
    if models.dtype not in kinds:
        raise AnalysisError(f"The weights' dtype must be one of {', '.join(kinds)}; got {models.dtype!r}. Choose one.")
    return load_pair(
        draft=models.draft,
        target=models.target,
        device=models.device,
        device_map=models.device_map,
        dtype=kinds[models.dtype],
        trust_remote_code=models.trust_remote_code,
    )


def table_of_logits(
    draft: Any, target: Any, settings: Sequence[Setting], ks: Sequence[int], *, precision: str = "float64", threads: int = 1
) -> NDArray[np.float64]:
    """Return every column and description under every setting, `(settings, columns + 5, rows)`, from logits `(rows, V)`.

    Rows are independent: on the host chunks of them are shared among `threads`, which changes no value.
    """
    width = int(draft.shape[-1])
    on_host = isinstance(draft, np.ndarray)
    step = max(1, (_ROWS_AT_ONCE if on_host else _ROWS_ON_DEVICE) // width)
    starts = range(0, len(draft), step)

    def chunk(start: int) -> NDArray[np.float64]:
        return _chunk(draft[start : start + step], target[start : start + step], settings, ks, precision)

    if not on_host or threads == 1 or len(starts) == 1:
        return np.concatenate([chunk(start) for start in starts], axis=-1)
    with cf.ThreadPoolExecutor(threads) as pool:
        return np.concatenate(list(pool.map(chunk, starts)), axis=-1)


def _chunk(draft: Any, target: Any, settings: Sequence[Setting], ks: Sequence[int], precision: str) -> NDArray[np.float64]:
    if precision == "float64":
        draft, target = (z.astype(np.float64) if isinstance(z, np.ndarray) else z.double() for z in (draft, target))
    values = []
    columns = table_columns(ks)
    for (p, log_p), (q, log_q) in zip(
        distributions(draft, [setting.draft for setting in settings]),
        distributions(target, [setting.target for setting in settings]),
        strict=True,
    ):
        table = unchecked_table(p, q, log_p, log_q, columns)
        parts = [table.values, *(table.description[name][None] for name in DESCRIPTIONS)]
        values.append(np.concatenate([x if isinstance(x, np.ndarray) else x.cpu().numpy() for x in parts]))
    return np.stack(values)


def _by_settings(compared: Sequence[Compared]) -> list[list[Compared]]:
    """Group the windows of a batch that are measured under the same settings, so that they share one call."""
    groups: dict[Any, list[Compared]] = {}
    for part in compared:
        groups.setdefault(part[0].settings, []).append(part)
    return list(groups.values())


def _columns(parts: Sequence[Compared], settings: Settings) -> Arrays:
    """Return the columns of windows with common settings, positions outside, settings inside."""
    import torch

    sides = [torch.cat([part[side] for part in parts]) for side in (1, 2)]
    if sides[0].device.type == "cpu":
        sides = [side.numpy() for side in sides]
    pairs = parts[0][0].settings
    table = table_of_logits(*sides, pairs, settings.k, precision=settings.precision, threads=settings.threads)
    by_row = table.transpose(2, 0, 1).reshape(-1, table.shape[1])  # (rows · settings, columns)
    contexts = np.concatenate([np.asarray(window.contexts, dtype=np.int32) for window, _, _ in parts])
    owners = np.concatenate([np.full(len(window.contexts), window.prompt, dtype=np.int64) for window, _, _ in parts])
    named = table_columns(settings.k)
    columns: Arrays = {
        "prompt": np.repeat(owners, len(pairs)),
        "position": np.repeat(contexts, len(pairs)),
        "temperature": np.tile([setting.temperature for setting in pairs], len(contexts)),
        "top_p": np.tile([setting.top_p for setting in pairs], len(contexts)),
    }
    if settings.draft_temperatures:
        columns["draft_temperature"] = np.tile([setting.draft_temperature for setting in pairs], len(contexts))
    columns |= {name: by_row[:, len(named) + i] for i, name in enumerate(DESCRIPTIONS)}
    return columns | {column.name: by_row[:, i] for i, column in enumerate(named)}


def _in_order(pieces: Sequence[Arrays]) -> Arrays:
    """Join pieces and sort by prompt, position and setting (along sampled paths every setting has windows of its own)."""
    joined = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
    keys = [name for name in ("draft_temperature", "top_p", "temperature", "position", "prompt") if name in joined]
    order = np.lexsort([joined[name] for name in keys])
    return {name: np.ascontiguousarray(values[order]) for name, values in joined.items()}


def _metadata(index: int, settings: Settings) -> dict[str, Any]:
    return {"shard": index, "settings": settings.recorded, "threads": settings.threads, "environment": environment()}


def _top(logits: Any, count: int) -> Any:
    from ..trace.traces import top_log_probabilities

    return top_log_probabilities(logits.double().log_softmax(-1).cpu().numpy(), count)


def _encode_logits(kept: Sequence[tuple[Any, ...]], num_tokens: int, task: ShardTask) -> bytes:
    """Return a trace file's bytes: the likeliest tokens and the mass of all others, at temperature 1 and without top-p."""
    from ..trace.traces import TraceSide, write_trace

    def joined(sides: Iterator[Any]) -> Any:
        fields = [(side.tokens, side.log_probabilities, side.log_tail) for side in sides]
        tokens, values, tails = (np.concatenate(parts) for parts in zip(*fields, strict=True))
        return TraceSide(tokens=tokens, log_probabilities=values, log_tail=tails)

    about = dict(zip(("draft_model", "target_model"), task.models.names, strict=True))
    about |= {"temperature": "1", "top_p": "1", "positions": task.settings.positions}
    if task.settings.positions != "text":
        (path,) = task.settings.pairs  # `check_settings` lets no more of them in
        about |= {f"path_{name}": f"{value:g}" for name, value in path._asdict().items()}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "logits.safetensors"
        write_trace(
            file,
            draft=joined(draft for _, draft, _ in kept),
            target=joined(target for _, _, target in kept),
            prompt=np.concatenate([np.full(len(w.contexts), w.prompt, dtype=np.int64) for w, _, _ in kept]),
            position=np.concatenate([np.asarray(w.contexts, dtype=np.int64) for w, _, _ in kept]),
            num_tokens=num_tokens,
            metadata=about,
        )
        return file.read_bytes()


def check_settings(settings: Settings, *, positions: Sequence[str]) -> Settings:
    """Return the settings, or raise `AnalysisError` or a parameter error of `otm` on the first that makes no sense.

    Args:
        settings: what is to be measured.
        positions: the kinds of positions to choose from.
    """
    table_columns(settings.k)
    for name in ("seed", "max_tokens", "new_tokens", "block", "shard_prompts", "batch_elements", "threads", "save_logits"):
        least = 0 if name in ("seed", "save_logits") else 1
        otm.pmf.check_count(getattr(settings, name), name=name, minimum=least)
    for temperature in (*settings.temperatures, *settings.draft_temperatures):
        if not temperature >= 0.0:  # NaN is not
            raise AnalysisError(f"A temperature must be a number ≥ 0; got {temperature!r}. 0 stands for the likeliest token.")
    for top_p in settings.top_ps:
        otm.pmf.check_real(top_p, name="top_p", low=0.0, high=1.0, open_low=True)
    choices = {"positions": positions, "precision": ("float32", "float64")}
    for name, allowed in choices.items():
        if getattr(settings, name) not in allowed:
            raise AnalysisError(f"{name} must be one of {', '.join(allowed)}; got {getattr(settings, name)!r}. Choose one.")
    if settings.save_logits and settings.positions != "text" and len(settings.pairs) > 1:
        raise AnalysisError(
            f"Logits along sampled paths are saved for one setting: a trace does not say which path a context is on; "
            f"got {len(settings.pairs)} combinations of temperature and top-p. Measure each into a run of its own, or the "
            "positions of the text."
        )
    return settings
