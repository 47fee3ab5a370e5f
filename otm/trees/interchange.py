"""Acceptance vectors and trees as JSON, and as the arrays and lists of Sequoia.

JSON is read as if somebody hostile had written it: size, nesting, types, numbers that JSON does not
know (NaN, Infinity), duplicate keys, unknown keys, and a tree that is none (cycles, missing
parents) are each refused with a message. Nothing is ever unpickled: a `.pt` file is for
`torch.load(..., weights_only=True)` to open, and its values come here as arrays and lists.

*Sequoia's acceptance vector* (github.com/Infini-AI-Lab/Sequoia), as `tests/test_accept.py` writes
it for width W: W + 2 numbers, a leading 0 so that ranks count from 1, then A(1), …, A(W), then the
rejected mass; they sum to 1. `tree_search.py` drops the last entry. The file that
`tests/fast_test.py` writes has the leading 0 and A(1), …, A(W) only, so `tree_search.py` drops its
last rank. *Sequoia's grow map* numbers the root 0 and the vertices level by level, and lists the
children of each under "Successors".
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from otm._json import plain_json
from otm.errors import InvalidDistribution, InvalidParameter, TooLarge
from otm.pmf import check_instance, plain_reals
from otm.trees.shape import TreeShape, level_order
from otm.trees.vector import check_acceptance, rejected_mass

FORMAT = "otm.draft-tree"
VERSION = 1
MAX_TEXT = 64 * 2**20
"""Largest JSON document read, in characters."""

MAX_MASK = 5_000
"""Largest tree whose attention mask is spelled out, in vertices."""

_SEQUOIA_TOLERANCE = 1e-4  # sums of float32 averages


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

    >>> tree_to_json(acceptance=[0.5, 0.25], shape=TreeShape.chain(2))
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
    except (
        ValueError,
        RecursionError,
    ) as error:  # JSONDecodeError, integers of thousands of digits, nesting
        if isinstance(error, InvalidParameter):
            raise
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
            f"{document.get('version')!r:.40}. "
            "Export it again, or update the library."
        )
    if unknown := sorted(set(document) - {"format", "version", "acceptance", "parents"}):
        named = ", ".join(f"{key:.40}" for key in unknown[:5])
        raise InvalidParameter(
            f"Keys must be format, version, acceptance and parents; got {named} as well. Remove "
            "them."
        )
    acceptance, shape = None, None
    if "acceptance" in document:
        acceptance = check_acceptance(
            _array(
                _numbers(document["acceptance"], "acceptance", (int, float)), "acceptance", float
            )
        )
    if "parents" in document:
        shape = TreeShape(
            _array(_numbers(document["parents"], "parents", (int,)), "parents", np.int64)
        )
    return TreeRecord(acceptance=acceptance, shape=shape)


def acceptance_from_sequoia(values: ArrayLike) -> NDArray[np.float64]:
    """Read Sequoia's acceptance vector, `(W + 2,)`: a leading 0, A(1), …, A(W), and the rejected
    mass.

    Args:
        values: the array, from `torch.load(path, weights_only=True).numpy()`, say.

    Returns:
        A, `(W,)` in float64.

    Raises:
        InvalidDistribution: if it does not start with 0 or does not sum to 1 within 1e-4; a vector
            that `fast_test.py` wrote has no rejected mass and is for
            `acceptance_from_sequoia_static`.

    Cost: O(W). Reference: Sequoia [Chen et al. 2024], `tests/test_accept.py` and `tree_search.py`.

    >>> acceptance_from_sequoia([0.0, 0.5, 0.25, 0.25]).tolist()
    [0.5, 0.25]
    """
    array = _sequoia(values, least=3)
    if abs(math.fsum(array) - 1.0) > _SEQUOIA_TOLERANCE:
        raise InvalidDistribution(
            "A measured Sequoia vector ends with the rejected mass and sums to 1; this one sums "
            f"to {math.fsum(array):.6g}. If it "
            "came from fast_test.py, which does not store the rejected mass, call "
            "acceptance_from_sequoia_static."
        )
    return check_acceptance((array / math.fsum(array))[1:-1])


def acceptance_from_sequoia_static(values: ArrayLike) -> NDArray[np.float64]:
    """Read the acceptance vector of Sequoia's static estimate, `(W + 1,)`: a leading 0 and A(1), …,
    A(W).

    Args:
        values: the array, from `torch.load(path, weights_only=True).numpy()`, say.

    Returns:
        A, `(W,)` in float64.

    Raises:
        InvalidDistribution: if it does not start with 0, or the rest is no sub-distribution.

    Cost: O(W). Reference: Sequoia [Chen et al. 2024], `tests/fast_test.py`.

    >>> acceptance_from_sequoia_static([0.0, 0.5, 0.25]).tolist()
    [0.5, 0.25]
    """
    vector = _sequoia(values, least=2)[1:]
    return check_acceptance(
        vector.astype(np.float32)
        if plain_reals(values, "A Sequoia vector").dtype == np.float32
        else vector
    )


def acceptance_to_sequoia(acceptance: ArrayLike) -> NDArray[np.float64]:
    """Write an acceptance vector as Sequoia's `tree_search.py` reads it, `(k + 2,)`: 0, A(1), …,
    A(k), the rejected mass.

    Args:
        acceptance: A, `(k,)`.

    Returns:
        `(k + 2,)` in float64, Σ = 1.

    Raises:
        InvalidDistribution: if A is no sub-distribution.

    Cost: O(k). Reference: Sequoia [Chen et al. 2024], `tree_search.py`.

    >>> acceptance_to_sequoia([0.5, 0.25]).tolist()
    [0.0, 0.5, 0.25, 0.25]
    """
    vector = check_acceptance(acceptance)
    return np.concatenate([[0.0], vector, [rejected_mass(vector)]])


def shape_from_successors(successors: Sequence[Sequence[int]]) -> TreeShape:
    """Read the tree of a Sequoia grow map from its "Successors": the children of every vertex, the
    root being vertex 0.

    Args:
        successors: n + 1 lists of vertices, in any numbering.

    Returns:
        TreeShape, numbered level by level.

    Raises:
        InvalidParameter: unless every vertex but the root is the child of exactly one vertex, and
            all hang together.

    Cost: O(n).

    >>> shape_from_successors([[1, 2], [3], [], []])
    TreeShape([0, 0, 1])
    """
    try:
        children = [
            _numbers(list(vertices), "a list of successors", (int, np.integer))
            for vertices in successors
        ]
    except TypeError as error:
        raise InvalidParameter(
            f"successors must be lists of vertices, one for each vertex: {error}. Write them so."
        ) from error
    size = len(children)
    listed = [v for vertices in children for v in vertices]
    if size == 0 or sorted(listed) != list(range(1, size)):
        raise InvalidParameter(
            f"Each vertex 1..{max(size - 1, 0)} must be the child of exactly one vertex, and no "
            "other vertex listed; "
            f"{len(listed)} children are listed. Pass the grow map's Successors, root first."
        )
    order, parents = [0], list[int]()
    for place, vertex in enumerate(order):  # grows while it is read
        order.extend(children[vertex])
        parents.extend([place] * len(children[vertex]))
    if len(order) != size:
        raise InvalidParameter(
            f"Every vertex must be reached from the root; {size - len(order)} are not, so they "
            "form cycles. Check the parents."
        )
    return TreeShape(np.asarray(parents, dtype=np.int64))


def sequoia_growmap(shape: TreeShape) -> dict[str, Any]:
    """Write a tree as the contents of a Sequoia grow map, in plain lists.

    Sequoia expects "mask" and "depth" as torch.LongTensor: convert these two and `torch.save` the
    dictionary.

    Args:
        shape: the tree; its vertices are renumbered level by level.

    Returns:
        {"roots", "branches": vertices and their numbers of children, level by level; "Successors":
        children of each vertex; "mask": (n + 1)² ancestors-or-self as 0/1; "depth": levels; "size":
        n + 1}.

    Raises:
        TooLarge: beyond 5,000 vertices, whose mask has 2.5e7 entries.

    Cost: O(n²) for the mask. Reference: Sequoia [Chen et al. 2024], `tree_search.py`.

    >>> sequoia_growmap(TreeShape([0, 0, 1]))["Successors"]
    [[1, 2], [3], [], []]
    """
    if check_instance(shape, TreeShape, name="shape").num_nodes > MAX_MASK:
        raise TooLarge(
            f"A grow map holds an attention mask, for up to {MAX_MASK:,} vertices; this tree has "
            f"{shape.num_nodes:,}. "
            "Draft fewer."
        )
    tree = level_order(shape)
    size = tree.num_nodes + 1
    mask = np.eye(size, dtype=np.int64)
    for vertex, parent in enumerate(tree.parents.tolist(), start=1):
        mask[vertex] |= mask[parent]
    by_level = [np.flatnonzero(tree.levels == level) for level in range(tree.depth + 1)]
    return {
        "roots": [vertices.tolist() for vertices in by_level],
        "branches": [tree.num_children[vertices].tolist() for vertices in by_level],
        "Successors": [list(tree.children(vertex)) for vertex in range(size)],
        "mask": mask.tolist(),
        "depth": tree.levels.tolist(),
        "size": size,
    }


def _sequoia(values: ArrayLike, *, least: int) -> NDArray[np.float64]:
    array = plain_reals(values, "A Sequoia vector").astype(np.float64)
    if (
        array.ndim != 1
        or len(array) < least
        or not np.isfinite(array).all()
        or (array < 0).any()
        or array[0] != 0
    ):
        raise InvalidDistribution(
            f"A Sequoia vector must hold at least {least} finite numbers ≥ 0, the first of them 0; "
            f"got shape {array.shape} "
            f"starting with {array.reshape(-1)[:1].tolist()}. Load it with torch.load(path, "
            "weights_only=True).numpy()."
        )
    return array


def _numbers(values: object, name: str, types: tuple[type, ...]) -> list[Any]:
    if not isinstance(values, list) or not all(
        isinstance(x, types) and not isinstance(x, bool) for x in values
    ):
        raise InvalidParameter(
            f"{name} must be a list of {'integers' if float not in types else 'numbers'}. Write it "
            "so."
        )
    return values


def _array(values: list[Any], name: str, dtype: type) -> NDArray[Any]:
    try:
        return np.asarray(values, dtype=dtype)
    except OverflowError as error:
        raise InvalidParameter(
            f"{name} must hold numbers of 64 bits; one is larger. Check the export."
        ) from error
