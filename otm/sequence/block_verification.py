"""Block verification: one drafted sequence, verified as a whole (Sun et al. 2024).

How much of a drafted prefix may be accepted is its weight; the schemes that verify one of several
sequences as a block share the weights and the walk along them.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
from numpy.typing import NDArray

from otm.sequence.decoder import ChainDecoder
from otm.sequence.drafted_tree import Conditionals, DraftTree, Step
from otm.sequence.exact_laws import StepModels, StepTally, walk_sequences
from otm.sequence.models import Context
from otm.sequence.randomness import Randomness
from otm.sequence.vertex_decoder import LawDecoder
from otm.trees.shape import TreeShape


@dataclasses.dataclass(frozen=True)
class BlockVerification(ChainDecoder, LawDecoder):
    """Draft `length` tokens in a row and keep the longest prefix that passes a test as a whole.

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

    def verify(self, tree: DraftTree, target: Conditionals, randomness: Randomness) -> Step:
        """Keep the longest prefix of the chain that passes."""
        path = range(1, self.length + 1)
        kept, after = verify_block(
            tree.contexts_along(path), tree.draft.__getitem__, target, randomness
        )
        return tree.step_along(path[:kept], randomness.choose(after))

    def tally(self, models: StepModels) -> StepTally:
        """Follow the one path by f(uy) = min(f(u) q(y | u), P(uy))."""
        return walk_blocks(self.shape, models, gamma=1.0)


def next_weight(
    weight: float, draft: NDArray[np.float64], target: NDArray[np.float64], token: int
) -> float:
    """Return min(1, w·q(x)/p(x)), 0 where p(x) = 0.

    >>> import numpy as np
    >>> next_weight(0.5, np.array([0.75, 0.25, 0.0]), np.array([0.25, 0.25, 0.5]), 1)
    0.5
    >>> next_weight(1.0, *np.eye(2), 1)
    0.0
    """
    drawn, wanted = float(draft[token]), weight * float(target[token])
    if drawn <= 0.0:
        return 0.0
    return 1.0 if wanted >= drawn else wanted / drawn


def pass_probability(excess: float, weight: float) -> float:
    """Return Z/(Z + 1 − w), and 1 for 0/0, where no later rejection is possible.

    >>> pass_probability(0.25, 0.75), pass_probability(0.0, 1.0), pass_probability(0.0, 0.5)
    (0.5, 1.0, 0.0)
    """
    return 1.0 if weight >= 1.0 else excess / (excess + 1.0 - weight)


def after_rejection(
    weight: float, draft: NDArray[np.float64], target: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64]]:
    """Return the pass probability of a prefix once all later drafts are rejected, and the next law.

    w·q less what the drafts take of it, min(p, w·q), is (w·q − p)₊ = (1 − Σ min) w'·q', and 1 − Σ
    min = Z + 1 − w.
    """
    excess = np.maximum(weight * target - draft, 0.0)
    total = float(excess.sum())
    # Without any excess the models agree: w' is 0 and its q' is never used, or w = 1 and only
    # rounding rejected what follows.
    return pass_probability(total, weight), excess / total if total > 0 else target


def verify_block(
    contexts: list[Context],
    draft: Conditionals,
    target: Conditionals,
    randomness: Randomness,
    *,
    weight: float = 1.0,
) -> tuple[int, NDArray[np.float64]]:
    """Return the number of kept tokens of a drafted sequence, and the law of the next token.

    Args:
        contexts: what stands before each drafted token, and after the last.
        draft: the law by which the next token was drafted after each of them but the last.
        target: the target's distributions after them.
        randomness: decides.
        weight: w₀, of the empty prefix; it passes where no other does.
    """
    weights = [weight]
    for before, after in itertools.pairwise(contexts):
        weights.append(next_weight(weights[-1], draft(before), target(before), after[-1]))
    # The first prefix to pass, from the longest down, is the longest that does.
    for kept in reversed(range(len(contexts))):
        following, chance = target(contexts[kept]), weights[kept]
        if kept < len(contexts) - 1:
            chance, following = after_rejection(chance, draft(contexts[kept]), following)
        if kept == 0 or randomness.accept(chance):
            break
    return kept, following


def walk_blocks(shape: TreeShape, models: StepModels, *, gamma: float) -> StepTally:
    """Follow the paths of K sequences by f(uy) = min(f(u) q(y | u), γ P(uy)), the first to pass."""
    weights = {models.start: 1.0}

    def weight(context: Context) -> float:
        if context not in weights:
            before, token = context[:-1], context[-1]
            weights[context] = gamma * next_weight(
                weight(before) / gamma, models.draft(before), models.target(before), token
            )
        return weights[context]

    def accepted(context: Context) -> NDArray[np.float64]:
        return np.minimum(weight(context) * models.target(context), gamma * models.draft(context))

    # One sequence is rejected with probability r, all of them with r^K = 1 − Σ f(y).
    rejected = max(0.0, 1.0 - float(accepted(models.start).sum())) ** (1.0 / shape.width)
    shares = rejected ** np.arange(shape.width)
    return walk_sequences(
        shape, models, weight=weight, accepted=accepted, shares=shares / shares.sum()
    )
