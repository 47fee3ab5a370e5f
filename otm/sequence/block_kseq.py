"""Block K-SEQ: each of K sequences is verified as a block, and the first accepted one wins."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from otm.drafts.iid import IID
from otm.problem import Problem
from otm.sequence.block_verification import verify_block, walk_blocks
from otm.sequence.decoder import SequencesDecoder
from otm.sequence.drafted_tree import Conditionals, DraftTree, Step, longest_paths
from otm.sequence.exact_laws import StepModels, StepTally
from otm.sequence.randomness import Randomness
from otm.sequence.vertex_decoder import LawDecoder
from otm.verifiers.kseq import gamma_star


@dataclasses.dataclass(frozen=True)
class BlockKSeq(SequencesDecoder, LawDecoder):
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

    def gamma(self, draft: NDArray[np.float64], target: NDArray[np.float64]) -> float:
        """Return γ* of the first token."""
        return float(gamma_star(Problem(draft=draft, target=target, law=IID(self.num_drafts))))

    def verify(self, tree: DraftTree, target: Conditionals, randomness: Randomness) -> Step:
        """Test the sequences in order, each from the longest prefix down."""
        gamma = self.gamma(tree.draft[tree.context], target(tree.context))
        for path in longest_paths(self.shape):
            kept, after = verify_block(
                tree.contexts_along(path),
                tree.draft.__getitem__,
                target,
                randomness,
                weight=1.0 / gamma,
            )
            if kept:
                break
        return tree.step_along(path[:kept], randomness.choose(after))

    def tally(self, models: StepModels) -> StepTally:
        """Follow the paths by f(uy) = min(f(u) q(y | u), γ* P(uy))."""
        gamma = self.gamma(models.draft(models.start), models.target(models.start))
        return walk_blocks(self.shape, models, gamma=gamma)
