"""SpecTr's prefix tree: i.i.d. children at every vertex, verified level by level."""

from __future__ import annotations

import dataclasses

from otm.drafts.base import Law
from otm.drafts.iid import IID
from otm.errors import InvalidParameter
from otm.pmf import check_counts
from otm.sequence.vertex_decoder import VertexDecoder, require_verifier
from otm.trees.shape import TreeShape
from otm.verifiers.base import Verifier
from otm.verifiers.kseq import KSeq


@dataclasses.dataclass(frozen=True)
class PrefixTree(VertexDecoder):
    """Draw k_{i+1} i.i.d. children at every vertex of level i; feed the verifier one draft per
    child of the survivors.

    SpecTr's Algorithm 5 drafts so; its leaves must not be handed to draft selection as if they were
    i.i.d. sequences, because those that share a prefix are one draft there, not several: that is
    lossy (docs/theory.md, "The prefix-tree trap"). m surviving vertices give m·k_{i+1} drafts, and
    the output is exact.

    Args:
        factors: (k₁, …, k_L), children per vertex of each level, each at least 1; (K, 1, …, 1) is
            `DraftSelection`.
        verifier: any that supports `IID(m)` for every m that occurs and needs nothing but the
            drafts.

    Raises:
        InvalidParameter: if there is no factor, or one is no integer of at least 1.

    Cost: L draft calls and one target call, on Σ_i k₁⋯k_i vertices. Reference: SpecTr, Appendix E,
        Algorithm 5.

    >>> from otm.sequence import ZerothOrder, step_law
    >>> model = ZerothOrder([0.5, 0.5])
    >>> step_law(PrefixTree((2, 2)), draft=model, target=model, context=[]).block_efficiency
    3.0
    """

    title = "prefix tree"

    factors: tuple[int, ...]
    verifier: Verifier = KSeq()

    def __post_init__(self) -> None:
        object.__setattr__(self, "factors", tuple(check_counts(self.factors, name="a factor")))
        require_verifier(self.verifier)
        if not self.factors:
            raise InvalidParameter(
                "factors must name at least one level; got none. Pass (4, 2, 1), say."
            )

    @property
    def shape(self) -> TreeShape:
        """The full tree with these factors."""
        return TreeShape.prefix_tree(self.factors)

    @property
    def verification(self) -> Verifier:
        """The verifier for i.i.d. drafts."""
        return self.verifier

    def law(self, num_drafts: int) -> Law:
        """Independent drafts."""
        return IID(num_drafts)
