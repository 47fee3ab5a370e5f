"""A run on disk: the plan, the shards, and resumption after a stop.

A run with the same settings and the same provenance gets the shards that are missing; any other
run is left untouched (`analysis.run.manifest`). The layout and how to read it without
torch: docs/runs.md.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from otm._machine.progress import report_phase

from ..errors import AnalysisError
from ..files import (
    LOCK,
    LOGITS,
    MANIFEST,
    PROMPTS,
    is_folder,
    make_folder,
    open_atomically,
    write_atomically,
)
from ..models.prompts import Digest, PromptSource, in_shards, prompts
from ..models.source import PairSource, describe_source, load_source
from ..provenance import differences, environment, file_digest
from .checks import NOTHING_CHECKED, Checked
from .identity import check_kept_logits, check_shards, join_logits, run_identity
from .manifest import Manifest, as_intervals, manifest_of, read_manifest, write_or_check_manifest
from .measure import (
    ShardResult,
    ShardTask,
    TraceTask,
    compile_table,
    measure_shard,
    measure_trace,
    trace_columns,
)
from .scheduling import Workers, run_each
from .settings import NOTES, Settings, check_settings
from .shards import exclusive, finished_shards, logits_path, shard_path
from .trees import SettingTrees, write_trees

_EXCERPT = 200
_PROMPTS_AT_ONCE = 1024


@dataclasses.dataclass(frozen=True)
class Summary:
    """The result of a call: shards there in all, shards written now, with rows and contexts.

    `seconds` run from when the first shard that came was begun: models were loaded by then, and
    nothing was left to compile. `checked`: columns and trees against samplers, where asked for;
    `trees`, with the bounds: of all shards there.
    """

    num_shards: int
    finished: int
    written: int
    rows: int
    contexts: int
    seconds: float
    checked: Checked = NOTHING_CHECKED
    trees: tuple[SettingTrees, ...] = ()


def measure_prompts(
    out: Path,
    *,
    source: PromptSource,
    models: PairSource,
    settings: Settings,
    workers: Workers | None = None,
    share: range | None = None,
    allow: Collection[str] = (),
    options: Mapping[str, Any] | None = None,
) -> Summary:
    """Measure prompts with two models into a new run, or complete a run.

    Args:
        out: the run's folder.
        source, models, settings: prompts, models and settings of the measurement.
        workers: processes or cluster that compute the shards.
        share: numbers of the shards to compute, for one machine of several; those that do not exist
            are left out. None for all.
        allow: places where settings or provenance may differ from those of an existing run.
        options: of the command line, for the manifest of a new run.

    Raises:
        AnalysisError: whatever stops the run. Finished shards stay.
    """
    check_settings(settings)
    place = workers or Workers()
    place.check()
    with _held(out):
        digest = Digest()
        started = (out / MANIFEST).is_file()
        report_phase("prompts and finished shards: reading")
        _check_run(out)
        stream = _digested(source, digest)
        if started:
            for _ in stream:
                pass
        else:
            _write_prompts(out / PROMPTS, stream)
        if digest.count == 0:
            raise AnalysisError(
                f"A measurement needs at least one prompt; {source.name} has none. Give one per "
                "line."
            )
        plan = _plan(digest.count, settings.shard_prompts, "prompt")
        wanted = _missing(out, plan, share, with_logits=settings.save_logits > 0)
        place = place.for_pieces(len(wanted))
        described = _describe(models, place)
        if described["device"] != "cpu":
            # this process holds the device already, some serve one only
            place = dataclasses.replace(place, apart=False)
        named = {"draft": models.names[0], "target": models.names[1], "dtype": models.dtype}
        asked = named | {
            "prompts": {"name": source.name, "sha256": digest.hexadecimal, "count": digest.count}
        }
        recorded, note = settings.recorded | asked, NOTES[settings.positions]
        held = settings.wanted
        manifest = manifest_of(recorded, note, described, plan, held.columns, held.descriptions)
        manifest = write_or_check_manifest(out, manifest | {"options": dict(options or {})}, allow)
        run = run_identity(manifest)
        if wanted and place.scheduler is None and described["device"] == "cpu":
            report_phase(
                "compiled code: loading; made anew once per installation, some ten seconds"
            )
            compile_table()  # before workers start, or each of them would
        tasks = (
            ShardTask(index, models, settings, tuple((p.index, p.text) for p in group), run)
            for index, group in enumerate(in_shards(source, settings.shard_prompts))
            if index in wanted
        )
        done = _run(out, manifest, place, measure_shard, tasks, wanted)
        trees = write_trees(out, manifest)
    return dataclasses.replace(done, trees=trees)


def measure_trace_file(
    out: Path,
    *,
    trace: Path,
    settings: Settings,
    workers: Workers | None = None,
    share: range | None = None,
    allow: Collection[str] = (),
    options: Mapping[str, Any] | None = None,
) -> Summary:
    """Measure certified intervals on a trace into a run; arguments as `measure_prompts`.

    A shard holds `settings.shard_prompts` positions of the trace.
    """
    from ..trace.traces import open_trace

    check_settings(settings)
    place = workers or Workers()
    place.check()
    opened = open_trace(trace)
    rows = settings.shard_prompts
    with _held(out):
        report_phase("trace and finished shards: reading")
        _check_run(out)
        count = opened.num_positions
        if count is None:
            count = sum(len(batch.prompt) for batch in opened.batches(rows=rows))
        if count == 0:
            raise AnalysisError(f"A measurement needs at least one position; {trace} has none.")
        described = environment() | {
            "num_tokens": opened.num_tokens,
            "notes": [],
            "device": "cpu",
            "trace": dict(opened.metadata),
        }
        asked = {
            "trace": {
                "name": trace.name,
                "sha256": _trace_digest(trace, opened.files),
                "positions": count,
            }
        }
        recorded, note = settings.recorded | asked, NOTES[settings.positions]
        plan = _plan(count, rows, "position")
        wanted = _missing(out, plan, share)
        manifest = manifest_of(recorded, note, described, plan, trace_columns(settings.k))
        manifest = write_or_check_manifest(
            out, as_intervals(manifest) | {"options": dict(options or {})}, allow
        )
        run = run_identity(manifest)
        if not (out / PROMPTS).is_file():
            _write_prompts(out / PROMPTS, iter(()))
        first = min(wanted, default=0)
        tasks = (
            TraceTask(first + number, settings, batch, run)
            for number, batch in enumerate(opened.batches(rows=rows, start=first * rows))
            if first + number in wanted
        )
        return _run(out, manifest, place.for_pieces(len(wanted)), measure_trace, tasks, wanted)


@contextlib.contextmanager
def _held(out: Path) -> Iterator[None]:
    """Hold a run's folder; one made here is removed again if the run gets no manifest."""
    made = not is_folder(out)
    with exclusive(make_folder(out)):
        try:
            yield
        except BaseException:
            if made and not (out / MANIFEST).is_file():
                with contextlib.suppress(OSError):
                    for name in (PROMPTS, LOCK):
                        (out / name).unlink(missing_ok=True)
                    out.rmdir()
            raise


def _check_run(out: Path) -> None:
    """Check the shards and the logits of a run, if one is there."""
    if (out / MANIFEST).is_file():
        manifest = read_manifest(out)
        check_shards(out, manifest)
        check_kept_logits(out, manifest)


def _describe(models: PairSource, place: Workers) -> dict[str, Any]:
    """Describe the models on the workers' machine, and keep no copy in memory elsewhere."""
    if place.scheduler is not None:
        return next(run_each(place, describe_source, [models]))
    described = describe_source(models)
    if place.count > 1 or (place.apart and described["device"] == "cpu"):
        load_source.cache_clear()
    return described


def _run(
    out: Path,
    manifest: Manifest,
    place: Workers,
    function: Callable[[Any], ShardResult],
    tasks: Iterable[Any],
    wanted: set[int],
) -> Summary:
    """Compute the wanted shards and write each on arrival."""
    total, size = (
        manifest["plan"][f"num_{_unit(manifest)}s"],
        manifest["plan"][f"{_unit(manifest)}s_per_shard"],
    )
    # earlier ones had fewer
    here = {
        key: manifest["provenance"][key] for key in environment() if key in manifest["provenance"]
    }
    keep_logits = bool(manifest["settings"].get("save_logits"))
    if keep_logits:
        make_folder(out / LOGITS)
    start, rows, contexts, written = math.inf, 0, 0, 0
    checked = NOTHING_CHECKED
    done = total - sum(min(size, total - index * size) for index in wanted)
    report_phase(f"{_unit(manifest)}s", f"{done:,} of {total:,}")
    for result in run_each(place, function, tasks, name=lambda task: f"shard {task.index}"):
        # Clocks of two machines differ, durations do not.
        start = min(start, time.monotonic() - result.seconds)
        if found := differences(here, {key: result.environment[key] for key in here}):
            raise AnalysisError(
                "Every worker must run the software of the run; one differs: "
                f"{'; '.join(found)}. Update it."
            )
        if result.logits is not None:
            write_atomically(logits_path(out, result.index), result.logits)
        write_atomically(shard_path(out, result.index), result.shard)
        rows, contexts, written = rows + result.rows, contexts + result.contexts, written + 1
        checked += result.checked
        done += min(size, total - result.index * size)
        rate = f"{contexts / (time.monotonic() - start):,.0f} positions per second"
        report_phase(f"{_unit(manifest)}s", f"{done:,} of {total:,}, {rate}")
    finished = finished_shards(out)
    if keep_logits:
        join_logits(out, manifest)
    return Summary(
        num_shards=manifest["plan"]["num_shards"],
        finished=len(finished),
        written=written,
        rows=rows,
        contexts=contexts,
        seconds=time.monotonic() - start if written else 0.0,
        checked=checked,
    )


def _unit(manifest: Manifest) -> str:
    return "prompt" if "num_prompts" in manifest["plan"] else "position"


def _plan(count: int, size: int, unit: str) -> dict[str, int]:
    return {
        f"num_{unit}s": count,
        f"{unit}s_per_shard": size,
        "num_shards": math.ceil(count / size),
    }


def _missing(
    out: Path, plan: dict[str, int], share: range | None, *, with_logits: bool = False
) -> set[int]:
    """Return the shards to compute, also finished shards whose logits are gone."""
    whole = range(plan["num_shards"])
    if share is not None and (
        share.start < 0 or share.start >= max(share.stop, 1) or share.start >= len(whole)
    ):
        raise AnalysisError(
            f"Shards are numbered 0 to {len(whole) - 1} here; got {share.start}:{share.stop}. Pass "
            "some of these."
        )
    there = {i for i in finished_shards(out) if not with_logits or logits_path(out, i).is_file()}
    return set(whole if share is None else range(share.start, min(share.stop, len(whole)))) - there


def _digested(source: PromptSource, digest: Digest) -> Iterator[Any]:
    for prompt in prompts(source):
        digest.update(prompt)
        yield prompt


_PROMPT_SCHEMA = pa.schema(
    [
        ("prompt", pa.int64()),
        ("name", pa.string()),
        ("text", pa.string()),
        ("characters", pa.int64()),
    ]
)


def _write_prompts(path: Path, stream: Iterator[Any]) -> None:
    """Write the table of prompts, an excerpt of each, in bounded memory."""
    with (
        open_atomically(path) as file,
        pq.ParquetWriter(file, _PROMPT_SCHEMA, compression="zstd") as writer,
    ):
        rows: list[dict[str, Any]] = []
        for prompt in stream:
            text = prompt.text[:_EXCERPT].encode("utf-8", "replace").decode("utf-8")
            rows.append(
                {
                    "prompt": prompt.index,
                    "name": prompt.name,
                    "text": text,
                    "characters": len(prompt.text),
                }
            )
            if len(rows) == _PROMPTS_AT_ONCE:
                writer.write_table(pa.Table.from_pylist(rows, schema=_PROMPT_SCHEMA))
                rows = []
        writer.write_table(pa.Table.from_pylist(rows, schema=_PROMPT_SCHEMA))


def _trace_digest(path: Path, files: Sequence[Path]) -> str:
    """Return the SHA-256 over the files of a trace and the list of files."""
    import hashlib

    from ..trace.base import MANIFEST as NAMES

    digest = hashlib.sha256()
    for file in [*([path / NAMES] if path.is_dir() else []), *files]:
        digest.update(bytes.fromhex(file_digest(file)))
    return digest.hexdigest()
