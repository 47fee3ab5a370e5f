"""Block verification: one drafted sequence, verified as a whole (Sun et al. 2024)."""

from __future__ import annotations

import dataclasses

from otm.drafts.iid import IID
from otm.pmf import settle_counts
from otm.sequence.block_weights import verify_block
from otm.sequence.decoder import Conditionals, DraftTree, StaticDecoder, Step
from otm.sequence.deferred import DeferredDecoder, StepModels, StepTally
from otm.sequence.law_decoder import grow_by_law
from otm.sequence.models import Context, LanguageModel
from otm.sequence.randomness import Randomness
from otm.sequence.traversal_verification import TraversalVerification
from otm.trees.shape import TreeShape


@dataclasses.dataclass(frozen=True)
class BlockVerification(StaticDecoder, DeferredDecoder):
    """Draft `length` tokens in a row and keep the longest prefix that passes a test of its whole.

    w₀ = 1, w_i = min(1, w_{i−1} q(x_i | x_{<i})/p(x_i | x_{<i})). Prefix i < γ passes with
    probability Z_i/(Z_i + 1 − w_i), with Z_i = Σ_x (w_i q(x | x_{≤i}) − p(x | x_{≤i}))₊, the whole
    draft with w_γ; the longest that passes is kept, and the next token is drawn ∝ (w_i q − p)₊
    after it, from q after the whole draft. Pr(at least i drafts are kept) = E[w_i], and no
    verification of one drafted sequence keeps more tokens in the mean (`otm.sequence.best_step`
    confirms it by linear programming).

    Args:
        length: γ ≥ 1 drafted tokens.

    Raises:
        InvalidParameter: if `length` is no integer of at least 1.

    Cost: γ draft calls and one target call per step; O(γ·V).
    Reference: Sun et al. 2024 (2403.10444), Algorithm 2 and Theorems 1 and 2; proof as a case of
        docs/theory.md, "Traversal verification".

    >>> from otm.sequence import ZerothOrder, step_law
    >>> draft, target = ZerothOrder([2 / 3, 1 / 3]), ZerothOrder([1 / 3, 2 / 3])
    >>> law = step_law(BlockVerification(2), draft=draft, target=target, context=[])
    >>> round(law.block_efficiency, 12)  # 1 + 11/9
    2.222222222222
    """

    title = "block verification"
    lossless = True  # docs/theory.md, "Traversal verification"

    length: int

    def __post_init__(self) -> None:
        settle_counts(self, length=1)

    @property
    def shape(self) -> TreeShape:
        """A chain."""
        return TreeShape.chain(self.length)

    def draft(self, model: LanguageModel, context: Context, randomness: Randomness) -> DraftTree:
        """Draw token after token."""
        return grow_by_law(self.shape, model, context, IID, randomness)

    def verify(self, tree: DraftTree, target: Conditionals, randomness: Randomness) -> Step:
        """Keep the longest prefix of the chain that passes."""
        contexts = [context for context in tree.contexts() if context is not None]
        kept, token = verify_block(contexts, tree.draft.__getitem__, target, randomness)
        return tree.step_along(range(1, kept + 1), token)

    def tally(self, models: StepModels) -> StepTally:
        """Follow traversal verification, which this is on a chain."""
        return TraversalVerification(self.shape, IID(1)).tally(models)
