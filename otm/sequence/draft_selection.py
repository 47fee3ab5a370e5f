"""SpecTr's draft selection: K draft sequences, verified token by token, survivors agreeing with the
output.
"""

from __future__ import annotations

import dataclasses

from otm.drafts.base import Law
from otm.drafts.iid import IID
from otm.pmf import check_count
from otm.sequence.vertex_decoder import VertexDecoder, require_verifier
from otm.trees.shape import TreeShape
from otm.verifiers.base import Verifier
from otm.verifiers.kseq import KSeq


@dataclasses.dataclass(frozen=True)
class DraftSelection(VertexDecoder):
    """Decode up to L + 1 tokens from K i.i.d. draft sequences of length L, keeping the target's
    law.

    Level by level: Y ~ verifier(next tokens of the survivors); keep the survivors whose next token
    is Y, by token equality; stop when there are none; after level L with survivors, add one token
    from the target.

    Args:
        num_drafts: K ≥ 1 sequences.
        length: L ≥ 1 tokens each.
        verifier: any that supports `IID(m)` for every m ≤ K and needs nothing but the drafts.

    Raises:
        InvalidParameter: if a count is no integer of at least 1.

    Cost: L draft calls and one target call per step, at most L preparations of the verifier.
    Reference: SpecTr, Algorithm 3 and Theorem 3.

    >>> from otm.sequence import ZerothOrder, step_law
    >>> draft, target = ZerothOrder([0.75, 0.25]), ZerothOrder([0.5, 0.5])
    >>> round(
    ...     step_law(DraftSelection(2, 1), draft=draft, target=target, context=[]).block_efficiency,
    ...     6,
    ... )  # 1 + K-SEQ's .847597
    1.847597
    """

    title = "draft selection"

    num_drafts: int
    length: int
    verifier: Verifier = KSeq()

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_drafts", check_count(self.num_drafts, name="num_drafts"))
        object.__setattr__(self, "length", check_count(self.length, name="length"))
        require_verifier(self.verifier)

    @property
    def shape(self) -> TreeShape:
        """K chains."""
        return TreeShape.sequences(self.num_drafts, self.length)

    @property
    def verification(self) -> Verifier:
        """The verifier for i.i.d. drafts."""
        return self.verifier

    def law(self, num_drafts: int) -> Law:
        """Independent drafts."""
        return IID(num_drafts)
