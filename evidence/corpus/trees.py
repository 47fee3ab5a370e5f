"""Broken kernels for drafted trees: recursive rejection down a tree, and what goes wrong among
siblings.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def recursive(
    tree: Any, rng: Any, *, renormalise: bool = True, backwards: bool = False, once: bool = False
) -> list[int]:
    """Try siblings in the order in which they were drawn, each against the residual of those
    before: correct.
    """
    node, path = 0, []
    while True:
        p, rest = tree.draft[node].copy(), tree.target[node].copy()
        tried: set[int] = set()
        for child in tree.children(node)[:: -1 if backwards else 1]:
            x = int(tree.tokens[child])
            if once and x in tried:
                continue
            tried.add(x)
            if rng.random() * p[x] < rest[x]:
                path.append(x)
                node = child
                break
            rest = np.maximum(rest - p, 0.0)
            if renormalise:
                rest = rest / rest.sum()
            if not tree.replacement:
                p[x] = 0.0
                p = p / p.sum() if p.any() else p
        else:
            return [*path, int(rng.choice(len(rest), p=rest / rest.sum()))]


def no_renormalisation(tree: Any, rng: Any) -> list[int]:
    """Leave the residual after a rejected sibling as it is, with a sum below 1."""
    return recursive(tree, rng, renormalise=False)


def youngest_first(tree: Any, rng: Any) -> list[int]:
    """Try siblings that were drawn without replacement in the wrong order."""
    return recursive(tree, rng, backwards=True)


def duplicates_skipped(tree: Any, rng: Any) -> list[int]:
    """Skip a sibling with the token of one that was rejected, though it was drawn independently and
    counts as a trial.
    """
    return recursive(tree, rng, once=True)
