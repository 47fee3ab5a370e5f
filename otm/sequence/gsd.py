"""Greedy speculative decoding on a tree: children without replacement, recursive rejection at every
vertex (ERSD, Algorithm 4).
"""

from __future__ import annotations

import dataclasses

from otm.drafts.base import Law
from otm.drafts.without_replacement import WithoutReplacement
from otm.sequence.decoder import require_drafts
from otm.sequence.vertex_decoder import VertexDecoder
from otm.trees.shape import TreeShape
from otm.verifiers.base import Verifier
from otm.verifiers.recursive_rejection import RecursiveRejection


@dataclasses.dataclass(frozen=True)
class Gsd(VertexDecoder):
    """Draw the children of every vertex of a tree without replacement; verify them in order by
    recursive rejection.

    The drafting strategies are shapes: `TreeShape.chain(n)` sequence (`chain(1)` simple),
    `batch(n)`, `specinfer(L)`, any tree, and the optimal one, `otm.trees.optimal_tree`.

    Args:
        tree: the shape, at least one drafted token.

    Raises:
        InvalidParameter: on an empty tree; when drafting, if a vertex has more children than there
            are tokens.

    Cost: one draft call per level, one target call; O(c·V) per visited vertex with c children.
    Reference: ERSD [Kobus & Gündüz 2025], Section 2 and Algorithm 4; Jeon et al. 2024; Sequoia
        2024.

    >>> from otm.sequence import ZerothOrder, step_law
    >>> draft, target = ZerothOrder([0.937, 0.063]), ZerothOrder([0.777, 0.223])
    >>> round(
    ...     step_law(
    ...         Gsd(TreeShape.batch(2)), draft=draft, target=target, context=[]
    ...     ).block_efficiency,
    ...     12,
    ... )  # both tokens drafted
    2.0
    """

    title = "GSD"

    tree: TreeShape

    def __post_init__(self) -> None:
        require_drafts(self.tree)

    @property
    def shape(self) -> TreeShape:
        """The tree."""
        return self.tree

    @property
    def verification(self) -> Verifier:
        """Recursive rejection."""
        return RecursiveRejection()

    def law(self, num_drafts: int) -> Law:
        """Successive draws, none twice."""
        return WithoutReplacement(num_drafts)
