"""Where a figure's numbers came from: versions, revision, command line, seed."""

from __future__ import annotations

import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

_PACKAGES = ("numpy", "scipy", "highspy", "cvxpy", "matplotlib")


def manifest(*, seed: int, captured: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the manifest that is written beside a figure's data.

    Args:
        seed: seed of the Monte Carlo points.
        captured: manifest of the committed capture that the figure reads, if any (model revision, device, versions).
    """
    record: dict[str, Any] = {
        "python": sys.version.split()[0],
        "machine": platform.machine(),
        "versions": {name: metadata.version(name) for name in _PACKAGES},
        "revision": _revision(),
        "argv": sys.argv[1:],
        "seed": seed,
    }
    return record if captured is None else record | {"captured": captured}


def _revision() -> str:
    """Return the git revision of the checkout, marked when it has local changes; "unknown" outside one."""
    here = Path(__file__).resolve().parent
    try:
        revision = _git(here, "rev-parse", "HEAD")
        return revision + ("+changes" if _git(here, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=20)
    return done.stdout.strip()
