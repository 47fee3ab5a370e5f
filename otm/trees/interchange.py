"""Acceptance vectors and trees as JSON.

A document is read as if somebody hostile had written it: size, nesting, types, numbers that JSON
does not know (NaN, Infinity), duplicate keys, unknown keys, and a tree that is none (cycles,
missing parents) are each refused with a message. Nothing is ever unpickled.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from otm._machine.strict_json import plain_json
from otm.errors import InvalidParameter, TooLarge
from otm.pmf import check_instance
from otm.trees.shape import TreeShape
from otm.trees.vector import check_acceptance

FORMAT = "otm.draft-tree"
VERSION = 1
MAX_TEXT = 64 * 2**20
"""Largest JSON document read, in characters."""


@dataclasses.dataclass(frozen=True, eq=False)
class TreeRecord:
    """An acceptance vector `(k,)` and a tree, as exported; either may be None."""

    acceptance: NDArray[np.float64] | None
    shape: TreeShape | None


def tree_to_json(*, acceptance: ArrayLike | None = None, shape: TreeShape | None = None) -> str:
    """Write an acceptance vector, a tree, or both as one JSON document.

    {"format": "otm.draft-tree", "version": 1, "acceptance": [A(1), …], "parents": [parent of vertex
    1, …]}

    Args:
        acceptance: A, `(k,)`.
        shape: the tree.

    Returns:
        JSON text; floats as their shortest decimal form, which reads back exactly.

    Raises:
        InvalidDistribution: if A is no sub-distribution.

    Cost: O(k + n).

    >>> import otm
    >>> tree_to_json(acceptance=[0.5, 0.25], shape=otm.trees.TreeShape.chain(2))
    '{"format": "otm.draft-tree", "version": 1, "acceptance": [0.5, 0.25], "parents": [0, 1]}'
    """
    document: dict[str, Any] = {"format": FORMAT, "version": VERSION}
    if acceptance is not None:
        document["acceptance"] = check_acceptance(acceptance).tolist()
    if shape is not None:
        document["parents"] = check_instance(shape, TreeShape, name="shape").parents.tolist()
    return json.dumps(document, allow_nan=False)


def tree_from_json(text: str) -> TreeRecord:
    """Read what `tree_to_json` wrote, trusting nothing.

    Args:
        text: JSON text.

    Returns:
        TreeRecord.

    Raises:
        InvalidParameter: if the text is not such a document: not JSON, nested too deeply, an
            unknown or duplicate key, a wrong type, version or number, or parents that do not come
            before their children.
        InvalidDistribution: if the acceptance is no sub-distribution.
        TooLarge: beyond 64 Mi characters or fifty million vertices.

    Cost: O(length of the text).

    >>> import otm
    >>> tree_from_json('{"format": "otm.draft-tree", "version": 1, "parents": [0, 1]}').shape
    TreeShape([0, 1])
    """
    if not isinstance(text, str):
        raise InvalidParameter(
            f"The document must be text; got {type(text).__name__}. Decode it as UTF-8."
        )
    if len(text) > MAX_TEXT:
        raise TooLarge(
            f"A document may have {MAX_TEXT:,} characters; this one has {len(text):,}. Store fewer "
            "vertices."
        )
    try:
        document = plain_json(text)
    except InvalidParameter:
        raise
    except (ValueError, RecursionError) as error:  # no JSON, thousands of digits, nesting
        raise InvalidParameter(
            f"The document must be JSON; it does not parse ({error}). Write it with tree_to_json."
        ) from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InvalidParameter(
            f'The document must be an object with "format": "{FORMAT}". Write it with tree_to_json.'
        )
    if type(document.get("version")) is not int or document["version"] != VERSION:
        raise InvalidParameter(
            f"This library reads version {VERSION} of the format; the document says "
            f"{document.get('version')!r:.40}. Export it again, or update the library."
        )
    if unknown := sorted(set(document) - {"format", "version", "acceptance", "parents"}):
        named = ", ".join(f"{key:.40}" for key in unknown[:5])
        raise InvalidParameter(
            f"Keys must be format, version, acceptance and parents; got {named} as well. Remove "
            "them."
        )
    acceptance, parents = document.get("acceptance", []), document.get("parents", [])
    for numbers, kinds in ((acceptance, (int, float)), (parents, (int,))):
        if not isinstance(numbers, list) or any(type(one) not in kinds for one in numbers):
            raise InvalidParameter(
                "acceptance must be a list of numbers, parents one of integers; got "
                f"{numbers!r:.40}. Write the document with tree_to_json."
            )
    return TreeRecord(
        acceptance=check_acceptance(acceptance) if "acceptance" in document else None,
        shape=TreeShape(parents) if "parents" in document else None,
    )
