"""The safetensors form of a trace: checked headers, slices read by batch, files written whole."""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from otm.errors import OtmError
from otm.partial import PartialPair, TopTokens

from ..errors import AnalysisError
from ..files import content_digest, open_atomically
from .base import (
    FORMAT,
    LARGEST_LIST,
    PATH,
    SCHEMA,
    SIDES,
    Trace,
    TraceBatch,
    TraceSide,
    check_entries,
    check_reading,
    check_rounding,
)

_ROWS_CHECKED_AT_ONCE = 4096
_ENTRIES_HASHED_AT_ONCE = 1 << 22
_RUN, _SHARD_NUMBER, _DIGEST = "run", "shard", "sha256"
_DTYPES = {"I64": "int64", "F64": "float64", "F32": "float32"}


@dataclasses.dataclass(frozen=True, eq=False)
class _Shard:
    """One file of a trace; `metadata` holds all strings but the digest and the place in a run."""

    path: Path
    length: int
    width: int
    num_tokens: int | None
    rounding: float
    metadata: dict[str, str]
    has_paths: bool
    run: str | None
    number: str | None


@dataclasses.dataclass(frozen=True, eq=False)
class SafetensorsTrace(Trace):
    """Safetensors shards read as one sequence of positions."""

    shards: tuple[_Shard, ...]

    @property
    def files(self) -> tuple[Path, ...]:
        """The shards."""
        return tuple(shard.path for shard in self.shards)

    @property
    def num_positions(self) -> int:
        """The sum over shards, from the headers."""
        return sum(shard.length for shard in self.shards)

    def batches(self, *, rows: int = 512, start: int = 0) -> Iterator[TraceBatch]:
        """Read slices of each shard; only one batch is in memory."""
        check_reading(rows, start)
        check_entries(min(rows, self.num_positions) * max(shard.width for shard in self.shards))
        held: list[dict[str, NDArray[Any]]] = []
        before, waiting, first = 0, 0, start
        for shard in self.shards:
            place = max(0, start - before)
            while place < shard.length:
                stop = min(place + rows - waiting, shard.length)
                held.append(_read(shard, place, stop))
                waiting, place = waiting + stop - place, stop
                if waiting == rows:
                    yield self._join(held, first)
                    held, waiting, first = [], 0, first + rows
            before += shard.length
        if held:
            yield self._join(held, first)

    def _join(self, parts: list[dict[str, NDArray[Any]]], first: int) -> TraceBatch:
        """Pad the lists of shards of different m to one width and build the batch."""
        whole = {}
        for name in parts[0]:
            values = [part[name] for part in parts]
            if values[0].ndim == 2 and name != "path":
                fill = -1 if name.endswith("tokens") else -np.inf
                width = max(value.shape[1] for value in values)
                values = [
                    np.pad(v, ((0, 0), (0, width - v.shape[1])), constant_values=fill)
                    for v in values
                ]
            whole[name] = np.concatenate(values)
        return _batch(
            whole, self.num_tokens, max(shard.rounding for shard in self.shards), "the trace", first
        )


def _read(shard: _Shard, first: int, stop: int) -> dict[str, NDArray[Any]]:
    try:
        with safe_open(shard.path, framework="np") as stored:
            return {name: stored.get_slice(name)[first:stop] for name in stored.keys()}  # noqa: SIM118 (not a mapping)
    except (SafetensorError, OSError) as error:
        raise AnalysisError(
            f"{shard.path.name} is no valid safetensors file ({error}). Check it, or write it "
            "again."
        ) from error


def open_shards(
    paths: Sequence[Path], size: int | None, metadata: Mapping[str, str]
) -> SafetensorsTrace:
    """Open shards of one vocabulary, headers and digests checked, as one trace."""
    shards = [_open_shard(path) for path in paths]
    seen: dict[object, Path] = {}
    for shard in shards:
        place = shard.path if shard.number is None else (shard.run, shard.number)
        if (first := seen.setdefault(place, shard.path)) is not shard.path:
            raise AnalysisError(
                f"Each position counts once; {shard.path.name} is a copy of {first.name}. Leave it "
                "out."
            )
    sizes = {shard.num_tokens for shard in shards} | ({size} if size is not None else set())
    if len(sizes) > 1:
        raise AnalysisError(
            f"The shards of a trace must share one vocabulary; they say {sorted(map(str, sizes))}. "
            "Separate them."
        )
    if len({shard.has_paths for shard in shards}) > 1:
        raise AnalysisError(
            "The shards of a trace must all say which path a position is on, or none; they differ. "
            "Separate them."
        )
    said = {**shards[0].metadata, **metadata}
    return SafetensorsTrace(num_tokens=sizes.pop(), metadata=said, shards=tuple(shards))


def _open_shard(path: Path) -> _Shard:
    try:
        with safe_open(path, framework="np") as stored:
            slices = {name: stored.get_slice(name) for name in stored.keys()}  # noqa: SIM118 (not a mapping)
            shapes = {
                name: (_DTYPES.get(s.get_dtype(), s.get_dtype()), tuple(s.get_shape()))
                for name, s in slices.items()
            }
            metadata = stored.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise AnalysisError(
            f"{path.name} is no valid safetensors file ({error}). Check it, or write it again."
        ) from error
    if metadata.get("format") != FORMAT or metadata.get("schema") != str(SCHEMA):
        raise AnalysisError(
            f"{path.name} must be of format {FORMAT!r}, schema {SCHEMA}; its metadata says "
            "otherwise."
        )
    _check_shapes(shapes, path.name)
    said = metadata.get("num_tokens", "")
    if not said.isascii() or not said.isdigit() or len(said) > 10 or not 1 <= int(said) < 2**31:
        raise AnalysisError(
            f"num_tokens must be a whole number from 1 to 2³¹; {path.name} says {said!r:.40}."
        )
    rounding = check_rounding(metadata.get("rounding"), path.name)
    width = sum(shapes[f"{side}.tokens"][1][1] for side in SIDES)
    kept = {
        key: value for key, value in metadata.items() if key not in (_RUN, _SHARD_NUMBER, _DIGEST)
    }
    shard = _Shard(
        path,
        shapes["prompt"][1][0],
        width,
        int(said),
        rounding,
        kept,
        "path" in shapes,
        metadata.get(_RUN),
        metadata.get(_SHARD_NUMBER),
    )
    if _DIGEST in metadata:
        rows = max(1, _ENTRIES_HASHED_AT_ONCE // width)
        batches = (
            _read(shard, first, min(first + rows, shard.length))
            for first in range(0, shard.length, rows)
        )
        if _digest(metadata, shapes, batches) != metadata[_DIGEST]:
            raise AnalysisError(
                f"{path.name} is not what was written: its content has another digest. Write or "
                "copy it again."
            )
    return shard


def _digest(
    metadata: Mapping[str, str], names: Iterable[str], batches: Iterable[Mapping[str, NDArray[Any]]]
) -> str:
    """Return the digest of a trace's tensors and of all metadata but the digest."""
    said = {key: value for key, value in metadata.items() if key != _DIGEST}
    return content_digest(json.dumps(said, sort_keys=True).encode(), sorted(names), batches)


def place_in_run(path: Path) -> tuple[str | None, str | None]:
    """Check a file of logits and return the run's identity and the shard's number in the file.

    Raises:
        AnalysisError: if the file is no trace, or not what was written.
    """
    shard = _open_shard(path)
    return shard.run, shard.number


def write_trace(
    path: Path | str,
    *,
    draft: TraceSide,
    target: TraceSide,
    prompt: NDArray[np.int64],
    position: NDArray[np.int64],
    num_tokens: int,
    metadata: Mapping[str, str],
    rounding: float = 0.0,
    paths: NDArray[np.float64] | None = None,
    place: tuple[str, int] | None = None,
) -> None:
    """Write one safetensors trace file, whole or not at all.

    Args:
        path: where to; must end in `.safetensors` and not exist.
        draft, target: lists at the same n positions.
        prompt, position: int64 `(n,)`, which prompt and which place in it.
        num_tokens: V.
        paths: float64 `(n, 3)`, the setting that each context was sampled at, in the order of
            `PATH`, where there are several.
        metadata: further strings, such as the models' names; keys of the format itself are refused.
        rounding: bound on the error of the log-probabilities as given, in nats (float32
            `log_softmax`: about 1e-6). What storing them in float32 adds is measured and added.
        place: the identity of the run and the number of the shard whose logits these are, where
            there is a run.

    Raises:
        AnalysisError: on inconsistent shapes, values that are no distributions, an existing file or
            an unwritable folder.
    """
    file = Path(path)
    if file.suffix != ".safetensors" or file.exists():
        raise AnalysisError(
            f"A trace file must be new and end in .safetensors; got {file}. Choose another name."
        )
    tensors: dict[str, NDArray[Any]] = {
        "prompt": np.asarray(prompt),
        "position": np.asarray(position),
    }
    if paths is not None:
        tensors["path"] = np.asarray(paths, dtype=np.float64)
    error = check_rounding(rounding, "rounding")
    lost = 0.0
    for name, side in zip(SIDES, (draft, target), strict=True):
        tensors[f"{name}.tokens"] = np.asarray(side.tokens)
        for part, values in (
            ("log_probabilities", side.log_probabilities),
            ("log_tail", side.log_tail),
        ):
            with np.errstate(over="ignore"):
                tensors[f"{name}.{part}"] = np.asarray(values).astype(np.float32)
        stored, wide = (
            tensors[f"{name}.log_probabilities"],
            np.asarray(side.log_probabilities, dtype=np.float64),
        )
        # The tail's own rounding shows where listed and tail do not sum to 1; that is accounted for
        # on reading.
        finite = np.isfinite(stored)
        lost = max(lost, float(np.abs(stored[finite] - wide[finite]).max(initial=0.0)))
    own = {
        "format": FORMAT,
        "schema": str(SCHEMA),
        "num_tokens": str(int(num_tokens)),
        "rounding": repr(error + lost),
    }
    reserved = {*own, _RUN, _SHARD_NUMBER, _DIGEST}
    if reserved & set(metadata):
        raise AnalysisError(
            f"metadata must not use the format's keys {sorted(reserved)}; got {sorted(metadata)}. "
            "Rename them."
        )
    if place is not None:
        own |= {_RUN: place[0], _SHARD_NUMBER: str(place[1])}
    _check_shapes(
        {name: (str(value.dtype), value.shape) for name, value in tensors.items()}, str(file)
    )
    # what a reader would refuse is refused here
    for start in range(0, len(tensors["prompt"]), _ROWS_CHECKED_AT_ONCE):
        _batch(
            {name: value[start : start + _ROWS_CHECKED_AT_ONCE] for name, value in tensors.items()},
            num_tokens,
            error + lost,
            str(file),
            start,
        )
    said = {**metadata, **own}
    with open_atomically(file) as stream:
        _save(tensors, stream, said | {_DIGEST: _digest(said, tensors, [tensors])})


def _save(tensors: Mapping[str, NDArray[Any]], file: BinaryIO, metadata: Mapping[str, str]) -> None:
    """Write a safetensors file whose bytes depend on the content alone.

    The library writes metadata in an order of chance, so they are put into its header here.
    """
    plain = save({name: np.ascontiguousarray(value) for name, value in tensors.items()})
    size = 8 + struct.unpack("<Q", plain[:8])[0]
    header = {"__metadata__": dict(sorted(metadata.items()))} | json.loads(plain[8:size])
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors stay aligned
    file.write(struct.pack("<Q", len(text)) + text)
    file.write(plain[size:])


def _check_shapes(shapes: Mapping[str, tuple[str, tuple[int, ...]]], where: str) -> None:
    """Raise unless names, types and shapes are exactly the format's, with one length."""
    wanted = {"prompt": ("int64", 1), "position": ("int64", 1)}
    for side in SIDES:
        wanted |= {
            f"{side}.tokens": ("int64", 2),
            f"{side}.log_probabilities": ("float32", 2),
            f"{side}.log_tail": ("float32", 1),
        }
    if "path" in shapes:
        wanted["path"] = ("float64", 2)
    if set(shapes) != set(wanted):
        raise AnalysisError(
            f"{where} must hold the tensors {sorted(wanted)}; it holds {sorted(shapes)!r:.300}."
        )
    for name, (kind, axes) in wanted.items():
        dtype, shape = shapes[name]
        if dtype != kind or len(shape) != axes or shape[0] != shapes["prompt"][1][0]:
            raise AnalysisError(
                f"{name} in {where} must be {kind} with {axes} axes and one row per position; got "
                f"{dtype} {shape}."
            )
    if "path" in shapes and shapes["path"][1][1] != len(PATH):
        raise AnalysisError(
            f"path in {where} must have the {len(PATH)} columns {', '.join(PATH)}; got "
            f"{shapes['path'][1]}."
        )
    for side in SIDES:
        width = shapes[f"{side}.tokens"][1][1]
        if shapes[f"{side}.log_probabilities"][1][1] != width or not 1 <= width <= LARGEST_LIST:
            raise AnalysisError(
                f"{side} in {where} must list 1 to {LARGEST_LIST} tokens with a log-probability "
                f"each; got {width}."
            )


def _batch(
    part: Mapping[str, NDArray[Any]],
    num_tokens: int | None,
    rounding: float,
    where: str,
    first: int,
) -> TraceBatch:
    sides = {}
    for side in SIDES:
        tokens, logs, tail = (
            part[f"{side}.{name}"] for name in ("tokens", "log_probabilities", "log_tail")
        )
        odd = (
            np.isnan(tail)
            | (tail > rounding)
            | np.isnan(logs).any(axis=1)
            | (logs > rounding).any(axis=1)
        )
        odd |= (np.isneginf(logs) != (tokens < 0)).any(axis=1)
        if odd.any():
            raise AnalysisError(
                f"{side} at position {first + int(odd.argmax())} of {where} must give "
                "log-probabilities ≤ 0, finite for every "
                "listed token and −∞ for padding; it does not. Write the trace again."
            )
        sides[side] = tokens, np.exp(logs.astype(np.float64)), np.exp(tail.astype(np.float64))
    try:
        tops = {
            side: TopTokens(tokens=tokens, probabilities=mass, tail=tail, rounding=rounding)
            for side, (tokens, mass, tail) in sides.items()
        }
        pair = PartialPair(draft=tops["draft"], target=tops["target"], num_tokens=num_tokens)
    except OtmError as error:
        last = first + len(part["prompt"]) - 1
        raise AnalysisError(
            f"Positions {first} to {last} of {where} describe no distributions: {error}"
        ) from error
    path = part.get("path")
    if path is not None and not (np.isfinite(path).all() and path.min(initial=0.0) >= 0.0):
        raise AnalysisError(
            f"The paths in {where} must be numbers ≥ 0; some are not. Write the trace again."
        )
    return TraceBatch(pair=pair, prompt=part["prompt"], position=part["position"], path=path)
