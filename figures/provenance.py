"""The origin of a figure's numbers: versions, revision, command line, seed."""

from __future__ import annotations

import platform
import sys
from importlib import metadata
from typing import Any

from analysis.provenance import revision

_PACKAGES = ("numpy", "scipy", "highspy", "cvxpy", "matplotlib")


def manifest(*, seed: int, captured: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the manifest that is written beside a figure's data.

    Args:
        seed: seed of the Monte Carlo points.
        captured: manifests of the committed results that the figure reads, if any (models, device,
            versions), by the pair's title.
    """
    record: dict[str, Any] = {
        "python": sys.version.split()[0],
        "machine": platform.machine(),
        "versions": {name: metadata.version(name) for name in _PACKAGES},
        "revision": revision(),
        "argv": sys.argv[1:],
        "seed": seed,
    }
    return record if captured is None else record | {"captured": captured}
