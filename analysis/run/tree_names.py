"""What a run calls the columns of `tree_columns`, for those who read it without models."""

from __future__ import annotations

from collections.abc import Sequence

NOISE_TREE, LIKELIEST, SEQUENCES = "noise_tree", "likeliest_tree", "refined_scores"
"""Stems of the columns."""
SCALE = "noise_tree_scale"

_WORDS = {
    NOISE_TREE: "a call with a tree on shared noise",
    LIKELIEST: "a call with the likeliest tree",
    SEQUENCES: "a call with refined scores",
}


def tree_statistics(nodes: Sequence[int]) -> list[tuple[str, str, str]]:
    """Return (column, name, unit) of each; nothing where there are no nodes."""
    found = [
        (f"{stem}_n{count}", f"{words}, {count} nodes", "tokens")
        for stem, words in _WORDS.items()
        for count in nodes
    ]
    return [*found, (SCALE, "scale of trees on shared noise", "")] if nodes else []
