"""Block K-SEQ: each of K sequences is verified as a block, and the first that is accepted wins."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from otm.drafts.base import Law
from otm.drafts.iid import IID
from otm.pmf import settle_counts
from otm.problem import Problem
from otm.sequence.block_weights import next_weight, pass_probability
from otm.sequence.decoder import Conditionals, DraftTree, Step, longest_paths
from otm.sequence.deferred import StepModels, StepTally, walk_sequences
from otm.sequence.law_decoder import LawDecoder
from otm.sequence.models import Context
from otm.sequence.randomness import Randomness
from otm.trees.shape import TreeShape
from otm.verifiers.kseq import gamma_star


@dataclasses.dataclass(frozen=True)
class BlockKSeq(LawDecoder):
    """Draft K sequences and take the first that keeps a token in a block test from weight 1/γ*.

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
    >>> found = expected_step(BlockKSeq(2, 1), draft=draft, target=target, context=[])
    >>> round(found.block_efficiency, 6)  # 1 + K-SEQ's .847597
    1.847597
    """

    title = "block K-SEQ"
    lossless = True  # docs/theory.md, "Block K-SEQ"

    num_drafts: int
    length: int

    def __post_init__(self) -> None:
        settle_counts(self, num_drafts=1, length=1)

    @property
    def shape(self) -> TreeShape:
        """K chains."""
        return TreeShape.sequences(self.num_drafts, self.length)

    def law(self, num_drafts: int) -> Law:
        """Independent drafts."""
        return IID(num_drafts)

    def gamma(self, draft: NDArray[np.float64], target: NDArray[np.float64]) -> float:
        """Return γ* of the first token."""
        return float(gamma_star(Problem(draft=draft, target=target, law=IID(self.num_drafts))))

    def verify(self, tree: DraftTree, target: Conditionals, randomness: Randomness) -> Step:
        """Test the sequences in their order, each from its longest prefix down."""
        start = tree.context
        gamma = self.gamma(tree.draft[start], target(start))
        for path in longest_paths(self.shape):
            weights, contexts = [1.0 / gamma], [start]
            for token in tree.tokens[list(path)].tolist():
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
                if randomness.accept(chance):
                    return tree.step_along(path[:kept], randomness.choose(after))
        excess = np.maximum(target(start) - gamma * tree.draft[start], 0.0)
        after = excess if excess.sum() > 0 else target(start)
        return tree.step_along((), randomness.choose(after))

    def tally(self, models: StepModels) -> StepTally:
        """Follow the paths by f(uy) = min(f(u) q(y | u), γ* P(uy))."""
        gamma = self.gamma(models.draft(models.start), models.target(models.start))
        weights = {models.start: 1.0}

        def weight(context: Context) -> float:
            if context not in weights:
                before, token = context[:-1], context[-1]
                weights[context] = gamma * next_weight(
                    weight(before) / gamma, models.draft(before), models.target(before), token
                )
            return weights[context]

        def accepted(context: Context) -> NDArray[np.float64]:
            wanted = weight(context) * models.target(context)
            return np.minimum(wanted, gamma * models.draft(context))

        return walk_sequences(self.shape, models, weight=weight, accepted=accepted)
