"""Block verification: one drafted sequence, verified as a whole (Sun et al. 2024)."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
from numpy.typing import NDArray

from otm.drafts.iid import IID
from otm.pmf import check_count
from otm.sequence.decoder import Conditionals, DraftTree, StaticDecoder, Step
from otm.sequence.models import Context, LanguageModel
from otm.sequence.source import Source
from otm.sequence.vertex_decoder import grow_by_law
from otm.trees.shape import TreeShape


@dataclasses.dataclass(frozen=True)
class BlockVerification(StaticDecoder):
    """Draft `length` tokens in a row; keep the longest prefix that passes a test on the whole
    prefix.

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
        docs/theory.md, "Traversal
    verification".

    >>> from otm.sequence import ZerothOrder, step_law
    >>> draft, target = ZerothOrder([2 / 3, 1 / 3]), ZerothOrder([1 / 3, 2 / 3])
    >>> round(
    ...     step_law(BlockVerification(2), draft=draft, target=target, context=[]).block_efficiency,
    ...     12,
    ... )  # 1 + 11/9
    2.222222222222
    """

    title = "block verification"

    length: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", check_count(self.length, name="length"))

    @property
    def lossless(self) -> bool:
        """Always (docs/theory.md, "Traversal verification")."""
        return True

    @property
    def shape(self) -> TreeShape:
        """A chain."""
        return TreeShape.chain(self.length)

    def draft(self, model: LanguageModel, context: Context, source: Source) -> DraftTree:
        """Draw token after token."""
        return grow_by_law(self.shape, model, context, IID, source)

    def verify(self, tree: DraftTree, target: Conditionals, source: Source) -> Step:
        """Test the prefixes from the longest down; the first that passes is the longest that does."""
        start, drafted = len(tree.context), (*tree.context, *tree.tokens[1:].tolist())
        contexts = [drafted[: start + i] for i in range(self.length + 1)]
        kept, token = verify_block(contexts, tree.draft.__getitem__, target, source)
        survivors = tuple((vertex,) for vertex in range(1, kept + 1))
        tokens = (*drafted[start : start + kept], token)
        return Step(tokens, kept, "end_of_draft" if kept == self.length else "rejected", survivors)


def verify_block(
    contexts: list[Context], draft: Conditionals, target: Conditionals, source: Source
) -> tuple[int, int]:
    """Return how many tokens of a drafted sequence are kept, and the token after them.

    Args:
        contexts: what stands before each drafted token, and after the last.
        draft: the law by which the next token was drafted after each of them but the last.
        target: the target's.
        source: the randomness.
    """
    weights = prefix_weights(draft, target, contexts)
    kept, after = len(contexts) - 1, target(contexts[-1])
    if not source.accept(weights[-1]):
        excess = after
        for kept in reversed(range(len(contexts) - 1)):
            excess = np.maximum(weights[kept] * target(contexts[kept]) - draft(contexts[kept]), 0.0)
            if source.accept(pass_probability(float(excess.sum()), weights[kept])):
                break
        # Nothing in excess of the draft: the models agree here, and only rounding rejected what
        # follows.
        after = excess if excess.sum() > 0 else target(contexts[kept])
    return kept, source.choose(after)


def prefix_weights(
    draft: Conditionals, target: Conditionals, contexts: list[Context]
) -> list[float]:
    """Return w₀ = 1, …, w_γ along a chain; a token that the draft model cannot draw weighs 0."""
    weights = [1.0]
    for before, after in itertools.pairwise(contexts):
        weights.append(next_weight(weights[-1], draft(before), target(before), after[-1]))
    return weights


def next_weight(
    weight: float, draft: NDArray[np.float64], target: NDArray[np.float64], token: int
) -> float:
    """Return min(1, w·q(x)/p(x)), 0 where p(x) = 0.

    >>> (
    ...     next_weight(0.5, np.array([0.75, 0.25, 0.0]), np.array([0.25, 0.25, 0.5]), 1),
    ...     next_weight(1.0, *np.eye(2), 1),
    ... )
    (0.5, 0.0)
    """
    drawn, wanted = float(draft[token]), weight * float(target[token])
    if drawn <= 0.0:
        return 0.0
    return 1.0 if wanted >= drawn else wanted / drawn


def pass_probability(excess: float, weight: float) -> float:
    """Return Z/(Z + 1 − w), and 1 for 0/0, where nothing is ever rejected further down.

    >>> pass_probability(0.25, 0.75), pass_probability(0.0, 1.0), pass_probability(0.0, 0.5)
    (0.5, 1.0, 0.0)
    """
    return 1.0 if weight >= 1.0 else excess / (excess + 1.0 - weight)
