"""Tree passes planned: tokens of a trie to evaluate, rows of the cache, and attention masks.

The trie has a *trunk*, the prefix common to all contexts, whose cache rows are its positions, and
*branches* below it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Context = tuple[int, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class CacheLayout:
    """The token in each row of a cache.

    Attributes:
        trunk: its tokens; token i is in row i.
        children: row of each branch token, by (row of its parent, token). The trunk's last row is
            the branches' root.
    """

    trunk: Context = ()
    children: Mapping[tuple[int, int], int] = dataclasses.field(default_factory=dict)

    def child(self, row: int, token: int) -> int:
        """Return the row of a token after the token in `row` (−1: at the start), −1 without one."""
        if row + 1 < len(self.trunk):
            return row + 1 if self.trunk[row + 1] == token else -1
        return self.children.get((row, token), -1)


@dataclasses.dataclass(frozen=True, eq=False)
class PassPlan:
    """The work of one pass over a trie.

    Attributes:
        kept: rows of the old cache to keep, in their new order.
        tokens, depths: the m tokens to evaluate, ancestors first, and their numbers of ancestors.
        parents: row of each branch token's parent, for kept and new ones together, in row order
            from `len(trunk)` on.
        wanted: for each context, which of the m tokens is its last.
        layout: the cache after the pass.
    """

    kept: list[int]
    tokens: list[int]
    depths: list[int]
    parents: list[int]
    wanted: list[int]
    layout: CacheLayout

    @property
    def num_rows(self) -> int:
        """Rows of the cache after the pass."""
        return len(self.kept) + len(self.tokens)


def make_plan(contexts: Sequence[Context], old: CacheLayout) -> PassPlan:
    """PassPlan the pass that evaluates the last token of each context, given a cached layout.

    Of a cached token only keys and values are known, not the logits. A context that ends at a
    cached token therefore evaluates that token again, and what hung below it: kept rows stay closed
    under taking ancestors.

    Cost: O(number of trie nodes), plus comparisons of whole contexts at C speed.
    """
    trunk = common_prefix(contexts)
    ends = {context: index for index, context in enumerate(contexts)}
    reusable = len(trunk) - (trunk in ends)
    kept = list(range(min(common_length(trunk, old.trunk), reusable)))
    row = len(kept) - 1
    # on into a branch of the last trie
    while len(kept) < reusable and (row := old.child(row, trunk[len(kept)])) >= 0:
        kept.append(row)
    nodes = _Branches(
        old if len(kept) == len(trunk) else CacheLayout(), root=kept[-1] if kept else -1
    )
    last = {index: nodes.walk(context[len(trunk) :]) for context, index in ends.items()}
    ends_at = {node for node in last.values() if node >= 0}
    cached = nodes.cached(ends_at)
    # Kept rows come in their old order, in which ancestors precede as well: then dropping the rest
    # is often a mere crop.
    kept_nodes = sorted(
        (node for node in range(len(cached)) if cached[node]), key=nodes.old_rows.__getitem__
    )
    new_nodes = [node for node in range(len(cached)) if not cached[node]]
    rows = {node: len(trunk) + place for place, node in enumerate(kept_nodes + new_nodes)} | {
        -1: len(trunk) - 1
    }
    parents = [rows[nodes.parents[node]] for node in kept_nodes + new_nodes]
    tokens = [nodes.tokens[node] for node in kept_nodes + new_nodes]
    children = {
        key: len(trunk) + place for place, key in enumerate(zip(parents, tokens, strict=True))
    }
    num_kept = len(kept) + len(kept_nodes)
    return PassPlan(
        kept=kept + [nodes.old_rows[node] for node in kept_nodes],
        tokens=[*trunk[len(kept) :], *tokens[len(kept_nodes) :]],
        depths=[
            *range(len(kept), len(trunk)),
            *(len(trunk) + nodes.depths[node] for node in new_nodes),
        ],
        parents=parents,
        wanted=[rows[last[index]] - num_kept for index in range(len(contexts))],
        layout=CacheLayout(trunk, children),
    )


class _Branches:
    """The branches of a trie below the trunk, parents first; −1 is the end of the trunk."""

    def __init__(self, old: CacheLayout, root: int) -> None:
        self.old, self.root = old, root
        self.index: dict[tuple[int, int], int] = {}
        self.parents: list[int] = []
        self.tokens: list[int] = []
        self.depths: list[int] = []
        self.old_rows: list[int] = []

    def walk(self, suffix: Context) -> int:
        """Add a path and return the last node."""
        node, row = -1, self.root
        for depth, token in enumerate(suffix):
            parent, node = node, self.index.setdefault((node, token), len(self.tokens))
            if node == len(self.tokens):
                self.parents.append(parent)
                self.tokens.append(token)
                self.depths.append(depth)
                self.old_rows.append(self.old.child(row, token) if depth == 0 or row >= 0 else -1)
            row = self.old_rows[node]
        return node

    def cached(self, wanted: set[int]) -> list[bool]:
        """Return True for each node with a kept row: cached, no logit wanted, the parent kept."""
        kept: list[bool] = []
        for node, parent in enumerate(self.parents):
            kept.append(
                self.old_rows[node] >= 0 and node not in wanted and (parent < 0 or kept[parent])
            )
        return kept


def tree_mask(plan: PassPlan) -> NDArray[np.bool_]:
    """Return the attention mask `(m, rows)`: a token to evaluate sees ancestors and itself."""
    num_trunk, num_branches = len(plan.layout.trunk), len(plan.parents)
    ancestors = np.zeros((num_branches, num_branches), dtype=bool)
    for node, parent in enumerate(plan.parents):
        if parent >= num_trunk:
            ancestors[node] = ancestors[parent - num_trunk]
        ancestors[node, node] = True
    depths = np.asarray(plan.depths)
    # the other tokens belong to the trunk and come first
    num_new = int((depths >= num_trunk).sum())
    mask = np.zeros((len(depths), plan.num_rows), dtype=bool)
    mask[:, :num_trunk] = np.arange(num_trunk) <= depths[:, None]
    mask[len(depths) - num_new :, num_trunk:] = ancestors[num_branches - num_new :]
    return mask


def common_length(left: Context, right: Context) -> int:
    """Return the number of leading tokens that two contexts share, by bisection on slices.

    >>> common_length((1, 2, 3, 4), (1, 2, 4))
    2
    """
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def common_prefix(contexts: Sequence[Context]) -> Context:
    """Return the longest common prefix: that of the least and the greatest in lexicographic order.

    >>> common_prefix([(1, 2, 3), (1, 2), (1, 2, 0, 5)])
    (1, 2)
    """
    least, greatest = min(contexts), max(contexts)
    return least[: common_length(least, greatest)]
