"""Names of the columns of `tree_columns`, for readers without models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_NOISE_TREE = "noise_tree"
_NODES = "_n"  # between what was drafted and its number of nodes
SCALE = "noise_tree_scale"

_WORDS = {
    _NOISE_TREE: "a call with a tree on shared noise",
    "likeliest_tree": "a call with the likeliest tree",
    "refined_scores": "a call with refined scores",
}


def tree_statistics(nodes: Sequence[int]) -> list[tuple[str, str, str]]:
    """Return (column, name, unit) of each tree column; nothing where there are no nodes."""
    found = [
        (f"{stem}{_NODES}{count}", f"{words}, {count} nodes", "tokens")
        for stem, words in _WORDS.items()
        for count in nodes
    ]
    return [*found, (SCALE, "scale of trees on shared noise", "")] if nodes else []


def tree_nodes(names: Iterable[str]) -> list[int]:
    """Return the numbers of nodes that `tree_statistics` was given, from the names of columns."""
    stem = f"{_NOISE_TREE}{_NODES}"
    return [int(name.removeprefix(stem)) for name in names if name.startswith(stem)]
