"""Versions of all that a number of this library depends on, for reports of faults."""

from __future__ import annotations

import os
import platform
from importlib import metadata

DISTRIBUTION = "otm-speculative"

_NEEDED = ("numpy", "scipy", "cvxpy", "highspy", "array-api-compat", "lazy-loader", "typer")
_FURTHER = ("numba", "matplotlib", "pandas", "torch", "triton", "transformers", "tokenizers")


def version_of(name: str) -> str | None:
    """Return the version of an installed distribution, None if it is not installed."""
    return next((found.version for found in metadata.distributions(name=name)), None)


def show_versions() -> None:
    """Print the versions of this package, of Python, and of the libraries that are used.

    Returns:
        None.

    Cost: O(1), a look at what is installed.

    >>> show_versions()  # doctest: +ELLIPSIS
    otm               ...
    """
    processors = f"{platform.machine()}, {os.cpu_count()} processors"
    rows = {
        "otm": version_of(DISTRIBUTION) or "not installed",
        "python": platform.python_version(),
        "system": f"{platform.platform()}, {processors}",
        **{name: version_of(name) or "missing" for name in _NEEDED},
        **{name: version_of(name) or "not installed" for name in _FURTHER},
    }
    for name, value in rows.items():
        print(f"{name:17} {value}")
