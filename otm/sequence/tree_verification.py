"""Any verifier on any tree: the general scheme of which draft selection, prefix trees and GSD are
instances.
"""

from __future__ import annotations

import dataclasses

from otm.drafts.base import Law
from otm.errors import Unsupported
from otm.pmf import check_instance
from otm.sequence.decoder import require_drafts
from otm.sequence.vertex_decoder import VertexDecoder, require_verifier
from otm.trees.shape import TreeShape
from otm.verifiers.base import Verifier


@dataclasses.dataclass(frozen=True)
class TreeVerification(VertexDecoder):
    """Draw the children of every vertex of a tree by a draft law; verify them by a verifier for
    that law.

    `TreeVerification(tree, otm.IID(1), otm.Optimal())` is the optimal verifier at every vertex,
    `TreeVerification(tree, otm.TopK(1), otm.Naive())` a tree of the most likely tokens.

    Args:
        tree: the shape, at least one drafted token.
        drafts: the draft law; its k is replaced by each vertex's number of children.
        verifier: any that supports the law for every number of children that occurs and needs
            nothing but the drafts.

    Raises:
        InvalidParameter: on an empty tree; when drafting, if a vertex has more children than the
            law can give.
        Unsupported: for laws of different drafters (`Product`), which are several models.

    Cost: one draft call per level, one target call, one preparation of the verifier per visited
        vertex.
    Reference: SpecInfer [Miao et al. 2024]; losslessness: docs/theory.md, "Trees".

    >>> from otm.sequence import ZerothOrder, step_law
    >>> draft, target = ZerothOrder([0.75, 0.25]), ZerothOrder([0.5, 0.5])
    >>> best = TreeVerification(TreeShape.batch(2), otm.IID(1), otm.Optimal())
    >>> round(
    ...     step_law(best, draft=draft, target=target, context=[]).block_efficiency, 12
    ... )  # 1 + 15/16
    1.9375
    """

    title = "tree verification"

    tree: TreeShape
    drafts: Law
    verifier: Verifier

    def __post_init__(self) -> None:
        require_drafts(self.tree)
        require_verifier(self.verifier)
        if not check_instance(self.drafts, Law, name="drafts").one_drafter:
            raise Unsupported(
                f"A tree is drafted by one model; {self.drafts!r} draws from several. Choose "
                "otm.IID(1), say."
            )

    @property
    def shape(self) -> TreeShape:
        """The tree."""
        return self.tree

    @property
    def verification(self) -> Verifier:
        """The verifier."""
        return self.verifier

    def law(self, num_drafts: int) -> Law:
        """The draft law with that many drafts."""
        return self.drafts.with_k(num_drafts)
