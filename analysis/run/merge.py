"""Put the shards of one run, measured on several machines, into one folder."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Sequence
from pathlib import Path

from ..errors import AnalysisError
from ..files import make_folder, write_atomically, write_json
from ..layout import LOGITS, MANIFEST, PROMPTS, SHARDS
from ..provenance import INCIDENTAL
from ..trace.traces import complete_trace
from .manifest import Manifest, compare_manifests, meaningful, read_manifest
from .shards import exclusive, finished_shards, read_shard, shard_path


@dataclasses.dataclass(frozen=True)
class Merged:
    """What the merged run holds: shards there, and the numbers of those still missing."""

    finished: int
    missing: tuple[int, ...]


def merge(runs: Sequence[Path], out: Path, *, allow: Collection[str] = ()) -> Merged:
    """Copy the shards of several parts of one run into `out`, a new run or one of the same run's parts.

    Everything is checked before anything is written. A shard that several parts have must be the same in all.

    Args:
        runs: folders that `measure` wrote with the same settings and software, each with some of the shards.
        out: the folder that will have all of them.
        allow: places where settings or provenance may differ, such as "provenance.processor".

    Raises:
        AnalysisError: if settings or provenance differ, saying where; if a shard differs between parts, or is not of its run.
    """
    if not runs:
        raise AnalysisError("Merging needs at least one run; got none. Name their folders.")
    if repeated := [str(run) for run in runs if run.resolve() == out.resolve()]:
        raise AnalysisError(f"A run cannot be merged into itself; {repeated[0]} is the output, too. Leave it out of the runs.")
    parts = [*([out] if (out / MANIFEST).is_file() else []), *runs]
    manifests = [read_manifest(run) for run in parts]
    for run, manifest in zip(parts[1:], manifests[1:], strict=True):
        if found := compare_manifests(manifests[0], manifest, allow):
            if parts[0] == out and run == runs[0]:
                # Two runs differ in much; what was asked for tells them apart best.
                first = sorted(found, key=lambda line: not line.startswith("settings"))[:3]
                raise AnalysisError(
                    f"--out holds another run; choose another folder. {out} and {run} differ in {len(found)} places: "
                    f"{'; '.join(first)}{' …' if len(found) > 3 else ''}."
                )
            raise AnalysisError(
                f"Parts of one run must agree in settings and provenance; {parts[0]} and {run} differ: {'; '.join(found)}. "
                "Measure one of them again, or pass --allow PLACE where you know that it does not matter."
            )
    owners = _owners(parts)
    for index, run in owners.items():
        _check_belongs(run, index, manifests[parts.index(run)])
    with exclusive(make_folder(out)):
        _copy(parts, manifests, owners, out)
        missing = set(range(manifests[0]["plan"]["num_shards"])) - finished_shards(out)
        if (out / LOGITS).is_dir() and not missing:
            complete_trace(out / LOGITS)
    return Merged(finished=len(finished_shards(out)), missing=tuple(sorted(missing)))


def _copy(parts: Sequence[Path], manifests: Sequence[Manifest], owners: dict[int, Path], out: Path) -> None:
    make_folder(out / SHARDS)
    if not (out / MANIFEST).is_file():
        write_atomically(out / PROMPTS, (parts[0] / PROMPTS).read_bytes())
        origins = [{key: m["provenance"].get(key) for key in sorted(INCIDENTAL)} for m in manifests]
        # As it was written, whatever its schema: it names the columns as the shards do.
        merged = json.loads((parts[0] / MANIFEST).read_text(encoding="utf-8"))
        merged["provenance"]["merged_from"] = origins
        write_json(out / MANIFEST, merged)
    for index, run in sorted(owners.items()):
        if run.resolve() == out.resolve():
            continue
        logits = run / LOGITS / f"{shard_path(run, index).stem}.safetensors"
        if logits.is_file():
            write_atomically(make_folder(out / LOGITS) / logits.name, logits.read_bytes())
        write_atomically(shard_path(out, index), shard_path(run, index).read_bytes())


def _owners(parts: Sequence[Path]) -> dict[int, Path]:
    """Return which part each shard is taken from, or raise if two parts hold different ones."""
    owners: dict[int, Path] = {}
    for run in parts:
        for index in sorted(finished_shards(run)):
            first = owners.setdefault(index, run)
            if first is not run and shard_path(first, index).read_bytes() != shard_path(run, index).read_bytes():
                raise AnalysisError(
                    f"A shard that several parts hold must be the same in all; shard {index} differs between {first} and {run}"
                    f"{_where(first, run, index)}. Find out which is right and delete the other."
                )
    return owners


def _where(first: Path, second: Path, index: int) -> str:
    (left, about_left), (right, about_right) = (read_shard(shard_path(run, index)) for run in (first, second))
    if about_left != about_right:
        return " in its metadata"
    names = [name for name in left if name not in right or left[name].tobytes() != right[name].tobytes()]
    return f" in column {names[0]}" if names else " in its encoding only"


def _check_belongs(run: Path, index: int, manifest: Manifest) -> None:
    """Raise unless a shard says that it is this shard of this run."""
    columns, about = read_shard(shard_path(run, index))
    wanted = {entry["column"] for entry in manifest["schemes"]} | {entry["column"] for entry in manifest["statistics"]}
    ends = {name.removesuffix("_lower").removesuffix("_upper") for name in columns} | columns.keys()
    settings = {k: v for k, v in meaningful(about.get("settings", {})).items() if manifest["settings"].get(k) != v}
    if about.get("shard") != index or settings or not wanted <= ends:
        raise AnalysisError(
            f"Shard {index} of {run} must be of the run it lies in; it says shard {about.get('shard')}"
            f"{f', and other settings: {sorted(settings)}' if settings else ''}. Remove what does not belong there."
        )
