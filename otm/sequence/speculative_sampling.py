"""Speculative sampling: one drafted sequence, verified token by token (SpecTr, Algorithm 4)."""

from __future__ import annotations

import dataclasses

from otm.drafts.base import Law
from otm.drafts.iid import IID
from otm.pmf import check_count
from otm.sequence.vertex_decoder import VertexDecoder, require_verifier
from otm.trees.shape import TreeShape
from otm.verifiers.base import Verifier
from otm.verifiers.maximal import Maximal


@dataclasses.dataclass(frozen=True)
class SpeculativeSampling(VertexDecoder):
    """Draft `length` tokens in a row; verify each by a single-draft verifier until one is rejected.

    E[tokens] = 1 + Σ_i Pr(the first i drafts are accepted); (1 − a^{γ+1})/(1 − a) when every draft
    is accepted with probability a.

    With a lossy verifier (`otm.Mentored`, `otm.Lenience`, `otm.TypicalAcceptance`, `otm.Fuzzy`)
    this is that scheme at sequence level; `otm.sequence.divergence_by_position` gives its exact KL.

    Args:
        length: γ ≥ 1 drafted tokens. SpecTr's Algorithm 4 calls γ + 1 its L.
        verifier: any that supports `IID(1)` and needs nothing but the draft.

    Raises:
        InvalidParameter: if `length` is no integer of at least 1.

    Cost: γ draft calls and one target call per step. Reference: Leviathan et al. 2023, Algorithm 1;
        Chen et al. 2023; SpecTr,
    Algorithm 4.

    >>> from otm.sequence import ZerothOrder, step_law
    >>> draft, target = (
    ...     ZerothOrder([0.75, 0.25]),
    ...     ZerothOrder([0.5, 0.5]),
    ... )  # each accepted with probability 3/4
    >>> round(
    ...     step_law(
    ...         SpeculativeSampling(2), draft=draft, target=target, context=[]
    ...     ).block_efficiency,
    ...     12,
    ... )  # 1 + 3/4 + 9/16
    2.3125
    """

    title = "speculative sampling"

    length: int
    verifier: Verifier = Maximal()

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", check_count(self.length, name="length"))
        require_verifier(self.verifier)

    @property
    def shape(self) -> TreeShape:
        """A chain."""
        return TreeShape.chain(self.length)

    @property
    def verification(self) -> Verifier:
        """The single-draft verifier."""
        return self.verifier

    def law(self, num_drafts: int) -> Law:
        """One draft."""
        return IID(num_drafts)
