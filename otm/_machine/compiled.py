"""Compiled functions for the host, where numba is installed, equal to array code up to rounding."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.util
import logging
import math
import pickle
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast, final

_DIGEST = hashlib.sha256().digest_size
Function = TypeVar("Function", bound=Callable[..., Any])

_LOGGER = logging.getLogger(__name__)
_ENGINE = Path(__file__).parents[1] / "overlap"
_unusable: set[str] = set()  # modules that could not be had though numba is there
_LONGEST = 2.0
"""Seconds that array calls work in a process before compiled code is loaded: it takes one to load,
and some ten to make where a machine has none yet.
"""
_worked = 0.0
"""Seconds that they would have taken for all that was asked for, by estimate: a clock would let the
last digits depend on the load.
"""
_loading = 0
"""Modules that are being loaded."""
_spent = 0.0
"""CPU seconds that loading took, compilation on a new machine included."""


def compile_once(
    *signatures: Any, fastmath: frozenset[str] = frozenset(), inside: bool = False
) -> Callable[[Function], Function]:
    """Compile a function outside the interpreter's lock, once per machine: later processes load the
    compiled file beside the module.

    The function is compiled again when a file of its folder or of this package's folder changes,
    since the called functions are compiled into it; numba alone looks at the function's own file
    only.

    Args:
        signatures: numba's types, to compile at once; none compiles for each kind of argument when
            it first comes.
        fastmath: which liberties floating-point sums may take; none makes the last bits independent
            of what calls it.
        inside: whether only compiled code calls it; a way in for Python takes a third of its time
            to compile.
    """
    from numba import njit  # noqa: PLC0415  # this module is imported without numba, too

    def wrap(function: Function) -> Function:
        options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": set(fastmath)}
        options |= {"no_cfunc_wrapper": True, "no_cpython_wrapper": inside}
        try:
            kept: Any = njit(cache=True, **options)(function)
        except (
            RuntimeError
        ):  # no folder to keep it in: neither the package's nor the user's can be written
            return cast(Function, njit(list(signatures) or None, **options)(function))
        folders = (Path(function.__code__.co_filename).parent, _ENGINE)
        files = kept._cache._cache_file
        kept._cache._cache_file = _SealedFiles(files, repr(tuple(map(_stamp, folders))).encode())
        for one in signatures:
            kept.compile(one)
        if signatures:
            kept.disable_compile()
        return cast(Function, kept)

    return wrap


@final
class _SealedFiles:
    """Numba's compiled code on disk, a file per signature, with a digest of code and sources.

    Numba keeps no digest: one flipped bit of its own files may end the process.
    """

    def __init__(self, files: Any, sources: bytes) -> None:
        self._files, self._sources = files, sources + files._version.encode()

    def load(self, key: object) -> Any:
        """Return the saved code, None if there is no intact file."""
        with contextlib.suppress(FileNotFoundError):
            content = self._path(key).read_bytes()
            if content.startswith(self._digest(content[_DIGEST:])):
                return pickle.loads(content[_DIGEST:])
        return None

    def save(self, key: object, data: object) -> None:
        """Write a file at once, or raise `OSError`."""
        content = self._files._dump(data)
        with self._files._open_for_write(self._path(key)) as file:
            file.write(self._digest(content) + content)

    def _path(self, key: object) -> Path:
        name = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
        return Path(self._files._index_path).with_suffix(f".{name}.nbc")

    def _digest(self, content: bytes) -> bytes:
        return hashlib.sha256(self._sources + content).digest()


@functools.cache
def _stamp(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Return the names, times and sizes of a folder's files, which change when a file does."""
    files = sorted(folder.glob("*.py"))
    return tuple(
        (file.name, stat.st_mtime_ns, stat.st_size) for file in files for stat in [file.stat()]
    )


def compiled(name: str, *, seconds: float) -> ModuleType | None:
    """Return a compiled module of the library, or None where array calls are to work.

    That is without numba, and until a process has asked for so much that loading pays.

    Args:
        name: the module's full name.
        seconds: about how long array calls take for what is asked; `math.inf` loads the module.
    """
    global _worked  # noqa: PLW0603  # of the process, as the modules are
    if _worked < _LONGEST:
        _worked += seconds
        if _worked < _LONGEST:
            _LOGGER.debug("%s: not loaded, NumPy is as soon done", name)
            return None
    return _loaded(name)


def load_at_once() -> None:
    """Load compiled code at the first request from now on, however small."""
    global _worked  # noqa: PLW0603
    _worked = math.inf


def is_loading() -> bool:
    """True while a module is compiled: an interruption leaves numba in pieces."""
    return _loading > 0


def loading_seconds() -> float:
    """Return the CPU seconds that loading took in this process so far."""
    return _spent


@functools.cache
def _loaded(name: str) -> ModuleType | None:
    """Return a module after one call of `try_out`, or None on failure."""
    global _loading, _spent  # noqa: PLW0603  # of the process, as the modules are
    begun = time.process_time()
    _loading += 1
    try:
        module = importlib.import_module(name)
        module.try_out()
    except Exception as error:  # NumPy computes, whatever ails compiled code
        if isinstance(error, ModuleNotFoundError) and error.name == "numba":
            _LOGGER.debug("%s: numba is not installed, NumPy computes", name)
            return None
        _unusable.add(name)
        warnings.warn(
            f"{name} is left out, and NumPy computes, at a third of the speed or less, because "
            f"numba's compiled code cannot be had: {error!r}. Make room for its files, or set "
            "NUMBA_CACHE_DIR to a folder of your own: whoever can write there executes code.",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    finally:
        _loading -= 1
        if not _loading:
            _spent += time.process_time() - begun
    _unusable.discard(name)
    return module


def code_path() -> str:
    """Return the name of the code that computes rows on the host: "compiled", or "array calls"
    without numba or with unusable compiled files.

    Nothing is loaded for the answer: what has not been asked for yet counts as usable.
    """
    return "array calls" if importlib.util.find_spec("numba") is None or _unusable else "compiled"
