"""Compiled ways of the host, where numba is installed: optional, with the values of the array code to rounding."""

from __future__ import annotations

import functools
import importlib
import pickle
import warnings
from types import ModuleType


@functools.cache
def compiled(name: str) -> ModuleType | None:
    """Return a compiled module of the library, tried out once by its `try_out`, or None where it cannot be had.

    Loading takes a third of a second, and on a machine that has not compiled it yet some ten, so not before it is needed.

    Args:
        name: the module's full name.
    """
    try:
        module = importlib.import_module(name)
        module.try_out()
    except ImportError:
        return None
    except (OSError, EOFError, pickle.UnpicklingError) as error:  # what numba keeps on disk cannot be written, or read again
        warnings.warn(
            f"{name} is left out, and NumPy computes, at a third of the speed or less, because numba's compiled files cannot be "
            f"used: {error!r}. Make room for them, delete damaged ones, or set NUMBA_CACHE_DIR to another folder.",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    return module
