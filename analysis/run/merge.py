"""Put the shards of one run, measured on several machines, into one folder."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Sequence
from pathlib import Path

from ..errors import AnalysisError
from ..files import (
    LOGITS,
    MANIFEST,
    PROMPTS,
    SHARDS,
    is_file,
    make_folder,
    same_place,
    write_atomically,
    write_json,
)
from ..provenance import INCIDENTAL
from .identity import check_kept_logits, check_shards, identities, join_logits
from .manifest import Manifest, compare_manifests, read_manifest
from .shards import exclusive, finished_shards, logits_path, read_shard, shard_path
from .trees import write_trees


@dataclasses.dataclass(frozen=True)
class MergedRun:
    """The number of shards in a merged run, and the missing shards."""

    finished: int
    missing: tuple[int, ...]


def merge(runs: Sequence[Path], out: Path, *, allow: Collection[str] = ()) -> MergedRun:
    """Copy the shards of several parts of one run into `out`, which may be one of the parts.

    Everything is checked before anything is written. A shard that several parts have must be the
    same in all.

    Args:
        runs: folders that `measure` wrote with the same settings and software, each with some of
            the shards.
        out: the folder that will have all of them.
        allow: places where settings or provenance may differ, such as "provenance.processor".

    Raises:
        AnalysisError: if settings or provenance differ, saying where; if a shard differs between
            parts, or is not of its run.
    """
    if not runs:
        raise AnalysisError("Merging needs at least one run; got none. Name their folders.")
    if repeated := [str(run) for run in runs if same_place(run, out)]:
        raise AnalysisError(
            f"A run cannot be merged into itself; {repeated[0]} is the output, too. Leave it out "
            "of the runs."
        )
    parts = [*([out] if is_file(out / MANIFEST) else []), *runs]
    manifests = [read_manifest(run) for run in parts]
    for run, manifest in zip(parts[1:], manifests[1:], strict=True):
        if found := compare_manifests(manifests[0], manifest, allow):
            if parts[0] == out and run == runs[0]:
                # Two runs differ in much; what was asked for tells them apart best.
                first = sorted(found, key=lambda line: not line.startswith("settings"))[:3]
                raise AnalysisError(
                    f"--out holds another run; choose another folder. {out} and {run} differ in "
                    f"{len(found)} places: "
                    f"{'; '.join(first)}{' …' if len(found) > 3 else ''}."
                )
            raise AnalysisError(
                f"Parts of one run must agree in settings and provenance; {parts[0]} and {run} "
                f"differ: {'; '.join(found)}. "
                "Measure one of them again, or pass --allow PLACE where you know that it does not "
                "matter."
            )
    for run, manifest in zip(parts, manifests, strict=True):
        check_shards(run, manifest)
        check_kept_logits(run, manifest)
    owners = _owners(parts)
    with exclusive(make_folder(out)):
        merged = _copy(parts, manifests, owners, out)
        missing = set(range(manifests[0]["plan"]["num_shards"])) - finished_shards(out)
        join_logits(out, merged)
        write_trees(out, merged)
        check_shards(out, merged)
    return MergedRun(finished=len(finished_shards(out)), missing=tuple(sorted(missing)))


def _copy(
    parts: Sequence[Path], manifests: Sequence[Manifest], owners: dict[int, Path], out: Path
) -> Manifest:
    make_folder(out / SHARDS)
    merged = manifests[0]
    if not (out / MANIFEST).is_file():
        write_atomically(out / PROMPTS, (parts[0] / PROMPTS).read_bytes())
    unknown = [m for m in manifests if not identities(m) <= identities(merged)]
    if unknown or not (out / MANIFEST).is_file():
        before = merged["provenance"].get("merged_from") if (out / MANIFEST).is_file() else None
        origins = [
            {key: m["provenance"].get(key) for key in sorted(INCIDENTAL)}
            | {"identities": sorted(identities(m))}
            for m in (unknown if before else manifests)
        ]
        merged = merged | {
            "provenance": merged["provenance"] | {"merged_from": [*(before or []), *origins]}
        }
        # As it was written, whatever its schema: it names the columns as the shards do.
        written = json.loads((parts[0] / MANIFEST).read_text(encoding="utf-8"))
        write_json(out / MANIFEST, written | {"provenance": merged["provenance"]})
    for index, run in sorted(owners.items()):
        if same_place(run, out):
            continue
        if (logits := logits_path(run, index)).is_file():
            write_atomically(make_folder(out / LOGITS) / logits.name, logits.read_bytes())
        write_atomically(shard_path(out, index), shard_path(run, index).read_bytes())
    return merged


def _owners(parts: Sequence[Path]) -> dict[int, Path]:
    """Return the part that each shard is taken from, or raise if shards of two parts differ."""
    owners: dict[int, Path] = {}
    for run in parts:
        for index in sorted(finished_shards(run)):
            first = owners.setdefault(index, run)
            if (
                first is not run
                and shard_path(first, index).read_bytes() != shard_path(run, index).read_bytes()
            ):
                raise AnalysisError(
                    f"A shard that several parts hold must be the same in all; shard {index} "
                    f"differs between {first} and {run}"
                    f"{_where(first, run, index)}. Find out which is right and delete the other."
                )
    return owners


def _where(first: Path, second: Path, index: int) -> str:
    (left, about_left), (right, about_right) = (
        read_shard(shard_path(run, index)) for run in (first, second)
    )
    if about_left != about_right:
        return " in its metadata"
    names = [
        name for name in left if name not in right or left[name].tobytes() != right[name].tobytes()
    ]
    return f" in column {names[0]}" if names else " in its encoding only"
