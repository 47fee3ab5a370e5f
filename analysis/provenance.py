"""The origin of measured numbers, and the differences between two origins."""

from __future__ import annotations

import datetime
import functools
import hashlib
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from otm._display.tabular import shortened
from otm._machine.compiled import code_path

from .errors import AnalysisError

PACKAGES = (
    "numpy",
    "scipy",
    "array-api-compat",
    "numba",
    "llvmlite",
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "accelerate",
    "pyarrow",
)

INCIDENTAL = frozenset({"argv", "host", "created", "merged_from"})
"""Parts of the provenance that say when and where a command was typed, and may differ between parts
of one run.
"""

_LARGEST_DIGESTED = 40 << 30  # bytes of weights; beyond, sizes stand in


def environment() -> dict[str, Any]:
    """Return versions, interpreter, processor and code path, which decide a result's last bits."""
    return _installed() | {"rows_on_host": code_path()}


@functools.cache
def _installed() -> dict[str, Any]:
    return {
        "versions": {name: _version(name) for name in PACKAGES},
        "python": sys.version.split()[0],
        "machine": platform.machine(),
        "processor": processor(),
    }


def origin() -> dict[str, Any]:
    """Return revision, command line, host and time of this run."""
    return {
        "revision": revision(),
        "argv": sys.argv[1:],
        "host": socket.gethostname(),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def published_origin(load: Sequence[float]) -> dict[str, Any]:
    """Return `origin` for publication: without host and folders, with the load of the machine.

    Args:
        load: load averages before.
    """
    record = origin()
    del record["host"]
    record["argv"] = [_without_folders(argument) for argument in record["argv"]]
    return record | loads(load)


def loads(before: Sequence[float]) -> dict[str, list[float]]:
    """Return the load averages before and now, for a manifest."""
    return {
        "load average before": [round(value, 2) for value in before],
        "load average after": [round(value, 2) for value in os.getloadavg()],
    }


def _without_folders(argument: str) -> str:
    """Keep the last name of a path, after an option's name too.

    >>> _without_folders("--work=/somewhere/else/work"), _without_folders("table2")
    ('--work=work', 'table2')
    """
    option, equals, value = argument.rpartition("=")
    return option + equals + Path(value).name if os.sep in value else argument


MOST_LOAD = 0.5
"""Largest load average, over one minute, of a machine that counts as quiet."""


def require_quiet(*, any_load: bool) -> None:
    """Raise `AnalysisError` if other work would be timed along, unless `any_load`.

    Args:
        any_load: time all the same.
    """
    load = os.getloadavg()[0]
    if load > MOST_LOAD and not any_load:
        raise AnalysisError(
            f"Timing needs a quiet machine, of load average {MOST_LOAD:g} at most; it is "
            f"{load:.2f}. Wait for other work to end, "
            "or pass --any-load: the record says which load it was."
        )


def weights_digest(folder: str) -> str | None:
    """Return a SHA-256 over a local folder's safetensors files, None for a hub name.

    Beyond `_LARGEST_DIGESTED` bytes, names and sizes are digested.
    """
    files = sorted(Path(folder).glob("*.safetensors")) if Path(folder).is_dir() else []
    if not files:
        return None
    whole = sum(path.stat().st_size for path in files) <= _LARGEST_DIGESTED
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
        if whole:
            digest.update(bytes.fromhex(file_digest(path)))
    return digest.hexdigest() if whole else f"names and sizes: {digest.hexdigest()}"


def model_identity(place: str) -> dict[str, str | None]:
    """Return the last part of a model's name, and the digest of the weights."""
    return {"name": Path(place).name, "sha256": weights_digest(place)}


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@functools.cache
def revision() -> str:
    """Return the git revision of the checkout, marked if there are local changes.

    Outside of a checkout it is the installed version.
    """
    here = Path(__file__).resolve().parent
    try:
        # an installation may lie in someone else's checkout
        _git(here, "ls-files", "--error-unmatch", Path(__file__).name)
        commit = _git(here, "rev-parse", "HEAD")
        return commit + (
            "+changes" if _git(here, "status", "--porcelain", "--untracked-files=no") else ""
        )
    except (OSError, subprocess.SubprocessError):
        return f"otm-speculative {_version('otm-speculative')}"


def processor() -> str:
    """Return the processor's model name, or the platform's name for the processor."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def differences(left: Any, right: Any, path: str = "") -> list[str]:
    """List the places where two nested records differ, with both values.

    >>> differences({"a": {"b": 1}, "c": 2}, {"a": {"b": 3}, "c": 2})
    ['a.b: 1 against 3']
    """
    if isinstance(left, dict) and isinstance(right, dict):
        found = []
        for key in sorted(left.keys() | right.keys()):
            found += differences(
                left.get(key), right.get(key), f"{path}.{key}" if path else str(key)
            )
        return found
    return (
        []
        if left == right
        else [f"{path}: {shortened(repr(left), 60)} against {shortened(repr(right), 60)}"]
    )


def _version(name: str) -> str | None:
    return next((found.version for found in metadata.distributions(name=name)), None)


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=20
    )
    return done.stdout.strip()
