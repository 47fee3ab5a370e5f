"""Traces of two models' answers at many positions, read without models (docs/traces.md).

A trace is a safetensors file, or a folder whose `trace.json` names its files: safetensors shards,
or two JSON-lines files as engines write them. It comes from strangers: nothing is unpickled, no
path leads outside the folder, sizes are checked in the header before memory is taken, and every
value is validated before it counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import AnalysisError
from ..files import (
    LOGITS,
    MANIFEST as RUN_MANIFEST,
    is_file,
    is_folder,
    read_json,
    shortened,
    write_json,
)
from ..provenance import file_digest
from .base import (
    FORMAT,
    LARGEST_LIST,
    MANIFEST,
    SCHEMA,
    SIDES,
    Trace,
    TraceBatch,
    TraceSide,
    check_rounding,
    inside,
)
from .lines import JsonLinesTrace
from .tensors import open_shards, write_trace

__all__ = [
    "Trace",
    "TraceBatch",
    "TraceSide",
    "open_trace",
    "top_log_probabilities",
    "write_manifest",
    "write_trace",
]

_LARGEST_MANIFEST = 1 << 20
_DEFAULT_ROUNDING = 2e-6  # float32 log-softmax of logits around 20


def open_trace(path: Path | str) -> Trace:
    """Open a trace: a `.safetensors` file, or a folder with `trace.json`.

    Args:
        path: where it lies.

    Returns:
        The trace, headers checked, no positions read.

    Raises:
        AnalysisError: if it is missing, of another format or schema, names files outside its
            folder, or is inconsistent.
    """
    place = Path(path)
    if is_file(place) and place.suffix == ".safetensors":
        return open_shards([place], None, {})
    if not is_folder(place):
        raise AnalysisError(
            f"A trace is a .safetensors file or a folder with {MANIFEST}; {shortened(place)} is "
            "neither. Check the path "
            "(docs/traces.md)."
        )
    if not (place / MANIFEST).is_file() and (place / RUN_MANIFEST).is_file():
        raise AnalysisError(
            f"A trace is a folder with {MANIFEST}; {place} has none. {_way_out(place)}"
        )
    manifest = _read_manifest(inside(place, MANIFEST))
    size, metadata = _manifest_size(manifest), _manifest_metadata(manifest)
    form = manifest.get("form")
    if not isinstance(form, str) or form not in _FORMS:
        known = " or ".join(repr(name) for name in _FORMS)
        raise AnalysisError(
            f"{MANIFEST} must have the form {known}; got {form!r:.40}. See docs/traces.md."
        )
    return _FORMS[form](place, manifest, size, metadata)


def _way_out(run: Path) -> str:
    """Return a hint to the trace of a run, or the reason why there is none."""
    logits = run / LOGITS
    if (logits / MANIFEST).is_file():
        return f"Did you mean {logits}?"
    if logits.is_dir():
        return (
            "That is a run whose logits are a trace once all its shards are there: measure the "
            f"rest, then pass {logits}."
        )
    return "That is a run without --save-logits. Measure it with them, or pass a trace."


def _open_shards(
    folder: Path, manifest: Mapping[str, Any], size: int | None, metadata: Mapping[str, str]
) -> Trace:
    names, digests = manifest.get("files"), manifest.get("sha256")
    if not isinstance(names, list) or not names:
        raise AnalysisError(
            f"{MANIFEST} must list its shards under 'files'; got {names!r:.200}. Name at least one."
        )
    paths = [inside(folder, name) for name in names]
    if len(set(paths)) < len(paths):
        raise AnalysisError(
            f"{MANIFEST} must list every shard once; it lists one twice. Leave it out."
        )
    trace = open_shards(paths, size, metadata)
    if digests is not None:
        if not isinstance(digests, list) or len(digests) != len(paths):
            raise AnalysisError(
                f"{MANIFEST} must give a digest for each of its {len(paths)} files, or none. Write "
                "it again."
            )
        for path, digest in zip(paths, digests, strict=True):
            if file_digest(path) != digest:
                raise AnalysisError(
                    f"{path.name} is not the file that {MANIFEST} was written for: its SHA-256 "
                    "differs. Restore it, or write "
                    f"{MANIFEST} again."
                )
    return trace


def _open_lines(
    folder: Path, manifest: Mapping[str, Any], size: int | None, metadata: Mapping[str, str]
) -> Trace:
    rounding = check_rounding(manifest.get("rounding", _DEFAULT_ROUNDING), MANIFEST)
    draft, target = (inside(folder, manifest.get(side)) for side in SIDES)
    return JsonLinesTrace(
        num_tokens=size, metadata=metadata, draft=draft, target=target, rounding=rounding
    )


_FORMS: dict[str, Callable[[Path, Mapping[str, Any], int | None, Mapping[str, str]], Trace]] = {
    "safetensors": _open_shards,
    "jsonl": _open_lines,
}
"""Functions that open the trace of a folder, by the `form` that its manifest names."""


def top_log_probabilities(log_probabilities: NDArray[np.floating[Any]], m: int) -> TraceSide:
    """Keep the m likeliest tokens of log-probabilities `(n, V)` and the log mass of the rest.

    Both are float64.

    The rest is summed over the forgotten tokens themselves, not as 1 − Σ, so a tail of 1e-12 keeps
    its digits.
    """
    logs = np.asarray(log_probabilities, dtype=np.float64)
    if logs.ndim != 2 or not 1 <= m <= LARGEST_LIST or np.isnan(logs).any():
        raise AnalysisError(
            f"Log-probabilities must be (positions, V) without NaN and m from 1 to {LARGEST_LIST}; "
            f"got {logs.shape} and {m}."
        )
    count = min(m, logs.shape[1])
    order = np.argpartition(-logs, count - 1, axis=1)
    kept, left = order[:, :count], np.take_along_axis(logs, order[:, count:], axis=1)
    values = np.take_along_axis(logs, kept, axis=1)
    ranking = np.argsort(-values, axis=1, kind="stable")
    kept, values = (
        np.take_along_axis(kept, ranking, axis=1),
        np.take_along_axis(values, ranking, axis=1),
    )
    possible = np.isfinite(values)  # tokens of probability 0 are not listed
    with np.errstate(divide="ignore"):
        tail = np.log(np.exp(left).sum(axis=1))
    return TraceSide(np.where(possible, kept, -1), np.where(possible, values, -np.inf), tail)


def complete_trace(folder: Path, files: Sequence[str]) -> None:
    """Make the logits of a finished run a trace, unless done before."""
    if not (folder / MANIFEST).is_file():
        write_manifest(folder, files)


def write_manifest(folder: Path | str, files: Sequence[str]) -> None:
    """Write `trace.json`, which makes a folder of safetensors files one trace, with digests."""
    place = Path(folder)
    digests = [file_digest(inside(place, name)) for name in files]
    about = {
        "format": FORMAT,
        "schema": SCHEMA,
        "form": "safetensors",
        "files": list(files),
        "sha256": digests,
    }
    write_json(place / MANIFEST, about)


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = read_json(path, _LARGEST_MANIFEST)
    except (OSError, ValueError) as error:
        raise AnalysisError(
            f"A trace folder needs a readable {MANIFEST} in JSON; {path}: {error}. See "
            "docs/traces.md."
        ) from error
    if (
        not isinstance(manifest, dict)
        or manifest.get("format") != FORMAT
        or manifest.get("schema") != SCHEMA
    ):
        raise AnalysisError(
            f"{path} must be a manifest of format {FORMAT!r}, schema {SCHEMA}; it is not. See "
            "docs/traces.md."
        )
    return manifest


def _manifest_size(manifest: Mapping[str, Any]) -> int | None:
    size = manifest.get("num_tokens")
    if size is not None and (
        isinstance(size, bool) or not isinstance(size, int) or not 1 <= size < 2**31
    ):
        raise AnalysisError(
            f"num_tokens must be a whole number from 1 to 2³¹; {MANIFEST} says {size!r:.40}. "
            "Correct or drop it."
        )
    return size


def _manifest_metadata(manifest: Mapping[str, Any]) -> dict[str, str]:
    metadata = manifest.get("metadata", {})
    if not isinstance(metadata, dict) or not all(
        isinstance(value, str) for value in metadata.values()
    ):
        raise AnalysisError(
            f"metadata in {MANIFEST} must map strings to strings; got {metadata!r:.200}."
        )
    try:
        json.dumps(metadata, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise AnalysisError(
            f"metadata in {MANIFEST} must be Unicode text; it holds half a surrogate pair. Correct "
            "it."
        ) from error
    return metadata
