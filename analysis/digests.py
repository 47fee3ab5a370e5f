"""What a file says of its own content, so that whoever reads it can tell whether it is what was
written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def content_digest(
    about: bytes, names: Iterable[str], batches: Iterable[Mapping[str, NDArray[Any]]]
) -> str:
    """Return the SHA-256 of what a file says of itself and of its columns, however many rows come
    at a time.

    >>> whole = {"a": np.arange(4), "b": np.ones(4)}
    >>> parts = [
    ...     {name: column[part] for name, column in whole.items()}
    ...     for part in (slice(0, 3), slice(3, 4))
    ... ]
    >>> content_digest(b"{}", whole, [whole]) == content_digest(b"{}", whole, parts)
    True
    """
    columns = {name: hashlib.sha256(name.encode()) for name in names}
    for batch in batches:
        for name, column in columns.items():
            column.update(np.ascontiguousarray(batch[name]).tobytes())
    whole = hashlib.sha256(about)
    for column in columns.values():
        whole.update(column.digest())
    return whole.hexdigest()
