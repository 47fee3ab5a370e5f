"""Block K-SEQ: each drafted sequence is verified as a block against the target over γ*, and the
first that is accepted wins.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from otm.drafts.base import Law
from otm.drafts.iid import IID
from otm.pmf import check_count
from otm.problem import Problem
from otm.sequence.block_verification import next_weight, pass_probability
from otm.sequence.decoder import Conditionals, DraftTree, Step
from otm.sequence.source import Source
from otm.sequence.vertex_decoder import LawDecoder, children_of
from otm.trees.shape import TreeShape
from otm.verifiers.kseq import gamma_star


@dataclasses.dataclass(frozen=True)
class BlockKSeq(LawDecoder):
    """Draft K sequences; verify each as a block with starting weight 1/γ*; take the first that
    keeps a token.

    w₀ = 1/γ*, w_i = min(1, w_{i−1} q/p), and prefix i ≥ 1 of a sequence passes with probability
    Z_i/(Z_i + 1 − w_i), as in block verification. If no sequence passes, the token is drawn ∝ (q −
    γ* p)₊. γ* is K-SEQ's for the first token: then f(uy) = min(f(u) q(y | u), γ* P(uy)), so that
    one level is `KSeq`, one sequence block verification.

    Args:
        num_drafts: K ≥ 1 sequences.
        length: L ≥ 1 tokens each.

    Raises:
        InvalidParameter: if a count is no integer of at least 1.

    Cost: L draft calls and one target call per step; O(V) per drafted vertex.
    Reference: docs/theory.md, "Block K-SEQ"; SpecTr, Algorithm 2; Sun et al. 2024.

    >>> from otm.sequence import ZerothOrder, expected_step
    >>> draft, target = ZerothOrder([0.75, 0.25]), ZerothOrder([0.5, 0.5])
    >>> round(
    ...     expected_step(BlockKSeq(2, 1), draft=draft, target=target, context=[]).block_efficiency,
    ...     6,
    ... )  # 1 + K-SEQ's .847597
    1.847597
    """

    title = "block K-SEQ"

    num_drafts: int
    length: int

    def __post_init__(self) -> None:
        for name in ("num_drafts", "length"):
            object.__setattr__(self, name, check_count(getattr(self, name), name=name))

    @property
    def lossless(self) -> bool:
        """Always (docs/theory.md, "Block K-SEQ")."""
        return True

    @property
    def shape(self) -> TreeShape:
        """K chains."""
        return TreeShape.sequences(self.num_drafts, self.length)

    def law(self, num_drafts: int) -> Law:
        """Independent drafts."""
        return IID(num_drafts)

    def gamma(self, draft: np.ndarray, target: np.ndarray) -> float:
        """Return γ* of the first token."""
        return float(gamma_star(Problem(draft=draft, target=target, law=IID(self.num_drafts))))

    def verify(self, tree: DraftTree, target: Conditionals, source: Source) -> Step:
        """Go through the sequences in their order; each is tested from its longest prefix down."""
        start, below = tree.context, children_of(tree.shape)
        gamma = self.gamma(tree.draft[start], target(start))
        for vertex in below[0]:
            vertices, weights, contexts = [vertex], [1.0 / gamma], [start]
            while below[vertices[-1]]:
                vertices.append(below[vertices[-1]][0])
            for token in tree.tokens[vertices].tolist():
                here = contexts[-1]
                weights.append(next_weight(weights[-1], tree.draft[here], target(here), token))
                contexts.append((*here, token))
            for kept in range(self.length, 0, -1):
                here = contexts[kept]
                after, chance = target(here), weights[kept]
                if kept < self.length:
                    excess = np.maximum(weights[kept] * after - tree.draft[here], 0.0)
                    chance = pass_probability(float(excess.sum()), weights[kept])
                    after = excess if excess.sum() > 0 else after
                if source.accept(chance):
                    token = source.choose(after)
                    survivors = tuple((v,) for v in vertices[:kept])
                    tokens = (*here[len(start) :], token)
                    return Step(
                        tokens,
                        kept,
                        "end_of_draft" if kept == self.length else "rejected",
                        survivors,
                    )
        excess = np.maximum(target(start) - gamma * tree.draft[start], 0.0)
        return Step((source.choose(excess if excess.sum() > 0 else target(start)),), 0, "rejected")
