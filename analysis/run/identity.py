"""The identity of a run, carried by each shard and checked by every reader.

A shard carries a digest of the measurement and the columns in its run's manifest, its
own number, and the digest of its own content. A copy under another name, a shard of other prompts
or settings, one that was cut or changed, and a manifest edited afterwards are each told, by the
name of the file: protection against mistakes, not against somebody who means to deceive.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from ..errors import AnalysisError
from ..files import LOGITS
from ..trace.base import MANIFEST as LIST, inside
from ..trace.tensors import place_in_run
from ..trace.traces import complete_trace, open_trace
from .manifest import Manifest, comparable, section
from .shards import finished_shards, inspect_shard, logits_path, shard_files

_OF_MODELS = ("num_tokens", "weights", "model_revisions")


def run_identity(manifest: Manifest) -> str:
    """Return the SHA-256 of a manifest's measurement, models and columns.

    Time and machine have no part in it.
    """
    said = comparable(manifest) | {"position_note": manifest.get("position_note")}
    said["provenance"] = {name: said["provenance"].get(name) for name in _OF_MODELS}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def identities(manifest: Manifest) -> set[str]:
    """Return the identities of a run and of merged parts, which the run's shards may carry.

    Parts may differ where `merge --allow` let them. The list of parts counts only while the
    manifest is the one that it was written for.
    """
    own = run_identity(manifest)
    parts = section(manifest, "provenance").get("merged_from")
    listed = (
        [entry.get("identities") for entry in parts if isinstance(entry, dict)]
        if isinstance(parts, list)
        else []
    )
    merged = {
        text
        for entry in listed
        if isinstance(entry, list)
        for text in entry
        if isinstance(text, str)
    }
    return merged if own in merged else {own}


def check_shards(run: Path, manifest: Manifest) -> None:
    """Check that every shard belongs to this run.

    Raises:
        AnalysisError: at the first file that is no shard, cannot be read, or does not belong to
            this run, naming it.

    Cost: one pass over the shards, in bounded memory.
    """
    accepted = identities(manifest)
    planned = section(manifest, "plan").get("num_shards")
    for index, path in shard_files(run).items():
        if isinstance(planned, int) and index >= planned:
            raise _foreign(path, f"the run has {planned} shards, numbered from 0")
        names, about = inspect_shard(path)
        if why := _fault(names, about, index, manifest, accepted):
            raise _foreign(path, why)


def check_kept_logits(run: Path, manifest: Manifest) -> None:
    """Check the content, the place and the list of the logits that a run keeps.

    Raises:
        AnalysisError: at the first file that is not what was written, or does not belong to this
            run, naming it.

    Cost: one pass over the logits, in bounded memory.
    """
    accepted = identities(manifest)
    for index in finished_shards(run):
        path = logits_path(run, index)
        if not path.exists() and not path.is_symlink():
            continue
        found = place_in_run(inside(run / LOGITS, path.name))
        if found != (None, None) and (found[0] not in accepted or found[1] != str(index)):
            why = (
                "it was measured for a run with another manifest"
                if found[1] == str(index)
                else f"it says shard {found[1]}"
            )
            raise _foreign(path, why)
    if (run / LOGITS / LIST).is_file():
        open_trace(run / LOGITS)


def join_logits(run: Path, manifest: Manifest) -> None:
    """Make the logits of a run a trace once all shards have logits."""
    files = [logits_path(run, index) for index in range(manifest["plan"]["num_shards"])]
    if files and all(path.is_file() for path in files):
        complete_trace(run / LOGITS, [path.name for path in files])


def _fault(
    names: set[str], about: dict[str, Any], index: int, manifest: Manifest, accepted: set[str]
) -> str | None:
    """Return the reason why a shard does not belong to this run under this number, or None."""
    if about.get("shard", index) != index:
        return f"it says shard {about['shard']}"
    if "run" not in about:
        return "it does not say of which run it is"
    if about["run"] not in accepted:
        said, mine = section(about, "settings"), section(manifest, "settings")
        differing = sorted(name for name, value in said.items() if mine.get(name) != value)
        which = f"; of its settings {differing} differ" if differing else ""
        return f"it was measured for a run with another manifest{which}"
    entries = [*manifest.get("schemes", []), *manifest.get("statistics", [])]
    ends = {name.removesuffix("_lower").removesuffix("_upper") for name in names} | names
    missing = sorted(
        str(entry.get("column")) for entry in entries if entry.get("column") not in ends
    )
    return f"it has no column {missing[0]}" if missing else None


def _foreign(path: Path, why: str) -> AnalysisError:
    return AnalysisError(
        f"{path.name} in {path.parent} must be of the run it lies in; {why}. Remove it, or restore "
        "the manifest; "
        "what is missing `measure` measures again."
    )
